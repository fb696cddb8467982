/* Matrix product, CPU rung: each row of C is a sum of rows of B, on one thread. */
#include <stddef.h>

void matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb,
            REAL beta, REAL *C, int ldc, int threads)
{
    (void)threads;
    for (int i = 0; i < m; ++i) {
        REAL *c = C + (size_t)i * ldc;
        for (int j = 0; j < n; ++j)
            c[j] = beta == 0 ? 0 : beta * c[j];
        for (int p = 0; p < k; ++p)
            for (int j = 0; j < n; ++j)
                c[j] += alpha * A[(size_t)i * lda + p] * B[(size_t)p * ldb + j];
    }
}
