/* Matrix product on the CPU: each row of C is a sum of rows of B, STEP of them at a time.
 *
 * hpcmm:
 *   operation: matmul
 *   change: rows of B added up, several at a time
 *   constants: {STEP: 4}
 *   options: [-march=native]
 */
#include <stddef.h>

void matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb,
            REAL beta, REAL *C, int ldc, int threads)
{
#pragma omp parallel for num_threads(threads)
    for (int i = 0; i < m; ++i) {
        REAL *c = C + (size_t)i * ldc;
        for (int j = 0; j < n; ++j)
            c[j] = beta == 0 ? 0 : beta * c[j];
        for (int p = 0; p < k; p += STEP) {
            const int most = k - p < STEP ? k - p : STEP;
            for (int s = 0; s < most; ++s) {
                const REAL a = alpha * A[(size_t)i * lda + p + s];
                for (int j = 0; j < n; ++j)
                    c[j] += a * B[(size_t)(p + s) * ldb + j];
            }
        }
    }
}
