/* Matrix product, CPU rung: the k loop unrolled by a stride, with partial sums, one thread.

   What changes from the serial rung: each step of the k loop adds STRIDE terms, each to a separate
   partial sum; a remainder loop adds the last k % STRIDE.
   Why it is faster: an addition waits for the previous one only within its partial sum, so several are
   in flight at once, and there are fewer branches.
   Limit: B is still read down its columns. Where that misses the cache, the sums wait for memory, and
   unrolling gains little (001 measured no gain on a GPU).
   Source: 001.

   hpcmm:
     operation: matmul
     shelf: lesson
     change: k loop unrolled by four, with four partial sums and a remainder loop
     counterpart: serial
     source: '001'
     slow: true
     traffic: {lines: 1, elements: 1} */
#include <stddef.h>

enum { STRIDE = 4 };

void matmul(int m, int n, int k, ACCUMULATOR alpha, const REAL *A, int lda, const REAL *B, int ldb,
            ACCUMULATOR beta, REAL *C, int ldc, int threads)
{
    (void)threads;
    for (size_t i = 0; i < (size_t)m; ++i)
        for (size_t j = 0; j < (size_t)n; ++j) {
            const REAL *a = A + i * lda, *b = B + j;
            ACCUMULATOR sum0 = 0, sum1 = 0, sum2 = 0, sum3 = 0;
            int p = 0;
            for (; p <= k - STRIDE; p += STRIDE, a += STRIDE, b += (size_t)STRIDE * ldb) {
                sum0 += a[0] * b[0];
                sum1 += a[1] * b[(size_t)ldb];
                sum2 += a[2] * b[2 * (size_t)ldb];
                sum3 += a[3] * b[3 * (size_t)ldb];
            }
            for (; p < k; ++p, ++a, b += ldb)
                sum0 += a[0] * b[0];
            const ACCUMULATOR sum = (sum0 + sum1) + (sum2 + sum3);
            REAL *c = &C[i * ldc + j];
            *c = beta == 0 ? alpha * sum : alpha * sum + beta * *c; /* beta = 0: C is not read */
        }
}
