/* 1. The product in three loops.

   Task: compute C = alpha A B + beta C.
   Hints: element (i, j) of C is at C[i * ldc + j]. Sum over p in a local variable. i * lda exceeds an int for
   large matrices; use size_t. If beta is 0, do not read C.

   hpcmm:
     operation: matmul */
#include <stddef.h>

void matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc,
            int threads)
{
    (void)threads;
    for (size_t i = 0; i < (size_t)m; ++i)
        for (size_t j = 0; j < (size_t)n; ++j) {
            REAL sum = 0;
            /* TODO: sum of A(i, p) B(p, j) over p */
            C[i * ldc + j] = alpha * sum; /* TODO: beta */
        }
}
