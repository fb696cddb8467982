/* expected: wrote outside C */
#include "product.h"

void matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc,
            int threads)
{
    PRODUCT;
    for (int j = 0; j < n; ++j)
        C[(long)m * ldc + j] = 0;
}
