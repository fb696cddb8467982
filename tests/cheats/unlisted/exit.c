/* expected: ended before the kernel returned: exit status 0 */
#include "product.h"
#include <stdlib.h>

void matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc,
            int threads)
{
    _Exit(0);
}
