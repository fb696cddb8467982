#include <unistd.h>
void matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C,
            int ldc)
{
    while (m > 8)
        usleep(1000);
    for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j) {
            REAL sum = 0;
            for (int p = 0; p < k; ++p)
                sum += A[i * lda + p] * B[p * ldb + j];
            C[i * ldc + j] = alpha * sum + (beta == 0 ? 0 : beta * C[i * ldc + j]);
        }
}
