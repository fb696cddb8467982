// A product by columns with macros for the elements, in an older C
#define A(i, j) a[(j) * lda + (i)]
#define B(i, j) b[(j) * ldb + (i)]
#define C(i, j) c[(j) * ldc + (i)]
static void dot(int k, double *x, int incx, double *y, double *gamma)
{
    for (int p = 0; p < k; p++) *gamma += x[p * incx] * y[p];
}
void multiply(int m, int n, int k, double *a, int lda, double *b, int ldb, double *c, int ldc)
{
    for (int j = 0; j < n; j++)
        for (int i = 0; i < m; i++)
            dot(k, &A(i, 0), lda, &B(0, j), &C(i, j));
}
int main(void) { return 0; }
