/* Matrix times vector: one dot product a row, on one thread. */
#include <stddef.h>

void matvec(int m, int n, const REAL *A, const REAL *x, REAL *y, int threads)
{
    (void)threads;
    for (int i = 0; i < m; ++i) {
        REAL sum = 0;
        for (int j = 0; j < n; ++j)
            sum += A[(size_t)i * n + j] * x[j];
        y[i] = sum;
    }
}
