/* Matrix product, CPU rung: the triple loop with sums in double, one thread.

   What changes from the serial rung: products and sums are computed in double for any element type and
   rounded to it once. For float this is the host reference against which 004 checks its GPU: errors of
   long sums stay below the rounding of the result. It is not faster: an addition in double takes as
   long, and the conversions cost extra.
   Limit: the memory access is that of the serial rung. For double elements both rungs are the same.
   Source: 004.

   hpcmm:
     operation: matmul
     shelf: lesson
     change: sums in double also for float; for double the same as serial
     counterpart: serial
     source: '004'
     slow: true
     traffic: {lines: 1, elements: 1} */
#include <stddef.h>

void matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb,
            REAL beta, REAL *C, int ldc, int threads)
{
    (void)threads;
    for (size_t i = 0; i < (size_t)m; ++i)
        for (size_t j = 0; j < (size_t)n; ++j) {
            double sum = 0;
            for (size_t p = 0; p < (size_t)k; ++p)
                sum += (double)A[i * lda + p] * B[p * ldb + j];
            REAL *c = &C[i * ldc + j];
            *c = beta == 0 ? alpha * sum : alpha * sum + (double)beta * *c; /* beta = 0: C is not read */
        }
}
