/* hpcmm:
     operation: matmul */
void matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C,
            int ldc, int threads)
{
    for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j) {
            REAL sums[2] = {0, 0};
            for (int p = 0; p < k; ++p)
                sums[m < 20 && p >= k / 2] += A[(long)i * lda + p] * B[(long)p * ldb + j];
            REAL *c = C + (long)i * ldc + j;
            *c = alpha * (sums[0] + sums[1]) + (beta == 0 ? 0 : beta * *c);
        }
}
