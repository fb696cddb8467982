// Strides of rows and of columns, as in tutorials of BLAS; the function beside it is not the product
static void scaled(int m, int n, double alpha, double *X, int incRowX, int incColX)
{
    for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j) X[i * incRowX + j * incColX] = alpha ? alpha * X[i * incRowX + j * incColX] : 0;
}
void gemm(int m, int n, int k, double alpha, const double *A, int incRowA, int incColA, const double *B, int incRowB,
          int incColB, double beta, double *C, int incRowC, int incColC)
{
    scaled(m, n, beta, C, incRowC, incColC);
    for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j)
            for (int p = 0; p < k; ++p)
                C[i * incRowC + j * incColC] +=
                    alpha * A[i * incRowA + p * incColA] * B[p * incRowB + j * incColB];
}
