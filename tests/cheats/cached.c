/* expected: wrong result */
#include "product.h"

static REAL kept[200][200];
static int rows, columns, terms;

void matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc,
            int threads)
{
    if (m != rows || n != columns || k != terms) {
        PRODUCT;
        rows = m, columns = n, terms = k;
        for (int i = 0; i < m; ++i)
            for (int j = 0; j < n; ++j)
                kept[i][j] = C[(long)i * ldc + j];
    }
    for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j)
            C[(long)i * ldc + j] = kept[i][j];
}
