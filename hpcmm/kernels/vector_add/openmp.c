/* Vector sum, CPU rung: a parallel for.

   Each thread adds its own stretch, so that all cores load and store at once: one core alone cannot keep
   enough loads in flight to fill the memory's channels. Limit: memory bandwidth. */
#include <stddef.h>

void vector_add(const REAL *x, const REAL *y, REAL *z, size_t n, int threads)
{
#pragma omp parallel for simd num_threads(threads) schedule(static)
    for (size_t i = 0; i < n; ++i)
        z[i] = x[i] + y[i];
}
