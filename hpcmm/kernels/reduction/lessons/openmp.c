/* Reduction, CPU rung: one contiguous chunk per thread, partial results combined in order.

   With simd and a reduction clause the compiler keeps several partial results per chunk, so an operation
   does not wait for the previous one. Over the threads, a reduction clause would leave the order undefined,
   and with it the rounding of a sum. Here the order is that of the chunks, for any number of threads that
   OpenMP starts. Limit: memory bandwidth.

   hpcmm:
     operation: sum
     shelf: lesson
     change: one chunk per thread, partial results combined in order
     counterpart: serial
     traffic: {lines: 0, elements: 1}
     all_threads: true */
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
