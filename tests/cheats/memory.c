/* expected: ended before the kernel returned: signal SIGSEGV */
#include "product.h"
#include <stdlib.h>

void matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc,
            int threads)
{
    volatile char *all = malloc((size_t)1 << 40); /* more than the address space: NULL */
    all[0] = 1;
    PRODUCT;
}
