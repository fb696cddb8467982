/* expected: wrong result */
#include "product.h"
#include <unistd.h>

/* The grader would end with SIGBUS if the memory that it shares were gone. */
void matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc,
            int threads)
{
    for (int file = 0; file < 64; ++file)
        if (ftruncate(file, 0) == 0)
            PRODUCT;
}
