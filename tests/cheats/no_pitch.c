/* expected: wrote outside C|wrong result */
#include "product.h"

/* The rows of all matrices follow each other, as in most shapes that a test has. */
void matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc,
            int threads)
{
    lda = k, ldb = n, ldc = n;
    PRODUCT;
}
