/* A right product, for cheats that need one. */
static void product(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C,
                    int ldc)
{
    for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j) {
            REAL sum = 0;
            for (int p = 0; p < k; ++p)
                sum += A[(long)i * lda + p] * B[(long)p * ldb + j];
            C[(long)i * ldc + j] = beta == 0 ? alpha * sum : alpha * sum + beta * C[(long)i * ldc + j];
        }
}
#define PRODUCT product(m, n, k, alpha, A, lda, B, ldb, beta, C, ldc)
