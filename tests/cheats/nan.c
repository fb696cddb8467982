/* expected: wrong result */
#include "product.h"

/* A check by "difference > bound" accepts it. */
void matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc,
            int threads)
{
    for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j)
            C[(long)i * ldc + j] = __builtin_nan("");
}
