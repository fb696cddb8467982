/* Vector sum, CPU rung: a parallel for.

   Each thread adds a contiguous chunk, so that all cores load and store at once: a single core cannot keep
   enough loads in flight to saturate the memory channels. Limit: memory bandwidth.

   hpcmm:
     operation: vector_add
     shelf: lesson
     change: parallel for
     counterpart: serial
     traffic: {lines: 0, elements: 3}
     all_threads: true */
#include <stddef.h>

void vector_add(const REAL *x, const REAL *y, REAL *z, size_t n, int threads)
{
#pragma omp parallel for simd num_threads(threads) schedule(static)
    for (size_t i = 0; i < n; ++i)
        z[i] = x[i] + y[i];
}
