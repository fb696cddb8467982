/* expected: has inline assembly */
#include "product.h"

void matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc,
            int threads)
{
    __asm__ volatile("nop"); /* or one that calls the system */
    PRODUCT;
}
