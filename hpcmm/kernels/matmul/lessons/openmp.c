/* Matrix product, CPU rung: an inner loop over contiguous rows.

   What changes from the rung with a parallel for: the two inner loops are exchanged.
   Why it is faster: for a fixed p the innermost loop runs along contiguous rows of B and C, which the
   compiler turns into SIMD multiply-adds and the prefetcher can follow.
   Limit: no blocking, so B is read from the outer cache or memory once for every row of C.
   Source: 000.

   hpcmm:
     operation: matmul
     shelf: lesson
     change: inner loop over contiguous rows of B and C
     counterpart: parallel_for
     source: '000'
     traffic: {lines: 0, elements: 3}
     all_threads: true */
#include <stddef.h>

void matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb,
            REAL beta, REAL *C, int ldc, int threads)
{
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int i = 0; i < m; ++i) {
        REAL *restrict c = C + (size_t)i * ldc;
        for (int j = 0; j < n; ++j)
            c[j] = beta == 0 ? 0 : beta * c[j]; /* beta = 0: C is not read */
        for (int p = 0; p < k; ++p) {
            const REAL a = alpha * A[(size_t)i * lda + p];
            const REAL *restrict b = B + (size_t)p * ldb;
            for (int j = 0; j < n; ++j)
                c[j] += a * b[j];
        }
    }
}
