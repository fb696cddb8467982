/* 2. The same on SIMD units.

   Task: exchange the two inner loops, so that the innermost one runs along rows of B and C.
   Hints: a row of C is a sum of rows of B. The compiler vectorizes a loop over contiguous elements if it knows that
   the arrays do not overlap, which restrict states. Threads are the next step: "#pragma omp parallel for" with
   num_threads(threads).

   hpcmm:
     operation: matmul */
#include <stddef.h>

void matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc,
            int threads)
{
    (void)threads;
    for (int i = 0; i < m; ++i) {
        REAL *restrict c = C + (size_t)i * ldc;
        for (int j = 0; j < n; ++j)
            c[j] = beta == 0 ? 0 : beta * c[j];
        for (int p = 0; p < k; ++p) {
            const REAL a = alpha * A[(size_t)i * lda + p];
            const REAL *restrict b = B + (size_t)p * ldb;
            for (int j = 0; j < n; ++j)
                c[j] += a * b[j];
        }
    }
}
