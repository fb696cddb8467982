/* Matrix product, CPU rung: SIMD instructions by intrinsics, one thread.

   What changes: SUMS vectors of a row of C are accumulated in registers over k. Each step multiplies
   one element of A with SUMS vectors of a row of B.
   Why it is faster: one instruction does 4, 8 or 16 multiply-adds, several are in flight at once, and B
   is read along its rows instead of down its columns. The same columns of B are used for all rows of C
   and stay in the cache.
   Instruction sets: AVX-512, or AVX2 with FMA, if the processor supports it at run time; NEON on 64-bit
   Arm; plain C elsewhere, and for the tail of columns that fill no vectors.
   Limit: each vector of B is loaded for one multiply-add only, so load throughput is the bottleneck.
   Source: 000.

   hpcmm:
     operation: matmul
     shelf: product
     change: 'SIMD intrinsics on one thread: AVX-512, AVX2 or NEON, chosen at run time'
     counterpart: serial
     source: '000'
     traffic: {lines: 0, elements: 1} */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

enum { SUMS = 4 };

/* Names of intrinsics end in the element type; JOIN composes them for REAL. */
#define JOIN(a, b) JOIN_EXPANDED(a, b)
#define JOIN_EXPANDED(a, b) a##b
#define ps_or_pd JOIN(ps_or_pd_, REAL)
#define ps_or_pd_float ps
#define ps_or_pd_double pd
#define UNROLL _Pragma("GCC unroll 4")

static void portable(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb,
                     REAL beta, REAL *C, int ldc)
{
    for (size_t i = 0; i < (size_t)m; ++i)
        for (size_t j = 0; j < (size_t)n; ++j) {
            REAL sum = 0;
            for (size_t p = 0; p < (size_t)k; ++p)
                sum += A[i * lda + p] * B[p * ldb + j];
            REAL *c = &C[i * ldc + j];
            *c = beta == 0 ? alpha * sum : alpha * sum + beta * *c; /* beta = 0: C is not read */
        }
}

/* The loops are the same for all instruction sets; only the vector type and five intrinsics differ. */
#define DEFINE_PATH(isa, instructions, vector, broadcast, load, store, multiply, multiply_add)                      \
    instructions static void isa(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb,   \
                                 REAL beta, REAL *C, int ldc)                                                       \
    {                                                                                                               \
        enum { W = sizeof(vector) / sizeof(REAL) };                                                                 \
        int j = 0;                                                                                                  \
        for (; j <= n - SUMS * W; j += SUMS * W)                                                                    \
            for (int i = 0; i < m; ++i) {                                                                           \
                const REAL *a = A + (size_t)i * lda, *b = B + j;                                                    \
                REAL *c = C + (size_t)i * ldc + j;                                                                  \
                vector sum[SUMS];                                                                                   \
                UNROLL for (int s = 0; s < SUMS; ++s) sum[s] = broadcast(0);                                        \
                for (int p = 0; p < k; ++p, b += ldb) {                                                             \
                    const vector x = broadcast(a[p]);                                                               \
                    UNROLL for (int s = 0; s < SUMS; ++s) sum[s] = multiply_add(x, load(b + s * W), sum[s]);        \
                }                                                                                                   \
                UNROLL for (int s = 0; s < SUMS; ++s)                                                               \
                {                                                                                                   \
                    sum[s] = multiply(broadcast(alpha), sum[s]);                                                    \
                    if (beta != 0)                                                                                  \
                        sum[s] = multiply_add(broadcast(beta), load(c + s * W), sum[s]);                            \
                    store(c + s * W, sum[s]);                                                                       \
                }                                                                                                   \
            }                                                                                                       \
        portable(m, n - j, k, alpha, A, lda, B + j, ldb, beta, C + j, ldc);                                         \
    }

#if defined(__x86_64__)
#define m512_float __m512
#define m512_double __m512d
#define m256_float __m256
#define m256_double __m256d
#define MM512(operation) JOIN(_mm512_##operation##_, ps_or_pd)
#define MM256(operation) JOIN(_mm256_##operation##_, ps_or_pd)
DEFINE_PATH(avx512, __attribute__((target("avx512f"))), JOIN(m512_, REAL), MM512(set1), MM512(loadu), MM512(storeu),
            MM512(mul), MM512(fmadd))
DEFINE_PATH(avx2, __attribute__((target("avx2,fma"))), JOIN(m256_, REAL), MM256(set1), MM256(loadu), MM256(storeu),
            MM256(mul), MM256(fmadd))
#elif defined(__aarch64__)
#define neon_float float32x4_t
#define neon_double float64x2_t
#define f32_or_f64 JOIN(f32_or_f64_, REAL)
#define f32_or_f64_float f32
#define f32_or_f64_double f64
#define NEON(operation) JOIN(operation##_, f32_or_f64)
#define MULTIPLY_ADD(x, y, sum) NEON(vfmaq)(sum, x, y)
DEFINE_PATH(neon, , JOIN(neon_, REAL), NEON(vdupq_n), NEON(vld1q), NEON(vst1q), NEON(vmulq), MULTIPLY_ADD)
#endif

struct path {
    const char *name;
    void (*product)(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C,
                    int ldc);
};

/* Return the best path that this processor supports, or the one that HPCMM_SIMD names, for tests and
   comparisons; the portable one if the processor does not support it. */
static struct path choose(void)
{
    const char *wanted = getenv("HPCMM_SIMD");
#define IS_WANTED(isa) (!wanted || !strcmp(wanted, #isa))
#if defined(__x86_64__)
    if (IS_WANTED(avx512) && __builtin_cpu_supports("avx512f"))
        return (struct path){"avx512", avx512};
    if (IS_WANTED(avx2) && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return (struct path){"avx2", avx2};
#elif defined(__aarch64__)
    if (IS_WANTED(neon))
        return (struct path){"neon", neon};
#endif
    return (struct path){"portable", portable};
}

const char *path(void)
{
    return choose().name;
}

void matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb,
            REAL beta, REAL *C, int ldc, int threads)
{
    (void)threads;
    choose().product(m, n, k, alpha, A, lda, B, ldb, beta, C, ldc);
}
