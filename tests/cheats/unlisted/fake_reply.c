/* expected: wrote to|wrote outside|wrong result */
#include "product.h"
#include <unistd.h>

/* Every open file gets the reply that the grader waits for, and more time. */
void matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc,
            int threads)
{
    for (int file = 3; file < 1024; ++file)
        if (write(file, "\"\"\n", 3) < 0)
            continue;
    for (volatile long i = 0; i < 1000L * 1000 * 1000; ++i)
        ;
    PRODUCT;
}
