/* Matrix product, CPU rung for float64: products of int8 residues by AMX (Ozaki scheme II).

   What changes: as in the GPU rung ozaki_14, rows of A and columns of B are scaled and rounded to integers, and these
   are replaced by their residues modulo LAYERS small numbers, which are int8. AMX multiplies residues, exactly; the
   integers of A B follow from the residues of the sums by the Chinese remainder theorem. Each block of C passes through
   all moduli while it is in the caches.
   Why it is faster: AMX multiplies int8 about sixty times as fast as AVX-512 multiplies float64.
   Limit: the conversion to residues and back, which weighs more in small products. Elements that are much smaller than
   the norm of their row of A or column of B lose bits.
   Source: beyond the documents; Ozaki, Uchino and Imamura, "Ozaki Scheme II", 2025.

   hpcmm:
     operation: matmul
     shelf: product
     change: float64 from 14 products of int8 residues by AMX, rows and columns scaled (Ozaki scheme II)
     counterpart: packed
     dtypes: [float64]
     arithmetic: 14 int8 products
     architecture: amx */
#include "matmul/amx_layers.h"

enum { EXACT_STEPS = (1 << 16) / DEPTH }; /* whose sums are within int32 */

/* Tables by modulus; the host computes them with integers of any size. */
static const float NEGATIVE_MODULUS[] = {NEGATIVE_MODULI}, INVERSE_MODULUS[] = {INVERSE_MODULI};
static const float POWER_1[] = {POWERS_1}, POWER_2[] = {POWERS_2}, POWER_3[] = {POWERS_3}; /* of 2^DIGIT_BITS */
static const double WEIGHT_HIGH[] = {WEIGHTS_HIGH}, WEIGHT_LOW[] = {WEIGHTS_LOW};

/* By the Cauchy-Schwarz inequality, integers of A B are below half the product of the moduli, if norms are below the
   root of LIMIT. */
static int scale_for(int exponent, double squares)
{
    int most;
    frexp(LIMIT / squares, &most);
    return squares == 0 ? 0 : ((most - 1) >> 1) - exponent;
}

/* Round integers to digits, and these to residues, between minus and plus half of a modulus. The sums of digits are
   integers below 2^24, so float is exact. */
INLINE void split(int count, const REAL *given, int8_t *to, size_t stride)
{
    const double round = 3ll << 51, base = 1 << DIGIT_BITS;
    const float round_float = 3 << 22;
    float digits[4][DEPTH];
    for (int j = 0; j < count; ++j) {
        double x = given[j], power = base * base * base;
        for (int digit = 3; digit >= 0; --digit, power /= base) {
            const double multiple = (x * (1 / power) + round) - round;
            digits[digit][j] = multiple;
            x -= power * multiple;
        }
    }
    for (int l = 0; l < LAYERS; ++l, to += stride)
        for (int j = 0; j < count; ++j) {
            const float z = digits[3][j] * POWER_3[l] + (digits[2][j] * POWER_2[l] + (digits[1][j] * POWER_1[l] + digits[0][j]));
            const float quotient = (z * INVERSE_MODULUS[l] + round_float) - round_float;
            to[j] = (int)(z + quotient * NEGATIVE_MODULUS[l]);
        }
}

static _Thread_local _Alignas(64) int8_t residues[LAYERS][MC * NC]; /* of a block of C */

/* Reduce sums modulo the l-th modulus; add those of earlier terms. */
VECTORIZED static void reduce(int count, int l, bool fresh, const int *s, int8_t *to)
{
    const double modulus = -(double)NEGATIVE_MODULUS[l], inverse = 1 / modulus, round = 3ll << 51;
    for (int i = 0; i < count; ++i) {
        const double x = s[i] + (fresh ? 0. : to[i]);
        to[i] = (int)(x - modulus * ((x * inverse + round) - round));
    }
}

/* C = alpha A B + beta C from the residues of A B, by the Chinese remainder theorem. The weights are multiples of
   a power of two in WEIGHT_HIGH, so that the sum of these parts is exact, and the rest in WEIGHT_LOW. */
VECTORIZED static void write_block(int rows, int columns, double alpha, const int *scales_a, const int *scales_b,
                                   double beta, double *C, size_t ldc)
{
    const double round = 3ll << 51;
    double factors_b[2][NC];
    for (int j = 0; j < columns; ++j)
        factors(scales_b[j] == NOT_FINITE ? 0 : -scales_b[j], &factors_b[0][j], &factors_b[1][j]);
    for (int j = columns; j % EDGE; ++j)
        factors_b[0][j] = factors_b[1][j] = 0;
    for (int j = 0; j < columns; ++j)
        if (scales_b[j] == NOT_FINITE)
            factors_b[0][j] = NAN;
    for (int i = 0; i < rows; ++i) {
        double one, two;
        factors(scales_a[i] == NOT_FINITE ? 0 : -scales_a[i], &one, &two);
        if (scales_a[i] == NOT_FINITE)
            one = NAN;
        for (int j = 0; j < columns; j += EDGE) {
            const size_t at = sum_at(i, j);
            const int width = smaller(EDGE, columns - j);
            double high[EDGE] = {0}, low[EDGE] = {0}, row[EDGE] = {0};
            for (int l = 0; l < LAYERS; ++l)
                for (int q = 0; q < EDGE; ++q) {
                    high[q] += residues[l][at + q] * WEIGHT_HIGH[l];
                    low[q] += residues[l][at + q] * WEIGHT_LOW[l];
                }
            if (beta != 0)
                memcpy(row, C + i * ldc + j, width * sizeof *C);
            for (int q = 0; q < EDGE; ++q) {
                const double multiple = ((high[q] + low[q]) * (1 / PRODUCT_HIGH) + round) - round;
                const double x = (high[q] - PRODUCT_HIGH * multiple) + (low[q] - PRODUCT_LOW * multiple);
                row[q] = alpha * (x * one * factors_b[0][j + q] * two * factors_b[1][j + q]) + beta * row[q];
            }
            memcpy(C + i * ldc + j, row, width * sizeof *C);
        }
    }
}

void matmul(int m, int n, int k, double alpha, const double *A, int lda, const double *B, int ldb, double beta, double *C,
            int ldc, int threads, char *a_copy, char *b_copy, int *scales_a, int *scales_b)
{
    amx = detect_amx();
    const int steps = steps_of(k);
    const struct packed a = {a_copy, divided_up(m, SIDE), steps}, b = {b_copy, divided_up(n, SIDE), steps};
#pragma omp parallel num_threads(threads)
    {
        tiles_begin();
#pragma omp for nowait
        for (int i = 0; i < m; i += SIDE)
            layers_of_a(smaller(SIDE, m - i), k, A + (size_t)i * lda, lda, a, i / SIDE, scales_a + i);
#pragma omp for
        for (int j = 0; j < n; j += SIDE)
            layers_of_b(smaller(SIDE, n - j), k, B + j, ldb, b, j / SIDE, scales_b + j);
        int i, j, height, width;
        for (struct walk walk = walk_of(m, n); next_block(&walk, &i, &j, &height, &width);) {
            const int rows = divided_up(height, SIDE), columns = divided_up(width, SIDE);
            for (int l = 0; l < LAYERS; ++l) {
                const struct packed left = {a.bytes + l * layer_bytes(a), a.panels, steps};
                const struct packed right = {b.bytes + l * layer_bytes(b), b.panels, steps};
                for (int first = 0; first < steps; first += EXACT_STEPS) {
                    multiply_block(1, left, i / SIDE, rows, right, j / SIDE, columns, first,
                                   smaller(steps, first + EXACT_STEPS), true);
                    reduce(rows * (NC / SIDE) * SIDE * SIDE, l, first == 0, sums, residues[l]);
                }
            }
            write_block(height, width, alpha, scales_a + i, scales_b + j, beta, C + (size_t)i * ldc + j, ldc);
        }
        tiles_end();
    }
}
