/* Matrix product, CPU rung: rows of C distributed by OpenMP's parallel for.

   What changes from the rung with POSIX threads: one line in place of the code that divides the rows, creates threads
   and waits for them. The loop in a thread is the same.
   Why it is as fast: the same work in the same threads. OpenMP keeps its threads between calls, which a small product
   notices.
   Limit: as there, the serial loop in each thread.
   Source: 000.

   hpcmm:
     operation: matmul
     shelf: lesson
     change: rows distributed by OpenMP's parallel for, the serial loop in each thread
     counterpart: pthread
     source: '000'
     slow: true
     traffic: {lines: 1, elements: 1}
     all_threads: true */
#include <stddef.h>

void matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb,
            REAL beta, REAL *C, int ldc, int threads)
{
#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t i = 0; i < (size_t)m; ++i)
        for (size_t j = 0; j < (size_t)n; ++j) {
            REAL sum = 0;
            for (size_t p = 0; p < (size_t)k; ++p)
                sum += A[i * lda + p] * B[p * ldb + j];
            REAL *c = &C[i * ldc + j];
            *c = beta == 0 ? alpha * sum : alpha * sum + beta * *c; /* beta = 0: C is not read */
        }
}
