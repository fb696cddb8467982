/* Matrix product, CPU rung: packed panels, a register tile, cache blocks, a block of C for each thread.

   What changes: a tile of C, MR rows by two vectors, stays in registers while k runs. Each step loads
   two vectors of B and MR numbers of A for 2 MR vector multiply-adds, so multiply-add throughput is the
   bottleneck, not the loads. A and B are packed in the order of use: KC terms at a time, MC rows of
   alpha A in the outer cache and NC columns of B in L2. C is read and written once for every KC terms.
   Each thread has its own block of C and its own copies: reading an input twice takes less time than
   the barriers that a shared copy would need.
   Why it is faster: the openmp rung loads or stores three times for each multiply-add and streams all
   of B for every row of C. Here an element of a copy is used NC or MC times before it leaves its cache.
   Limit: multiply-add throughput. Narrow products waste parts of tiles, and use each copy only a few times.
   Source: beyond the documents; Goto and van de Geijn, "Anatomy of high-performance matrix
   multiplication", ACM TOMS 34 (2008); Van Zee and van de Geijn, BLIS, ACM TOMS 41 (2015).

   hpcmm:
     operation: matmul
     shelf: product
     invariant: true
     change: packed panels, register tiles and cache blocks, SIMD chosen at run time, all threads
     counterpart: openmp
     traffic: {lines: 0, elements: 0.23}
     all_threads: true */
#include <omp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum {
    KC = 2048 / sizeof(REAL), /* long, because every KC terms cost a pass over C */
    NC = 128,                 /* KC x NC elements take 256 KiB, half of the smallest L2 cache */
    MC = 1032,                /* a multiple of every path's MR */
    LINE = 64 / sizeof(REAL), /* elements of a cache line */
    ROW = KC + LINE,          /* a row of A's copy; with a power of two, a column would be in one cache set */
    AHEAD = 4,                /* B is prefetched this number of rows ahead of the copy */
    APART = 16,               /* steps between prefetches of rows of C; all at once would delay the loads */
};

/* Each thread's copies; thread-local storage is allocated in the first call and freed with the thread. */
static _Thread_local _Alignas(64) REAL a_copy[MC * ROW];
static _Thread_local _Alignas(64) REAL b_copy[KC * NC];

typedef void tile_function(int k, const REAL *a, const REAL *b, const REAL *next, int rows, int columns, REAL beta,
                           REAL *C, int ldc);
typedef void product_function(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb,
                              REAL beta, REAL *C, int ldc);

#define INLINE static inline __attribute__((always_inline))

INLINE int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* Copy alpha A by rows, padded with rows of zeros to whole tiles. */
INLINE void copy_a(int mr, int m, int k, REAL alpha, const REAL *A, int lda, REAL *to)
{
    for (int i = 0; i < m; ++i, to += ROW)
        for (int p = 0; p < k; ++p)
            to[p] = alpha * A[(size_t)i * lda + p];
    for (int i = m; i % mr; ++i, to += ROW)
        memset(to, 0, k * sizeof(REAL));
}

/* Copy B in panels of nr columns, each by rows, padded with columns of zeros to whole tiles. */
INLINE void copy_b(int nr, int k, int n, const REAL *B, int ldb, REAL *to)
{
    for (int p = 0; p < k; ++p)
        for (int j = 0; j < n; j += nr) {
            const REAL *from = B + (size_t)p * ldb + j;
            REAL *panel = to + (size_t)j * KC + (size_t)p * nr;
            if (p + AHEAD < k) {
                __builtin_prefetch(from + (size_t)AHEAD * ldb);
                __builtin_prefetch(from + (size_t)AHEAD * ldb + smaller(nr, n - j) - 1);
            }
            if (n - j >= nr)
                memcpy(panel, from, nr * sizeof(REAL));
            else
                for (int q = 0; q < nr; ++q)
                    panel[q] = q < n - j ? from[q] : 0;
        }
}

/* C = beta C + sums for the part of a tile that is inside C; beta = 0: C is not read. */
INLINE void update(int rows, int columns, const REAL *sums, int width, REAL beta, REAL *C, int ldc)
{
    for (int i = 0; i < rows; ++i) {
        REAL *restrict c = C + (size_t)i * ldc;
        const REAL *restrict s = sums + (size_t)i * width;
        if (beta == 0)
            for (int j = 0; j < columns; ++j)
                c[j] = s[j];
        else
            for (int j = 0; j < columns; ++j)
                c[j] = beta * c[j] + s[j];
    }
}

/* Rows of A that each tile of a row of tiles prefetches. */
#define SHARE(mr, nr) (((mr) * (nr) + NC - 1) / NC)

/* One thread's block of C. Inlined with constant mr and nr into each path, whose instructions it then uses. */
INLINE void product(int mr, int nr, tile_function *tile, int m, int n, int k, REAL alpha, const REAL *A, int lda,
                    const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    REAL *const a = a_copy, *const b = b_copy;
    const int passes = (k + KC - 1) / KC, kc = (k + passes - 1) / passes; /* passes of equal length */
    for (int i0 = 0; i0 < m; i0 += MC) {
        const int rows = smaller(MC, m - i0);
        for (int p0 = 0; p0 < k; p0 += kc) {
            const int terms = smaller(kc, k - p0);
            copy_a(mr, rows, terms, alpha, A + (size_t)i0 * lda + p0, lda, a);
            for (int j0 = 0; j0 < n; j0 += NC) {
                const int columns = smaller(NC, n - j0);
                copy_b(nr, terms, columns, B + (size_t)p0 * ldb + j0, ldb, b);
                for (int i = 0; i < rows; i += mr)
                    for (int j = 0; j < columns; j += nr) {
                        /* the tiles from left to right prefetch the rows of A for the tiles below */
                        const int next = (i + mr < rows ? i + mr : 0) + j / nr * SHARE(mr, nr) % mr;
                        tile(terms, a + (size_t)i * ROW, b + (size_t)j * KC, a + (size_t)next * ROW,
                             smaller(mr, rows - i), smaller(nr, columns - j), p0 == 0 ? beta : 1,
                             C + (size_t)(i0 + i) * ldc + j0 + j, ldc);
                    }
            }
        }
    }
}

struct path {
    const char *name;
    int mr, nr; /* rows and columns of a tile */
    product_function *product;
};

/* A path: the tile and the product around it for one instruction set, with vectors of `bytes` bytes.
   It is a macro because a vector type belongs to the instruction set of the function that uses it. */
#define DEFINE_PATH(isa, instructions, bytes, MR)                                                                  \
    typedef REAL isa##_vector __attribute__((vector_size(bytes)));                                                 \
                                                                                                                   \
    instructions static void isa##_tile(int k, const REAL *a, const REAL *b, const REAL *next, int rows,           \
                                        int columns, REAL beta, REAL *C, int ldc)                                  \
    {                                                                                                              \
        isa##_vector sum[MR][2], sums[MR][2]; /* in registers; in memory at the end */                             \
        const isa##_vector *vectors = (const isa##_vector *)b;                                                     \
        UNROLL for (int i = 0; i < MR; ++i) sum[i][0] = sum[i][1] = (isa##_vector){0};                             \
        for (int p = 0; p < k; ++p, vectors += 2) {                                                                \
            if (p % LINE == 0)                                                                                     \
                for (int i = 0; i < SHARE(MR, 2 * bytes / (int)sizeof(REAL)); ++i)                                 \
                    __builtin_prefetch(next + i * ROW + p);                                                        \
            if (p % APART == 0 && p / APART < rows) {                                                              \
                __builtin_prefetch(C + (size_t)(p / APART) * ldc, 1);                                              \
                __builtin_prefetch(C + (size_t)(p / APART) * ldc + columns - 1, 1);                                \
            }                                                                                                      \
            const isa##_vector left = vectors[0], right = vectors[1];                                              \
            UNROLL for (int i = 0; i < MR; ++i)                                                                    \
            {                                                                                                      \
                sum[i][0] += a[i * ROW + p] * left;                                                                \
                sum[i][1] += a[i * ROW + p] * right;                                                               \
            }                                                                                                      \
        }                                                                                                          \
        UNROLL for (int i = 0; i < MR; ++i) sums[i][0] = sum[i][0], sums[i][1] = sum[i][1];                        \
        update(rows, columns, (const REAL *)sums, 2 * bytes / sizeof(REAL), beta, C, ldc);                         \
    }                                                                                                              \
                                                                                                                   \
    instructions static void isa##_product(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, \
                                           int ldb, REAL beta, REAL *C, int ldc)                                   \
    {                                                                                                              \
        _Static_assert(MC % MR == 0 && NC % (2 * bytes / sizeof(REAL)) == 0, "whole tiles in a block");            \
        product(MR, 2 * bytes / sizeof(REAL), isa##_tile, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc);           \
    }                                                                                                              \
                                                                                                                   \
    static const struct path isa = {#isa, MR, 2 * bytes / sizeof(REAL), isa##_product};

#define UNROLL _Pragma("GCC unroll 16")

/* With AVX-512, the 24 sums of 12 rows fit into the 32 registers. More rows need fewer loads per multiply-add. */
#if defined(__x86_64__)
DEFINE_PATH(avx512, __attribute__((target("avx512f"))), 64, 12)
DEFINE_PATH(avx2, __attribute__((target("avx2,fma"))), 32, 6)
#endif
#if defined(__ARM_NEON)
DEFINE_PATH(neon, , 16, 8)
#define FALLBACK neon
#else
DEFINE_PATH(portable, , 16, 6)
#define FALLBACK portable
#endif

/* Return the best path that this processor supports, or the one that HPCMM_SIMD names, for tests and
   comparisons; the fallback if the processor does not support it. */
static struct path choose(void)
{
#if defined(__x86_64__)
    const char *wanted = getenv("HPCMM_SIMD");
    if ((!wanted || !strcmp(wanted, avx512.name)) && __builtin_cpu_supports("avx512f"))
        return avx512;
    if ((!wanted || !strcmp(wanted, avx2.name)) && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return avx2;
#endif
    return FALLBACK;
}

const char *path(void)
{
    return choose().name;
}

static int tiles(int n, int unit)
{
    return (n + unit - 1) / unit;
}

/* Return the start of a part of n if whole tiles are divided into `parts` parts. */
static int begin(int n, int unit, int part, int parts)
{
    return smaller(n, (long long)tiles(n, unit) * part / parts * unit);
}

/* Return the number of rows of blocks, with one block of C per thread, for which the largest block costs least. */
static int blocks_down(int m, int n, int threads, struct path path)
{
    const double copying = 24; /* cost of copying an element, in multiply-adds */
    double least = 0;
    int best = 1;
    for (int down = 1; down <= threads; ++down) {
        if (threads % down)
            continue;
        const double rows = tiles(tiles(m, path.mr), down) * path.mr;
        const double columns = tiles(tiles(n, path.nr), threads / down) * path.nr;
        const double cost = rows * columns + copying * (rows + columns);
        if (down == 1 || cost < least)
            least = cost, best = down;
    }
    return best;
}

void matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb,
            REAL beta, REAL *C, int ldc, int threads)
{
    const struct path path = choose();
#pragma omp parallel num_threads(threads)
    {
        const int number = omp_get_thread_num(), count = omp_get_num_threads();
        const int down = blocks_down(m, n, count, path), across = count / down;
        const int above = number / across, before = number % across;
        const int row = begin(m, path.mr, above, down), last_row = begin(m, path.mr, above + 1, down);
        const int column = begin(n, path.nr, before, across), last_column = begin(n, path.nr, before + 1, across);
        path.product(last_row - row, last_column - column, k, alpha, A + (size_t)row * lda, lda, B + column, ldb, beta,
                     C + (size_t)row * ldc + column, ldc);
    }
}
