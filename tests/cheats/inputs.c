/* expected: wrote to its input */
#include "product.h"

void matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc,
            int threads)
{
    PRODUCT;
    for (int p = 0; p < k; ++p) /* of no use, but who knows to whom */
        ((REAL *)B)[(long)p * ldb] = 0;
}
