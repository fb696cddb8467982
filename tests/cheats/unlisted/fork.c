/* expected: wrong result|starts or reaches another process */
#include "product.h"
#include <unistd.h>

/* The copy of the process goes on in the shared memory while this one returns. */
void matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc,
            int threads)
{
    if (fork())
        return;
    for (volatile long i = 0; i < 1000L * 1000 * 1000; ++i)
        ;
    PRODUCT;
    for (;;)
        pause();
}
