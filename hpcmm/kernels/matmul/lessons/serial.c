/* Matrix product, CPU rung: the triple loop of the textbook, one thread.

   Every element of C is a dot product of a row of A and a column of B. The column is read with a
   stride of a whole row, so each step accesses another cache line; there is no blocking for reuse. Limit: cache misses
   of these reads, and additions that wait for the previous one.
   Source: 000, 004 unit 2.

   hpcmm:
     operation: matmul
     shelf: lesson
     change: triple loop on one thread
     source: 000, 004
     slow: true
     traffic: {lines: 1, elements: 1} */
#include <stddef.h>

void matmul(int m, int n, int k, ACCUMULATOR alpha, const REAL *A, int lda, const REAL *B, int ldb,
            ACCUMULATOR beta, REAL *C, int ldc, int threads)
{
    (void)threads;
    for (size_t i = 0; i < (size_t)m; ++i)
        for (size_t j = 0; j < (size_t)n; ++j) {
            ACCUMULATOR sum = 0;
            for (size_t p = 0; p < (size_t)k; ++p)
                sum += (ACCUMULATOR)A[i * lda + p] * B[p * ldb + j];
            REAL *c = &C[i * ldc + j];
            *c = beta == 0 ? alpha * sum : alpha * sum + beta * *c; /* beta = 0: C is not read */
        }
}
