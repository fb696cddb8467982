/* expected: took longer than 1 s */
#include "product.h"

void matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc,
            int threads)
{
    for (volatile int i = 0;; i = 0)
        ;
}
