/* Vector copy, CPU rung: OpenMP divides the loop among the threads. Limit: memory bandwidth. Source: BabelStream.

   hpcmm:
     operation: copy
     shelf: lesson
     change: parallel for
     counterpart: serial
     source: BabelStream
     traffic: {lines: 0, elements: 2}
     all_threads: true */
#include <stddef.h>

void copy(const REAL *x, REAL *y, size_t n, REAL scale, int threads)
{
    (void)scale;
#pragma omp parallel for simd num_threads(threads) schedule(static)
    for (size_t i = 0; i < n; ++i)
        y[i] = APPLY(x[i]);
}
