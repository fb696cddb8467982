/* expected: wrote outside C, at -1 */
#include "product.h"

void matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc,
            int threads)
{
    PRODUCT;
    C[-1] = 0;
}
