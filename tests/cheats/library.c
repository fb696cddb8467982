/* expected: cannot be loaded: .*undefined symbol: cblas_sgemm */
#include "product.h"

void cblas_sgemm(int, int, int, int, int, int, float, const float *, int, const float *, int, float, float *, int);

void matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc,
            int threads)
{
    cblas_sgemm(101, 111, 111, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc);
}
