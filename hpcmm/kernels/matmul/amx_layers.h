/* Matrices of float32 or float64 as layers of int8, and their product by AMX: shared by int8_slices and int8_residues.

   A row of A and a column of B are scaled by a power of two and rounded to integers. A source defines how an integer is
   divided among LAYERS layers, how large it may be, and what becomes of the sums of products of layers. */
#define SUM int
#include "matmul/amx_product.h"
#include <math.h>

#define BITS JOIN(BITS_, REAL)
#define BITS_float int32_t
#define BITS_double int64_t
enum { NOT_FINITE = INT32_MAX }; /* the exponent of a row or column with an infinity or a NaN */

/* Of a source: divide `count` integers among layers that are `stride` bytes apart. */
INLINE void split(int count, const REAL *x, int8_t *to, size_t stride);
/* Of a source: the exponent of the scale for elements below 2^exponent, with a sum of squares over 4^exponent. */
static int scale_for(int exponent, double squares);

/* Copy elements times a power of two, and zeros behind them. */
INLINE void load(int size, const REAL *from, int count, const REAL *first, const REAL *second, int stride, REAL *x)
{
    if (count < size)
        memset(x, 0, size * sizeof *x);
    if (count > 0)
        memcpy(x, from, (count < size ? count : size) * sizeof *x);
    for (int j = 0; j < size; ++j)
        x[j] = x[j] * first[j * stride] * second[j * stride];
}

/* 2^exponent as two factors, because it may be out of range. */
INLINE void factors(int exponent, REAL *first, REAL *second)
{
    *first = ldexp(1, exponent / 2), *second = ldexp(1, exponent - exponent / 2);
}

/* The exponent above a magnitude that is given by its bits; these compare like magnitudes, and those of a NaN are largest. */
static int exponent_of(BITS bits)
{
    REAL x;
    int exponent;
    memcpy(&x, &bits, sizeof x);
    frexp(x, &exponent);
    return !isfinite(x) ? NOT_FINITE : x == 0 ? -1100 : exponent;
}

/* Return the exponents of the scales of `size` rows that are interleaved: element p of row j is at x[p * ld + j]. */
INLINE void scales_of(int size, int k, const REAL *x, size_t ld, int count, int *scales)
{
    BITS most[SIDE] = {0};
    REAL squares[SIDE] = {0}, first[SIDE], second[SIDE], row[SIDE];
    const REAL one[1] = {1};
    for (int p = 0; p < k; ++p) {
        BITS bits[SIDE];
        load(size, x + p * ld, count, one, one, 0, row);
        memcpy(bits, row, size * sizeof *row);
        for (int j = 0; j < size; ++j) {
            bits[j] &= (BITS)(~(uint64_t)0 >> (65 - 8 * sizeof(REAL)));
            most[j] = bits[j] > most[j] ? bits[j] : most[j];
        }
    }
    for (int j = 0; j < size; ++j) {
        scales[j] = exponent_of(most[j]);
        factors(scales[j] == NOT_FINITE ? 0 : -scales[j], &first[j], &second[j]);
    }
    for (int p = 0; p < k; ++p) {
        load(size, x + p * ld, count, first, second, 1, row);
        for (int j = 0; j < size; ++j)
            squares[j] += row[j] * row[j];
    }
    for (int j = 0; j < size; ++j)
        scales[j] = scales[j] == NOT_FINITE ? NOT_FINITE : scale_for(scales[j], squares[j]);
}

/* Pack the layers of up to 32 columns of B. */
VECTORIZED static void layers_of_b(int columns, int k, const REAL *B, size_t ldb, struct packed to, int panel,
                                    int *scales)
{
    REAL first[SIDE], second[SIDE], x[SIDE];
    scales_of(SIDE, k, B, ldb, columns, scales);
    for (int j = 0; j < SIDE; ++j)
        factors(scales[j] == NOT_FINITE ? 0 : scales[j], &first[j], &second[j]);
    for (int p = 0; p < to.steps * DEPTH; p += GROUP) {
        int8_t rows[LAYERS][GROUP][SIDE];
        for (int g = 0; g < GROUP; ++g) {
            load(SIDE, B + (p + g) * ldb, p + g < k ? columns : 0, first, second, 1, x);
            split(SIDE, x, rows[0][g], sizeof rows[0]);
        }
        char *tile = place(to, panel, p / DEPTH) + p % DEPTH / GROUP * ROW_BYTES;
        for (int l = 0; l < LAYERS; ++l, tile += layer_bytes(to))
            for (int half = 0; half < 2; ++half)
                interleave(rows[l][0] + half * EDGE, SIDE, (int8_t *)tile + half * TILE_BYTES);
    }
}

/* Pack the layers of up to 32 rows of A. */
VECTORIZED static void layers_of_a(int rows, int k, const REAL *A, size_t lda, struct packed to, int panel, int *scales)
{
    for (int i = 0; i < SIDE; ++i) {
        const REAL *a = A + i * lda;
        REAL first = 0, second = 0, x[DEPTH];
        if (i < rows) {
            BITS most = 0;
            REAL squares[EDGE] = {0};
            for (int p = 0; p < k; ++p) {
                BITS bits;
                memcpy(&bits, a + p, sizeof bits);
                bits &= (BITS)(~(uint64_t)0 >> (65 - 8 * sizeof(REAL)));
                most = bits > most ? bits : most;
            }
            const int exponent = exponent_of(most);
            factors(exponent == NOT_FINITE ? 0 : -exponent, &first, &second);
            for (int p = 0; p < k; p += EDGE) {
                load(EDGE, a + p, k - p, &first, &second, 0, x);
                for (int q = 0; q < EDGE; ++q)
                    squares[q] += x[q] * x[q];
            }
            for (int q = 1; q < EDGE; ++q)
                squares[0] += squares[q];
            scales[i] = exponent == NOT_FINITE ? NOT_FINITE : scale_for(exponent, squares[0]);
            factors(scales[i] == NOT_FINITE ? 0 : scales[i], &first, &second);
        }
        for (int step = 0; step < to.steps; ++step) {
            load(DEPTH, a + step * DEPTH, i < rows ? k - step * DEPTH : 0, &first, &second, 0, x);
            split(DEPTH, x, (int8_t *)place(to, panel, step) + i * ROW_BYTES, layer_bytes(to));
        }
    }
}
