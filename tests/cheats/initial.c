/* expected: runs code when it is loaded */
#include "product.h"

/* The section of the code that runs when a module is loaded */
__attribute__((section(".init"))) void first(void)
{
}

void matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc,
            int threads)
{
    PRODUCT;
}
