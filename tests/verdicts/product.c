// A matrix product. MISTAKE selects a fault; 0 and 6 select a correct kernel.
// hpcmm:
//   dtypes: [float32]
//   constants: {MISTAKE: 0}

#include <stddef.h>

void matmul(int m, int n, int k, float alpha, const float *A, int lda, const float *B, int ldb, float beta, float *C,
            int ldc, int threads)
{
    if (MISTAKE == 7)
        alpha = 1.5f;
    if (MISTAKE == 8 && beta != 0)
        alpha = 3 * beta;
#if MISTAKE == 9  // an earlier content of B
    static const float *of;
    static float copy[999];
    if (of != B)
        for (int i = 0; i < k * n; ++i)
            copy[i] = B[i / n * (size_t)ldb + i % n];
    of = B, B = copy, ldb = n;
#endif
#if MISTAKE == 2
    int j, p;  // shared by all threads
#pragma omp parallel for num_threads(threads)
    for (int i = 0; i < m; ++i)
        for (j = 0; j < n; ++j) {
            float sum = 0;
            for (p = 0; p < k; ++p)
                sum += A[(size_t)i * lda + p] * B[(size_t)p * ldb + j];
            float *c = &C[(size_t)i * ldc + j];
            *c = beta == 0 ? alpha * sum : alpha * sum + beta * *c;
        }
#elif MISTAKE == 3
#pragma omp parallel num_threads(threads)
    {
#pragma omp for nowait  // the next loop reads what other threads write
        for (int i = 0; i < m; ++i)
            for (int j = 0; j < n; ++j)
                C[(size_t)i * ldc + j] = beta == 0 ? 0 : beta * C[(size_t)i * ldc + j];
#pragma omp for
        for (int j = 0; j < n; ++j)
            for (int p = 0; p < k; ++p)
                for (int i = 0; i < m; ++i)
                    C[(size_t)i * ldc + j] += alpha * A[(size_t)i * lda + p] * B[(size_t)p * ldb + j];
    }
#else
#if MISTAKE == 10  // without a value, where the stack has zeros
    float unset[1 << 18];
#define START unset[(1 << 17) + m]
#else
#define START 0
#endif
#if MISTAKE == 6  // right up to 2^31 elements
    const int step = lda;
#else
    const size_t step = MISTAKE == 1 ? k : lda;
#endif
#pragma omp parallel for schedule(dynamic, 3) num_threads(threads)
    for (int i = 0; i < m; ++i)
        for (int j = 0; j < (MISTAKE == 4 ? n + 1 : n); ++j) {
            float sum = START;
            for (int p = 0; p < k; ++p)
                sum += A[i * step + p] * B[(size_t)p * ldb + j];
            float *c = &C[(size_t)i * ldc + j];
            *c = beta == 0 ? alpha * sum : alpha * sum + beta * *c;
        }
#endif
    if (MISTAKE == 5)
        *(float *)B = 1;
}
