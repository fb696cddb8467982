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

typedef double doubles __attribute__((vector_size(64)));
typedef float half_floats __attribute__((vector_size(32)));
typedef int32_t half_ints __attribute__((vector_size(32)));

/* By the Cauchy-Schwarz inequality, integers of A B are below half the product of the moduli, if norms are below the
   root of LIMIT. */
INLINE int scale_for(int exponent, double squares)
{
    int most;
    frexp(LIMIT / squares, &most);
    return squares == 0 ? 0 : ((most - 1) >> 1) - exponent;
}

/* Return the residues of integers below 2^24, between minus and plus half of the l-th modulus. */
INLINE ints residue(const floats *z, int l)
{
    const float round = 3 << 22;
    const floats quotient = (*z * INVERSE_MODULUS[l] + round) - round;
    return __builtin_convertvector(*z + quotient * NEGATIVE_MODULUS[l], ints);
}

/* Digits of integers, from the lowest to the highest. */
INLINE void digits_of(const struct sixteen *x, floats *digits)
{
    const double round = 3ll << 51, base = 1 << DIGIT_BITS;
    for (int part = 0; part < PARTS; ++part) {
        double power = base * base * base;
        doubles rest = x->part[part];
        for (int digit = 3; digit >= 0; --digit, power /= base) {
            const doubles multiple = (rest * (1 / power) + round) - round;
            const half_floats narrow = __builtin_convertvector(multiple, half_floats);
            memcpy((char *)&digits[digit] + part * sizeof narrow, &narrow, sizeof narrow);
            rest -= power * multiple;
        }
    }
}

/* Round integers to digits, and these to residues. The sums of digits are integers below 2^24, so float is exact. */
INLINE void split(const struct sixteen *x, char *to, size_t of_layer)
{
    floats digits[GROUP][4];
    for (int g = 0; g < GROUP; ++g)
        digits_of(&x[g], digits[g]);
    for (int l = 0; l < LAYERS; ++l, to += of_layer) {
        ints residues[GROUP];
        for (int g = 0; g < GROUP; ++g) {
            const floats z = digits[g][3] * POWER_3[l] +
                             (digits[g][2] * POWER_2[l] + (digits[g][1] * POWER_1[l] + digits[g][0]));
            residues[g] = residue(&z, l);
        }
        const ints words = interleaved(residues);
        memcpy(to, &words, sizeof words);
    }
}

/* Residues of a block of C: four rows of a tile of sums are 16 words, a byte of each row. */
static _Thread_local _Alignas(64) ints residues[LAYERS][MC * NC / 4 / EDGE];

/* The residues of a row of words, with their signs. */
INLINE ints row_of(const ints *words, int row)
{
    return *words << (24 - 8 * row) >> 24;
}

/* Reduce sums modulo the l-th modulus, and add the residues of earlier terms. A sum is 2^16 high + low. With the residue
   of 2^16 in its place, it is an integer below 2^23, which float holds exactly. */
INLINE void reduce(int tiles, int l, bool fresh, const int *s)
{
    const float modulus = -NEGATIVE_MODULUS[l];
    const int remainder = (1 << 16) % (int)modulus;
    const float power = remainder > modulus / 2 ? remainder - modulus : remainder;
    ints *words = residues[l];
    for (ints *end = words + tiles * EDGE / 4; words < end; ++words) {
        ints result[4];
        for (int row = 0; row < 4; ++row, s += EDGE) {
            ints x;
            memcpy(&x, s, sizeof x);
            floats z = __builtin_convertvector(x >> 16, floats) * power + __builtin_convertvector(x & 0xffff, floats);
            if (!fresh)
                z += __builtin_convertvector(row_of(words, row), floats);
            result[row] = residue(&z, l);
        }
        *words = interleaved(result);
    }
}

/* C = alpha A B + beta C from the residues of A B, by the Chinese remainder theorem. The weights are multiples of
   a power of two in WEIGHT_HIGH, so that the sum of these parts is exact, and the rest in WEIGHT_LOW. */
INLINE void write_block(int rows, int columns, double alpha, const int *scales_a, const int *scales_b, double beta,
                        double *C, size_t ldc)
{
    const double round = 3ll << 51;
    double factors_a[2][MC], factors_b[2][NC];
    inverse_factors(rows, scales_a, factors_a[0], factors_a[1]);
    inverse_factors(columns, scales_b, factors_b[0], factors_b[1]);
    for (int i = 0; i < rows; i += 4)
        for (int j = 0; j < columns; j += EDGE) {
            const ints *words = residues[0] + sum_at(i, j) / 4 / EDGE;
            doubles high[4][PARTS] = {0}, low[4][PARTS] = {0};
            for (int l = 0; l < LAYERS; ++l, words += sizeof *residues / sizeof *words)
#pragma GCC unroll 4
                for (int row = 0; row < 4; ++row) {
                    const ints whole = row_of(words, row);
                    half_ints half[PARTS];
                    memcpy(half, &whole, sizeof half);
#pragma GCC unroll 2
                    for (int part = 0; part < PARTS; ++part) {
                        const doubles residue = __builtin_convertvector(half[part], doubles);
                        high[row][part] += residue * WEIGHT_HIGH[l];
                        low[row][part] += residue * WEIGHT_LOW[l];
                    }
                }
            for (int row = 0; row < smaller(4, rows - i); ++row) {
                double *c = C + (i + row) * ldc + j;
                const int width = smaller(EDGE, columns - j);
                struct sixteen x = take(c, beta != 0 ? width : 0);
                for (int part = 0; part < PARTS; ++part) {
                    const doubles multiple = ((high[row][part] + low[row][part]) * (1 / PRODUCT_HIGH) + round) - round;
                    doubles sum = (high[row][part] - PRODUCT_HIGH * multiple) + (low[row][part] - PRODUCT_LOW * multiple);
                    for (int f = 0; f < 2; ++f) {
                        doubles factor;
                        memcpy(&factor, factors_b[f] + j + part * sizeof factor / sizeof(double), sizeof factor);
                        sum = sum * factors_a[f][i + row] * factor;
                    }
                    x.part[part] = alpha * sum + beta * x.part[part];
                }
                put(&x, c, width);
            }
        }
}

INLINE void part_of_thread PARAMETERS
{
    const int steps = steps_of(k);
    const struct packed a = {a_copy, divided_up(m, SIDE), steps}, b = {b_copy, divided_up(n, SIDE), steps};
    tiles_begin();
    pack_layers(m, n, k, A, lda, a, scales_a, B, ldb, b, scales_b);
    int i, j, height, width;
    for (struct walk walk = walk_of(m, n); next_block(&walk, &i, &j, &height, &width);) {
        const int rows = divided_up(height, SIDE), columns = divided_up(width, SIDE);
        for (int l = 0; l < LAYERS; ++l) {
            const struct packed left = {a.bytes + l * layer_bytes(a), a.panels, steps};
            const struct packed right = {b.bytes + l * layer_bytes(b), b.panels, steps};
            for (int first = 0; first < steps; first += EXACT_STEPS) {
                multiply_block(left, i / SIDE, rows, right, j / SIDE, columns, first,
                               smaller(steps, first + EXACT_STEPS), true);
                reduce(rows * (NC / SIDE) * 4, l, first == 0, sums[0]);
            }
        }
        write_block(height, width, alpha, scales_a + i, scales_b + j, beta, C + (size_t)i * ldc + j, ldc);
    }
    tiles_end();
}

DEFINE_MATMUL(threads)
