/* Vector copy, CPU rung: one loop, one thread. Limit: the memory bandwidth of one core.

   hpcmm:
     operation: copy
     shelf: lesson
     change: one loop on one thread
     traffic: {lines: 0, elements: 2} */
#include <stddef.h>

void copy(const REAL *x, REAL *y, size_t n, REAL scale, int threads)
{
    (void)threads, (void)scale;
    for (size_t i = 0; i < n; ++i)
        y[i] = APPLY(x[i]);
}
