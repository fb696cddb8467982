/* Reduction, CPU rung: one loop, one thread.

   Limit: each floating-point operation waits for the previous one, because the compiler keeps their order.
   Source: 004.

   hpcmm:
     operation: sum
     shelf: lesson
     change: one loop on one thread
     source: '004'
     traffic: {lines: 0, elements: 1} */
#include <stddef.h>

void reduction(const REAL *x, size_t n, REAL *result, REAL identity, int threads)
{
    (void)threads;
    REAL value = identity;
    for (size_t i = 0; i < n; ++i)
        value = COMBINE(value, x[i]);
    *result = value;
}
