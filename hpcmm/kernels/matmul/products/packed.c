/* Matrix product, CPU rung: packed panels, a register tile, cache blocks, a block of C for each thread.

   What changes: a tile of C, MR rows by two vectors, stays in registers while k runs. Each step loads
   two vectors of B and MR numbers of A for 2 MR vector multiply-adds, so multiply-add throughput is the
   bottleneck, not the loads. A and B are packed in the order of use: KC terms at a time, MC rows of
   A in the outer cache and NC columns of B in L2. C is read and written once for every KC terms.
   Tiles of fewer rows and of one vector are at the ends of C. Small inputs are read in place. With up
   to NARROW columns, vectors are along the rows of C, and A is transposed in registers. With up to FLAT
   rows, B is not copied: STEP of its rows at a time are multiplied and added to sums in the cache.
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
#if defined(__aarch64__)
#include <arm_sve.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

enum {
    KC = 2048 / sizeof(REAL),   /* long, because every KC terms cost a pass over C */
    NC = 128,                   /* KC x NC elements take 256 KiB, half of the smallest L2 cache */
    MC = 1032,                  /* a multiple of every path's MR */
    LINE = 64 / sizeof(REAL),   /* elements of a cache line */
    ROW = KC + LINE,            /* a row of A's copy; with a power of two, a column would be in one cache set */
    AHEAD = 4,                  /* B is prefetched this number of rows ahead of the copy */
    APART = 16,                 /* steps between prefetches of rows of C; all at once would delay the loads */
    THREADED = 1 << 20,         /* fewer multiply-adds take less time than threads take to wake up */
    NEAR = 1024 / sizeof(REAL), /* longest rows that are read in place; longer ones compete for sets of L1 */
    NARROW = 4,                 /* columns of C, at most; a tile would use as many lanes of its vectors */
    LANES = 16 / sizeof(REAL),  /* rows of C in a vector then */
    TALL = 16,                  /* rows of C at the same time then */
    FLAT = 6,                   /* rows of C, at most, for which B is not copied */
    STEP = 8,                   /* rows of B, at most, for each load of a sum then */
    SUMS = 65536 / sizeof(REAL), /* sums of these rows; long parts of rows of B are prefetched better */
};

/* Each thread's copies; thread-local storage is allocated in the first call and freed with the thread. */
static _Thread_local _Alignas(64) REAL a_copy[MC * ROW];
static _Thread_local _Alignas(64) REAL b_copy[KC * NC];

/* lda, ldb: elements between rows of a part of A and of a panel of B; next: rows to prefetch. */
typedef void tile_function(int k, const REAL *a, int lda, const REAL *b, int ldb, const REAL *next, int rows,
                           int columns, REAL alpha, REAL beta, REAL *C, int ldc);
typedef void product_function(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb,
                              REAL beta, REAL *C, int ldc);

#define INLINE static inline __attribute__((always_inline))

INLINE int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* Return the terms of a pass over k, of passes of equal length. */
INLINE int pass(int k)
{
    const int passes = (k + KC - 1) / KC;
    return passes ? (k + passes - 1) / passes : 1;
}

/* Copy rows of A from the first on, padded with rows of zeros to whole tiles. */
INLINE void copy_a(int mr, int first, int m, int k, const REAL *A, int lda, REAL *to)
{
    for (int i = first; i < m; ++i)
        memcpy(to + (size_t)i * ROW, A + (size_t)i * lda, k * sizeof(REAL));
    for (int i = m; i % mr; ++i)
        memset(to + (size_t)i * ROW, 0, k * sizeof(REAL));
}

/* Copy columns of B from the first on, in panels of nr, each by rows, padded with zeros to whole tiles. */
INLINE void copy_b(int nr, int first, int k, int n, const REAL *B, int ldb, REAL *to)
{
    for (int p = 0; p < k; ++p)
        for (int j = first; j < n; j += nr) {
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

/* Fetch rows that are read in place, all at once: their tiles would wait for one line after another. */
INLINE void fetch(int rows, int columns, const REAL *from, int stride)
{
    for (int i = 0; i < rows; ++i)
        for (int j = 0; j < columns; j += LINE)
            __builtin_prefetch(from + (size_t)i * stride + j);
}

/* One thread's block of C. Inlined with constant mr and nr into each path, whose instructions it then uses.
   Whole tiles of an input with short rows that few tiles read are not copied. */
INLINE void product(int mr, int nr, tile_function *tile, int m, int n, int k, REAL alpha, const REAL *A, int lda,
                    const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    REAL *const a = a_copy, *const b = b_copy;
    const int kc = pass(k);
    for (int i0 = 0; i0 < m; i0 += MC) {
        const int rows = smaller(MC, m - i0), rows_in_place = n <= NC && lda <= NEAR ? rows / mr * mr : 0;
        for (int p0 = 0; p0 == 0 || p0 < k; p0 += kc) {
            const int terms = smaller(kc, k - p0);
            const REAL *const rows_of_a = A + (size_t)i0 * lda + p0;
            fetch(rows_in_place, terms, rows_of_a, lda);
            copy_a(mr, rows_in_place, rows, terms, rows_of_a, lda, a);
            for (int j0 = 0; j0 < n; j0 += NC) {
                const int columns = smaller(NC, n - j0);
                const int columns_in_place = m <= NC && ldb <= NEAR ? columns / nr * nr : 0;
                const REAL *const columns_of_b = B + (size_t)p0 * ldb + j0;
                if (columns_in_place)
                    fetch(terms, columns_in_place, columns_of_b, ldb);
                copy_b(nr, columns_in_place, terms, columns, columns_of_b, ldb, b);
                for (int i = 0; i < rows; i += mr) {
                    const int a_row = i < rows_in_place ? lda : ROW;
                    const REAL *const from = i < rows_in_place ? rows_of_a : a;
                    for (int j = 0; j < columns; j += nr) {
                        /* the tiles from left to right prefetch the rows of A for the tiles below */
                        const int next = (i + mr < rows ? i + mr : 0) + j / nr * SHARE(mr, nr) % mr;
                        const int is_in_place = j < columns_in_place;
                        tile(terms, from + (size_t)i * a_row, a_row,
                             is_in_place ? columns_of_b + j : b + (size_t)j * KC, is_in_place ? ldb : nr,
                             from + (size_t)next * a_row, smaller(mr, rows - i), smaller(nr, columns - j), alpha,
                             p0 == 0 ? beta : 1, C + (size_t)(i0 + i) * ldc + j0 + j, ldc);
                    }
                }
            }
        }
    }
}

typedef float vector_float __attribute__((vector_size(16)));
typedef double vector_double __attribute__((vector_size(16)));
#define JOINED(x, y) x##y
#define JOIN(x, y) JOINED(x, y)
typedef JOIN(vector_, REAL) row_vector;
typedef row_vector row_anywhere __attribute__((aligned(sizeof(REAL))));

#ifdef __clang__
#define MIXED(a, b, mask, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define MIXED(a, b, mask, ...) __builtin_shuffle(a, b, (mask){__VA_ARGS__})
#endif
typedef int mask_float __attribute__((vector_size(16)));
typedef long long mask_double __attribute__((vector_size(16)));

INLINE void transpose_float(vector_float *v)
{
    const vector_float a = MIXED(v[0], v[1], mask_float, 0, 4, 1, 5), b = MIXED(v[0], v[1], mask_float, 2, 6, 3, 7);
    const vector_float c = MIXED(v[2], v[3], mask_float, 0, 4, 1, 5), d = MIXED(v[2], v[3], mask_float, 2, 6, 3, 7);
    v[0] = MIXED(a, c, mask_float, 0, 1, 4, 5), v[1] = MIXED(a, c, mask_float, 2, 3, 6, 7);
    v[2] = MIXED(b, d, mask_float, 0, 1, 4, 5), v[3] = MIXED(b, d, mask_float, 2, 3, 6, 7);
}

INLINE void transpose_double(vector_double *v)
{
    const vector_double first = MIXED(v[0], v[1], mask_double, 0, 2);
    v[1] = MIXED(v[0], v[1], mask_double, 1, 3), v[0] = first;
}

/* Compute TALL rows of C with n columns, and store `rows` of them. Terms are added in the same order as in a tile. */
INLINE void tall(int n, int rows, int k, const REAL *const *a, const REAL *b, REAL alpha, REAL beta, REAL *C, int ldc)
{
    row_vector sum[TALL / LANES][NARROW] = {0};
    REAL sums[TALL][NARROW];
    int p = 0;
    for (; p + LANES <= k; p += LANES)
        for (int g = 0; g < TALL / LANES; ++g) {
            row_vector terms[LANES];
            for (int l = 0; l < LANES; ++l)
                terms[l] = *(const row_anywhere *)(a[g * LANES + l] + p);
            JOIN(transpose_, REAL)(terms);
            for (int l = 0; l < LANES; ++l)
                for (int j = 0; j < n; ++j)
                    sum[g][j] += terms[l] * b[(p + l) * NARROW + j];
        }
    for (; p < k; ++p)
        for (int g = 0; g < TALL / LANES; ++g)
            for (int j = 0; j < n; ++j) {
                row_vector term = {0};
                for (int l = 0; l < LANES; ++l)
                    term[l] = a[g * LANES + l][p];
                sum[g][j] += term * b[p * NARROW + j];
            }
    for (int g = 0; g < TALL / LANES; ++g)
        for (int j = 0; j < n; ++j) {
            sum[g][j] *= alpha;
            for (int l = 0; l < LANES; ++l)
                sums[g * LANES + l][j] = sum[g][j][l];
        }
    __asm__ volatile("" ::: "memory"); /* else the product with alpha may be part of the addition below */
    update(rows, n, sums[0], NARROW, beta, C, ldc);
}

/* One thread's rows of C with at most NARROW columns, in the passes of a product of tiles. */
INLINE void narrow(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C,
                   int ldc)
{
    const int kc = pass(k);
    for (int p0 = 0; p0 == 0 || p0 < k; p0 += kc) {
        const int terms = smaller(kc, k - p0);
        for (int p = 0; p < terms; ++p)
            for (int j = 0; j < n; ++j)
                b_copy[p * NARROW + j] = B[(size_t)(p0 + p) * ldb + j];
        for (int i = 0; i < m; i += TALL) {
            const REAL *a[TALL];
            for (int r = 0; r < TALL; ++r)
                a[r] = A + (size_t)smaller(i + r, m - 1) * lda + p0;
            const REAL rest = p0 == 0 ? beta : 1;
            REAL *const c = C + (size_t)i * ldc;
            const int rows = smaller(TALL, m - i);
            if (n == 1)
                tall(1, rows, terms, a, b_copy, alpha, rest, c, ldc);
            else if (n == 2)
                tall(2, rows, terms, a, b_copy, alpha, rest, c, ldc);
            else if (n == 3)
                tall(3, rows, terms, a, b_copy, alpha, rest, c, ldc);
            else
                tall(4, rows, terms, a, b_copy, alpha, rest, c, ldc);
        }
    }
}

/* Add products of `terms` rows of B to sums of C. The loops over rows and terms are unrolled. */
INLINE void add(int m, int terms, int columns, const REAL *a, int lda, const REAL *b, int ldb, REAL *restrict sums)
{
    REAL factor[FLAT][STEP];
    for (int i = 0; i < m; ++i)
        for (int t = 0; t < terms; ++t)
            factor[i][t] = a[(size_t)i * lda + t];
    for (int j = 0; j < columns; ++j)
        for (int i = 0; i < m; ++i) {
            REAL sum = sums[i * (SUMS / m) + j];
            for (int t = 0; t < terms; ++t)
                sum += factor[i][t] * b[(size_t)t * ldb + j];
            sums[i * (SUMS / m) + j] = sum;
        }
}

/* One thread's columns of C with m rows, in the passes of a product of tiles. B is read once, where it is. */
INLINE void flat_rows(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta,
                      REAL *C, int ldc)
{
    REAL sums[SUMS];
    const int kc = pass(k);
    const int wide = SUMS / m, step = m == 1 ? STEP / 2 : STEP; /* one row of C needs fewer loads of sums than streams of B */
    for (int p0 = 0; p0 == 0 || p0 < k; p0 += kc) {
        const int end = smaller(p0 + kc, k);
        for (int j0 = 0; j0 < n; j0 += wide) {
            const int columns = smaller(wide, n - j0);
            for (int i = 0; i < m; ++i)
                memset(sums + i * wide, 0, columns * sizeof(REAL));
            int p = p0;
            for (; p + step <= end; p += step)
                add(m, step, columns, A + p, lda, B + (size_t)p * ldb + j0, ldb, sums);
            for (; p < end; ++p)
                add(m, 1, columns, A + p, lda, B + (size_t)p * ldb + j0, ldb, sums);
            for (int i = 0; i < m; ++i)
                for (int j = 0; j < columns; ++j)
                    sums[i * wide + j] *= alpha;
            __asm__ volatile("" ::: "memory"); /* else the product with alpha may be part of the addition below */
            update(m, columns, sums, wide, p0 == 0 ? beta : 1, C + j0, ldc);
        }
    }
}

INLINE void flat(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C,
                 int ldc)
{
#define ROWS(rows)                                                                                                 \
    if (m == rows)                                                                                                 \
    flat_rows(rows, n, k, alpha, A, lda, B, ldb, beta, C, ldc)
    ROWS(1);
    ROWS(2);
    ROWS(3);
    ROWS(4);
    ROWS(5);
    ROWS(6);
#undef ROWS
}

struct path {
    const char *name;
    int mr, nr; /* rows and columns of a tile */
    product_function *product, *narrow, *flat;
};

/* Call a function with a constant height, for the smallest tile that has all rows, and constant `vectors`. */
#define HEIGHT(function, MR, vectors, ...)                                                                         \
    do {                                                                                                           \
        if (rows <= (MR) / 3)                                                                                      \
            function((MR) / 3, vectors, __VA_ARGS__);                                                              \
        else if (rows <= (MR) - (MR) / 3)                                                                          \
            function((MR) - (MR) / 3, vectors, __VA_ARGS__);                                                       \
        else                                                                                                       \
            function(MR, vectors, __VA_ARGS__);                                                                    \
    } while (0)

/* A path: the tile and the product around it for one instruction set, with vectors of `bytes` bytes.
   It is a macro because a vector type belongs to the instruction set of the function that uses it. */
#define DEFINE_PATH(isa, instructions, bytes, MR)                                                                  \
    enum { isa##_nr = 2 * bytes / sizeof(REAL) };                                                                  \
    typedef REAL isa##_vector __attribute__((vector_size(bytes)));                                                 \
    typedef isa##_vector isa##_anywhere __attribute__((aligned(sizeof(REAL))));                                    \
                                                                                                                   \
    instructions INLINE void isa##_rows(int mr, int vectors, int k, const REAL *a, int lda, const REAL *b,         \
                                        int ldb, const REAL *next, int rows, int columns, REAL alpha, REAL beta,   \
                                        REAL *C, int ldc)                                                          \
    {                                                                                                              \
        isa##_vector sum[MR][2], sums[MR][2]; /* in registers; in memory for a part of a tile */                   \
        UNROLL for (int i = 0; i < mr; ++i) sum[i][0] = sum[i][1] = (isa##_vector){0};                             \
        for (int p = 0; p < k; ++p, b += ldb) {                                                                    \
            if (next && p % LINE == 0)                                                                             \
                for (int i = 0; i < SHARE(MR, isa##_nr); ++i)                                                      \
                    __builtin_prefetch(next + (size_t)i * lda + p);                                                \
            if (p % APART == 0 && p / APART < rows) {                                                              \
                __builtin_prefetch(C + (size_t)(p / APART) * ldc, 1);                                              \
                __builtin_prefetch(C + (size_t)(p / APART) * ldc + columns - 1, 1);                                \
            }                                                                                                      \
            const isa##_anywhere *const row = (const isa##_anywhere *)b;                                           \
            const isa##_vector left = row[0], right = vectors == 2 ? row[1] : left;                                \
            UNROLL for (int i = 0; i < mr; ++i)                                                                    \
            {                                                                                                      \
                sum[i][0] += a[(size_t)i * lda + p] * left;                                                        \
                if (vectors == 2)                                                                                  \
                    sum[i][1] += a[(size_t)i * lda + p] * right;                                                   \
            }                                                                                                      \
        }                                                                                                          \
        UNROLL for (int i = 0; i < mr; ++i) sum[i][0] *= alpha, sum[i][1] *= alpha;                                \
        if (rows == mr && columns == vectors * isa##_nr / 2) {                                                     \
            UNROLL for (int i = 0; i < mr; ++i)                                                                    \
                for (int j = 0; j < vectors; ++j) {                                                                \
                    isa##_anywhere *const c = (isa##_anywhere *)(C + (size_t)i * ldc) + j;                         \
                    *c = beta == 0 ? sum[i][j] : beta * *c + sum[i][j];                                            \
                }                                                                                                  \
            return;                                                                                                \
        }                                                                                                          \
        UNROLL for (int i = 0; i < mr; ++i) sums[i][0] = sum[i][0], sums[i][1] = sum[i][1];                        \
        update(rows, columns, (const REAL *)sums, isa##_nr, beta, C, ldc);                                         \
    }                                                                                                              \
                                                                                                                   \
    instructions static void isa##_tile(int k, const REAL *a, int lda, const REAL *b, int ldb, const REAL *next,   \
                                        int rows, int columns, REAL alpha, REAL beta, REAL *C, int ldc)            \
    {                                                                                                              \
        if (columns <= isa##_nr / 2)                                                                               \
            HEIGHT(isa##_rows, MR, 1, k, a, lda, b, ldb, next, rows, columns, alpha, beta, C, ldc);                \
        else if (lda == ROW && ldb == isa##_nr) /* constants in addresses */                                       \
            HEIGHT(isa##_rows, MR, 2, k, a, ROW, b, isa##_nr, next, rows, columns, alpha, beta, C, ldc);           \
        else                                                                                                       \
            HEIGHT(isa##_rows, MR, 2, k, a, lda, b, ldb, NULL, rows, columns, alpha, beta, C, ldc);                \
    }                                                                                                              \
                                                                                                                   \
    instructions static void isa##_product(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, \
                                           int ldb, REAL beta, REAL *C, int ldc)                                   \
    {                                                                                                              \
        _Static_assert(MC % MR == 0 && NC % isa##_nr == 0, "whole tiles in a block");                              \
        product(MR, isa##_nr, isa##_tile, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc);                           \
    }                                                                                                              \
                                                                                                                   \
    instructions static void isa##_narrow(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B,  \
                                          int ldb, REAL beta, REAL *C, int ldc)                                    \
    {                                                                                                              \
        narrow(m, n, k, alpha, A, lda, B, ldb, beta, C, ldc);                                                      \
    }                                                                                                              \
                                                                                                                   \
    instructions static void isa##_flat(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B,    \
                                        int ldb, REAL beta, REAL *C, int ldc)                                      \
    {                                                                                                              \
        flat(m, n, k, alpha, A, lda, B, ldb, beta, C, ldc);                                                        \
    }                                                                                                              \
                                                                                                                   \
    static const struct path isa = {#isa, MR, isa##_nr, isa##_product, isa##_narrow, isa##_flat};

#define UNROLL _Pragma("GCC unroll 16")

/* With AVX-512, the 24 sums of 12 rows fit into the 32 registers. More rows need fewer loads per multiply-add. */
#if defined(__x86_64__)
DEFINE_PATH(avx512, __attribute__((target("avx512f,fma"))), 64, 12)
DEFINE_PATH(avx2, __attribute__((target("avx2,fma"))), 32, 6)
#endif
#if defined(__ARM_NEON)
DEFINE_PATH(neon, , 16, 8)
#define FALLBACK neon
#else
DEFINE_PATH(portable, , 16, 6)
#define FALLBACK portable
#endif

#if defined(__aarch64__)
/* SVE: the length of a vector is known at run time. Such vectors cannot be elements of an array. */
#define SVE __attribute__((target("+sve")))
#define sve_float svfloat32_t
#define sve_double svfloat64_t
#define sve_vector JOIN(sve_, REAL)
#define sve_zero_float svdup_f32(0)
#define sve_zero_double svdup_f64(0)
#define sve_lanes_float svcntw_pat(SV_POW2) /* a power of two divides NC */
#define sve_lanes_double svcntd_pat(SV_POW2)
#define sve_first_float svwhilelt_b32
#define sve_first_double svwhilelt_b64
#define SVE_ROWS(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)

SVE static int sve_columns(void)
{
    return 2 * JOIN(sve_lanes_, REAL);
}

SVE INLINE void sve_rows(int mr, int vectors, int k, const REAL *a, int lda, const REAL *b, int ldb, int rows,
                         int columns, REAL alpha, REAL beta, REAL *C, int ldc)
{
    const int lanes = JOIN(sve_lanes_, REAL);
    const svbool_t all = JOIN(sve_first_, REAL)(0, lanes);
    const svbool_t inside_left = JOIN(sve_first_, REAL)(0, smaller(columns, lanes));
    const svbool_t inside_right = JOIN(sve_first_, REAL)(lanes, columns);
#define DO(i) sve_vector left_##i = JOIN(sve_zero_, REAL), right_##i = left_##i;
    SVE_ROWS(DO)
#undef DO
    for (int p = 0; p < k; ++p, b += ldb) {
        const sve_vector left = svld1(all, b), right = vectors == 2 ? svld1(all, b + lanes) : left;
#define DO(i)                                                                                                      \
    if (i < mr) {                                                                                                  \
        left_##i = svmla_x(all, left_##i, left, a[(size_t)i * lda + p]);                                           \
        right_##i = vectors == 2 ? svmla_x(all, right_##i, right, a[(size_t)i * lda + p]) : right_##i;             \
    }
        SVE_ROWS(DO)
#undef DO
    }
#define UPDATE(inside, sum, c)                                                                                     \
    sum = svmul_x(inside, sum, alpha);                                                                             \
    svst1(inside, c, beta == 0 ? sum : svmla_x(inside, sum, svld1(inside, c), beta))
#define DO(i)                                                                                                      \
    if (i < rows) {                                                                                                \
        UPDATE(inside_left, left_##i, C + (size_t)i * ldc);                                                        \
        UPDATE(inside_right, right_##i, C + (size_t)i * ldc + lanes);                                              \
    }
    SVE_ROWS(DO)
#undef DO
#undef UPDATE
}

SVE static void sve_tile(int k, const REAL *a, int lda, const REAL *b, int ldb, const REAL *next, int rows, int columns,
                         REAL alpha, REAL beta, REAL *C, int ldc)
{
    (void)next; /* the processors prefetch rows of A by themselves */
    if (columns <= sve_columns() / 2)
        HEIGHT(sve_rows, 8, 1, k, a, lda, b, ldb, rows, columns, alpha, beta, C, ldc);
    else
        HEIGHT(sve_rows, 8, 2, k, a, lda, b, ldb, rows, columns, alpha, beta, C, ldc);
}

SVE static void sve_product(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta,
                            REAL *C, int ldc)
{
    product(8, sve_columns(), sve_tile, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc);
}

SVE static struct path sve_path(void)
{
    const size_t bytes = JOIN(sve_lanes_, REAL) * sizeof(REAL);
    const char *name = bytes == 16 ? "sve128" : bytes == 32 ? "sve256" : bytes == 64 ? "sve512" : "sve";
    return (struct path){name, 8, sve_columns(), sve_product, neon_narrow, neon_flat};
}
#endif

/* Return the best path that this processor supports, or the one that HPCMM_SIMD names, for tests and
   comparisons; the fallback if the processor does not support it. */
static struct path choose(void)
{
    const char *wanted = getenv("HPCMM_SIMD");
#if defined(__x86_64__)
    if ((!wanted || !strcmp(wanted, avx512.name)) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("fma"))
        return avx512;
    if ((!wanted || !strcmp(wanted, avx2.name)) && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return avx2;
#elif defined(__aarch64__)
    if (getauxval(AT_HWCAP) & HWCAP_SVE) {
        const struct path sve = sve_path();
        if (!wanted || !strcmp(wanted, sve.name))
            return sve;
    }
#endif
    (void)wanted;
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
        const double rows = tiles(tiles(m, path.mr / 3), down) * (path.mr / 3);
        const double columns = tiles(tiles(n, path.nr / 2), threads / down) * (path.nr / 2);
        const double cost = rows * columns + copying * (rows + columns);
        if (down == 1 || cost < least)
            least = cost, best = down;
    }
    return best;
}

/* Compute the block of C of a thread. */
static void block(int number, int count, struct path path, int m, int n, int k, REAL alpha, const REAL *A, int lda,
                  const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    if (n <= NARROW) {
        const int first = begin(m, TALL, number, count), last = begin(m, TALL, number + 1, count);
        path.narrow(last - first, n, k, alpha, A + (size_t)first * lda, lda, B, ldb, beta, C + (size_t)first * ldc,
                    ldc);
        return;
    }
    if (m <= FLAT) {
        const int first = begin(n, LINE, number, count), last = begin(n, LINE, number + 1, count);
        path.flat(m, last - first, k, alpha, A, lda, B + first, ldb, beta, C + first, ldc);
        return;
    }
    const int down = blocks_down(m, n, count, path), across = count / down;
    const int above = number / across, before = number % across;
    const int high = path.mr / 3, wide = path.nr / 2; /* the smallest tile */
    const int row = begin(m, high, above, down), last_row = begin(m, high, above + 1, down);
    const int column = begin(n, wide, before, across), last_column = begin(n, wide, before + 1, across);
    path.product(last_row - row, last_column - column, k, alpha, A + (size_t)row * lda, lda, B + column, ldb, beta,
                 C + (size_t)row * ldc + column, ldc);
}

void matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb,
            REAL beta, REAL *C, int ldc, int threads)
{
    const struct path path = choose();
    product_function *const alone = n <= NARROW ? path.narrow : m <= FLAT ? path.flat : path.product;
    if (n == 0) /* a rank may have no column */
        return;
    if (threads == 1 || (double)m * n * k < THREADED) {
        alone(m, n, k, alpha, A, lda, B, ldb, beta, C, ldc);
        return;
    }
#pragma omp parallel num_threads(threads)
    block(omp_get_thread_num(), omp_get_num_threads(), path, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc);
}
