/* Matrices of float32 or float64 as layers of int8, and their product by AMX: shared by int8_slices and int8_residues.

   A row of A and a column of B are scaled by a power of two and rounded to integers. A source defines how an integer is
   divided among LAYERS layers, how large it may be, and what becomes of the sums of products of layers. */
#define SUM int
#include "matmul/amx_product.h"
#include <math.h>
#ifdef __GNUC__ /* on vectors as arguments: these functions are inlined */
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

/* Vectors of 64 bytes: one register of AVX-512; the compiler divides them among shorter ones. */
typedef int32_t ints __attribute__((vector_size(64)));
typedef float floats __attribute__((vector_size(64)));
typedef REAL reals __attribute__((vector_size(64)));

#define BITS JOIN(BITS_, REAL)
#define BITS_float int32_t
#define BITS_double int64_t
typedef BITS bits __attribute__((vector_size(64)));

enum {
    NOT_FINITE = INT32_MAX,                  /* the exponent of a row or column with an infinity or a NaN */
    PARTS = EDGE * sizeof(REAL) / 64,        /* vectors of 16 elements */
    STRIP = 4 * SIDE,                        /* columns of B that are packed together, so that rows are read along */
    MANTISSA = sizeof(REAL) == 4 ? 23 : 52,  /* bits */
    BIAS = sizeof(REAL) == 4 ? 127 : 1023,
};

/* Of matmul, with the copies of A and B and the exponents of their scales. */
#define PARAMETERS                                                                                                 \
    (int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc, \
     int threads __attribute__((unused)), char *a_copy, char *b_copy, int *scales_a, int *scales_b)
#define ARGUMENTS (m, n, k, alpha, A, lda, B, ldb, beta, C, ldc, threads, a_copy, b_copy, scales_a, scales_b)

/* 16 elements of a row. */
struct sixteen {
    reals part[PARTS];
};

/* Of a source: divide four vectors of integers, given as floating-point numbers, among layers. Each layer gets 16 words
   of four bytes, one of each vector. */
INLINE void split(const struct sixteen *x, char *to, size_t of_layer);
/* Of a source: the exponent of the scale for elements below 2^exponent, with a sum of squares over 4^exponent. */
INLINE int scale_for(int exponent, double squares);

/* The first `count` of 16 elements, and zeros. */
INLINE struct sixteen take(const REAL *from, int count)
{
    struct sixteen x = {0};
    if (count >= EDGE)
        memcpy(&x, from, sizeof x);
    else if (count > 0)
        memcpy(&x, from, count * sizeof(REAL));
    return x;
}

/* The same times two factors of each. */
INLINE struct sixteen take_scaled(const REAL *from, int count, const struct sixteen *factors)
{
    struct sixteen x = take(from, count);
    for (int i = 0; i < PARTS; ++i)
        x.part[i] = x.part[i] * factors[0].part[i] * factors[1].part[i];
    return x;
}

INLINE void put(const struct sixteen *x, REAL *to, int count)
{
    if (count >= EDGE)
        memcpy(to, x, sizeof *x);
    else
        memcpy(to, x, count * sizeof(REAL));
}

/* The lowest bytes of four vectors of integers as words of four bytes: a byte of each vector. */
INLINE ints interleaved(const ints *vectors)
{
    return (vectors[0] & 255) | (vectors[1] & 255) << 8 | (vectors[2] & 255) << 16 | vectors[3] << 24;
}

/* 2^exponent as two factors, because it may be out of range; 0 for NOT_FINITE. */
INLINE void factors(int exponent, REAL *first, REAL *second)
{
    const BITS half = exponent / 2, one = (half + BIAS) << MANTISSA, two = (exponent - half + BIAS) << MANTISSA;
    *first = *second = 0;
    if (exponent != NOT_FINITE) {
        memcpy(first, &one, sizeof one);
        memcpy(second, &two, sizeof two);
    }
}

/* The same for 16 exponents of neighbours, or for one of all. */
INLINE void factors_of(const int *exponents, int stride, struct sixteen *to)
{
    REAL both[2][EDGE];
    for (int j = 0; j < EDGE; ++j)
        factors(exponents[j * stride], &both[0][j], &both[1][j]);
    memcpy(to, both, sizeof both);
}

/* Factors of the inverses of scales; NaN for a row or column that is not finite. */
INLINE void inverse_factors(int count, const int *scales, REAL *first, REAL *second)
{
    for (int j = 0; j < count; ++j) {
        factors(scales[j] == NOT_FINITE ? NOT_FINITE : -scales[j], &first[j], &second[j]);
        first[j] = scales[j] == NOT_FINITE ? NAN : first[j];
    }
}

/* The exponent above a magnitude that is given by its bits; these compare like magnitudes, and those of a NaN are largest. */
static int exponent_of(BITS magnitude)
{
    REAL x;
    int exponent;
    memcpy(&x, &magnitude, sizeof x);
    frexp(x, &exponent);
    return !isfinite(x) ? NOT_FINITE : x == 0 ? -BIAS : exponent;
}

/* Largest magnitudes and sums of squares. */
struct norms {
    bits most[PARTS];
    reals squares[PARTS];
};

INLINE void compare(struct norms *norms, const REAL *from, int count)
{
    const struct sixteen x = take(from, count);
    for (int i = 0; i < PARTS; ++i) {
        const bits magnitude = (bits)x.part[i] & (BITS)(~(uint64_t)0 >> (65 - 8 * sizeof(REAL)));
        const bits larger = magnitude > norms->most[i];
        norms->most[i] = (magnitude & larger) | (norms->most[i] & ~larger);
    }
}

INLINE void add_squares(struct norms *norms, const REAL *from, int count, const struct sixteen *factors)
{
    const struct sixteen x = take_scaled(from, count, factors);
    for (int i = 0; i < PARTS; ++i)
        norms->squares[i] += x.part[i] * x.part[i];
}

/* Return the exponent of the scale of a row of A. */
INLINE int scale_of_row(int k, const REAL *a)
{
    struct norms norms = {0};
    BITS most = 0, magnitudes[EDGE];
    REAL squares = 0, of[EDGE];
    for (int p = 0; p < k; p += EDGE)
        compare(&norms, a + p, k - p);
    memcpy(magnitudes, norms.most, sizeof magnitudes);
    for (int q = 0; q < EDGE; ++q)
        most = magnitudes[q] > most ? magnitudes[q] : most;
    const int exponent = exponent_of(most), down = -exponent;
    if (exponent == NOT_FINITE)
        return NOT_FINITE;
    struct sixteen scale[2];
    factors_of(&down, 0, scale);
    for (int p = 0; p < k; p += EDGE)
        add_squares(&norms, a + p, k - p, scale);
    memcpy(of, norms.squares, sizeof of);
    for (int q = 0; q < EDGE; ++q)
        squares += of[q];
    return scale_for(exponent, squares);
}

/* Find the exponents of the scales of up to STRIP columns of B. There is room for whole panels. */
INLINE void scales_of_columns(int columns, int k, const REAL *B, size_t ldb, int *scales)
{
    struct norms norms[STRIP / EDGE] = {0};
    struct sixteen scale[STRIP / EDGE][2];
    const int groups = divided_up(columns, EDGE), all = divided_up(columns, SIDE) * SIDE;
    for (int p = 0; p < k; ++p)
        for (int j = 0; j < groups; ++j)
            compare(&norms[j], B + p * ldb + j * EDGE, columns - j * EDGE);
    for (int j = 0; j < all; j += EDGE) {
        BITS magnitudes[EDGE];
        int down[EDGE];
        memcpy(magnitudes, norms[j / EDGE].most, sizeof magnitudes);
        for (int q = 0; q < EDGE; ++q) {
            scales[j + q] = exponent_of(magnitudes[q]);
            down[q] = scales[j + q] == NOT_FINITE ? NOT_FINITE : -scales[j + q];
        }
        factors_of(down, 1, scale[j / EDGE]);
    }
    for (int p = 0; p < k; ++p)
        for (int j = 0; j < groups; ++j)
            add_squares(&norms[j], B + p * ldb + j * EDGE, columns - j * EDGE, scale[j]);
    for (int j = 0; j < all; j += EDGE) {
        REAL squares[EDGE];
        memcpy(squares, norms[j / EDGE].squares, sizeof squares);
        for (int q = 0; q < EDGE; ++q)
            scales[j + q] = scales[j + q] == NOT_FINITE ? NOT_FINITE : scale_for(scales[j + q], squares[q]);
    }
}

/* Pack the layers of up to 32 rows of A. A word holds terms w, w + 16, w + 32 and w + 48 of a step, as in B. */
INLINE void layers_of_a(int rows, int k, const REAL *A, size_t lda, struct packed to, int panel, int *scales)
{
    for (int i = 0; i < SIDE; ++i) {
        const REAL *a = A + (i < rows ? i * lda : 0);
        struct sixteen scale[2] = {0};
        if (i < rows) {
            scales[i] = scale_of_row(k, a);
            factors_of(&scales[i], 0, scale);
        }
        for (int step = 0; step < to.steps; ++step) {
            struct sixteen x[GROUP];
            for (int g = 0; g < GROUP; ++g) {
                const int p = step * DEPTH + g * EDGE;
                x[g] = take_scaled(a + p, i < rows ? k - p : 0, scale);
            }
            split(x, place(to, panel, step) + i * ROW_BYTES, layer_bytes(to));
        }
    }
}

/* Pack the layers of a step of up to STRIP columns of B. */
INLINE void layers_of_b(int columns, int k, const REAL *B, size_t ldb, struct packed to, int panel, int step,
                        const int *scales)
{
    struct sixteen scale[STRIP / EDGE][2];
    const int all = divided_up(columns, SIDE) * SIDE;
    for (int j = 0; j < all; j += EDGE)
        factors_of(scales + j, 1, scale[j / EDGE]);
    for (int row = 0; row < EDGE; ++row)
        for (int j = 0; j < all; j += EDGE) {
            struct sixteen x[GROUP];
            for (int g = 0; g < GROUP; ++g) {
                const int p = step * DEPTH + g * EDGE + row;
                x[g] = take_scaled(B + (p < k ? p * ldb + j : 0), p < k ? columns - j : 0, scale[j / EDGE]);
            }
            char *tile = place(to, panel + j / SIDE, step) + j % SIDE / EDGE * TILE_BYTES;
            split(x, tile + row * ROW_BYTES, layer_bytes(to));
        }
}

/* Pack the layers of A and B, by all threads. */
INLINE void pack_layers(int m, int n, int k, const REAL *A, size_t lda, struct packed a, int *scales_a, const REAL *B,
                        size_t ldb, struct packed b, int *scales_b)
{
#pragma omp for nowait
    for (int i = 0; i < m; i += SIDE)
        layers_of_a(smaller(SIDE, m - i), k, A + i * lda, lda, a, i / SIDE, scales_a + i);
#pragma omp for
    for (int j = 0; j < n; j += STRIP)
        scales_of_columns(smaller(STRIP, n - j), k, B + j, ldb, scales_b + j);
#pragma omp for collapse(2)
    for (int step = 0; step < b.steps; ++step)
        for (int j = 0; j < n; j += STRIP)
            layers_of_b(smaller(STRIP, n - j), k, B + j, ldb, b, j / SIDE, step, scales_b + j);
}
