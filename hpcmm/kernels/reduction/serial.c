/* Sum, CPU rung: one loop, one thread. Each addition waits for the one before it. Source: 004. */
#include <stddef.h>

void reduction(const REAL *x, size_t n, REAL *total, int threads)
{
    (void)threads;
    REAL sum = 0;
    for (size_t i = 0; i < n; ++i)
        sum += x[i];
    *total = sum;
}
