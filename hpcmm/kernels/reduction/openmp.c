/* Sum, CPU rung: a parallel for with a reduction clause.

   Each thread sums its own stretch, and simd lets the compiler keep several partial sums, so that an
   addition need not wait for the one before it. Limit: memory bandwidth. */
#include <stddef.h>

void reduction(const REAL *x, size_t n, REAL *total, int threads)
{
    REAL sum = 0;
#pragma omp parallel for simd reduction(+ : sum) num_threads(threads) schedule(static)
    for (size_t i = 0; i < n; ++i)
        sum += x[i];
    *total = sum;
}
