/* expected: runs code when it is loaded */
#include "product.h"

static REAL *prepared;
__attribute__((constructor)) static void before_the_clock_runs(void)
{
    prepared = (REAL *)1;
}

void matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc,
            int threads)
{
    if (prepared)
        PRODUCT;
}
