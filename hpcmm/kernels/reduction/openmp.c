/* Reduction, CPU rung: a stretch for each thread, and their results combined in order.

   simd with a reduction clause lets the compiler keep several partial results of a stretch, so that an
   operation need not wait for the one before it. Over the threads such a clause would leave the order
   open, and with it the rounding of a sum: here it is that of the stretches, however many threads OpenMP
   really starts. Limit: memory bandwidth. */
#include <stddef.h>

void reduction(const REAL *x, size_t n, REAL *result, REAL identity, int threads)
{
    REAL partial[threads];
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int t = 0; t < threads; ++t) {
        REAL value = identity;
#pragma omp simd reduction(OPERATOR : value)
        for (size_t i = n * t / threads; i < n * (t + 1) / threads; ++i)
            value = COMBINE(value, x[i]);
        partial[t] = value;
    }
    REAL value = identity;
    for (int t = 0; t < threads; ++t)
        value = COMBINE(value, partial[t]);
    *result = value;
}
