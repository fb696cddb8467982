/* expected: wrote to its input A */
#include "product.h"

/* alpha is applied to A once, which saves it in the loop. */
void matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc,
            int threads)
{
    for (int i = 0; i < m; ++i)
        for (int p = 0; p < k; ++p)
            ((REAL *)A)[(long)i * lda + p] *= alpha;
    alpha = 1;
    PRODUCT;
}
