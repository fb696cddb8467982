/* Vector sum, CPU rung: one loop, one thread. Limit: the memory bandwidth of one core. Source: 004 unit 1.

   hpcmm:
     operation: vector_add
     shelf: lesson
     change: one loop on one thread
     source: 004 unit 1
     traffic: {lines: 0, elements: 3} */
#include <stddef.h>

void vector_add(const REAL *x, const REAL *y, REAL *z, size_t n, int threads)
{
    (void)threads;
    for (size_t i = 0; i < n; ++i)
        z[i] = x[i] + y[i];
}
