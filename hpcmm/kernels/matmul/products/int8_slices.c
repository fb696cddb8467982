/* Matrix product, CPU rung for float32: three slices of int8, six products by AMX.

   What changes: a row of A and a column of B are scaled by a power of two and rounded to integers of 23 bits and a sign,
   whose three digits to the base 256 are int8. The products of digits of the orders 0, 1 and 2 are six; their sums in
   int32 are exact, and those of one order share their tiles. Products of higher orders are below the rounding of
   float32. All orders of a pair of panels follow each other, so that each panel is loaded once.
   Why it is faster: AMX multiplies int8 about thirty times as fast as AVX-512 multiplies float32.
   Limit: elements that are much smaller than the largest one of their row of A or column of B lose bits. Products of few
   terms are computed in float32: a bound of their errors would be relative to such elements.
   Source: beyond the documents; Ootomo, Ozaki and Yokota, "DGEMM on integer matrix multiplication unit", 2024.

   hpcmm:
     operation: matmul
     shelf: product
     change: float32 from six int8 products of three slices by AMX, rows and columns scaled
     counterpart: packed
     dtypes: [float32]
     arithmetic: six int8 products of three slices
     architecture: amx */
enum { LAYERS = 3 };
#define ORDERS LAYERS
#define KC 6 /* all layers of a slice of a panel of B, 36 KiB, stay in L1 */
#define MC 128
#define NC 256
#include "matmul/amx_layers.h"

enum {
    EXACT_STEPS = 32768 / DEPTH, /* 3 x 2^14 x 32768 is within int32 */
    FEWEST = 32,                 /* terms of a product that is computed by slices */
};

INLINE int scale_for(int exponent, double squares)
{
    (void)squares;
    return 22 - exponent;
}

/* Round to integers, and take their balanced digits to the base 256, from the highest to the lowest. */
INLINE void split(const struct sixteen *x, char *to, size_t of_layer)
{
    const float magic = 3 << 22; /* a sum of it and x has the integer in its lowest bits */
    const int32_t bits_of_magic = 0x4b400000, halves = 0x808080;
    ints digits[GROUP];
    for (int g = 0; g < GROUP; ++g)
        digits[g] = (((ints)(x[g].part[0] + magic) - bits_of_magic) + halves) ^ halves;
    for (int l = LAYERS - 1; l >= 0; --l) {
        const ints words = interleaved(digits);
        memcpy(to + l * of_layer, &words, sizeof words);
        for (int g = 0; g < GROUP; ++g)
            digits[g] >>= 8;
    }
}

/* C = alpha s 2^-scales + beta C, with sums s of three orders of digits, and 2^scales_b as its inverse, factors_b. */
INLINE void write_block(int rows, int columns, float alpha, const int *scales_a, const double *factors_b, float beta,
                        float *C, size_t ldc)
{
    for (int i = 0; i < rows; ++i) {
        const double factor = scales_a[i] == NOT_FINITE ? NAN : ldexp(alpha, 32 - scales_a[i]);
        for (int j = 0; j < columns; j += EDGE) {
            const int width = smaller(EDGE, columns - j);
            const size_t at = sum_at(i, j);
            float row[EDGE] = {0};
            if (beta != 0)
                memcpy(row, C + i * ldc + j, width * sizeof *C);
            for (int q = 0; q < EDGE; ++q) {
                const float low = sums[2][at + q] * 0x1p-16f + sums[1][at + q] * 0x1p-8f;
                row[q] = (low + sums[0][at + q]) * factor * factors_b[j + q] + (double)beta * row[q];
            }
            memcpy(C + i * ldc + j, row, width * sizeof *C);
        }
    }
}

INLINE void multiply_few(int m, int n, int k, float alpha, const float *A, size_t lda, const float *B, size_t ldb,
                         float beta, float *C, size_t ldc)
{
#pragma omp for
    for (int i = 0; i < m; ++i) {
        float *restrict c = C + i * ldc;
        for (int j = 0; j < n; ++j)
            c[j] = beta == 0 ? 0 : beta * c[j]; /* beta = 0: C is not read */
        for (int p = 0; p < k; ++p)
            for (int j = 0; j < n; ++j)
                c[j] += alpha * A[i * lda + p] * B[p * ldb + j];
    }
}

INLINE void part_of_thread PARAMETERS
{
    if (k < FEWEST) {
        multiply_few(m, n, k, alpha, A, lda, B, ldb, beta, C, ldc);
        return;
    }
    const int steps = steps_of(k);
    const struct packed a = {a_copy, divided_up(m, SIDE), steps}, b = {b_copy, divided_up(n, SIDE), steps};
    tiles_begin();
    pack_layers(m, n, k, A, lda, a, scales_a, B, ldb, b, scales_b);
    int i, j, height, width;
    for (struct walk walk = walk_of(m, n); next_block(&walk, &i, &j, &height, &width);) {
        double factors_b[NC] = {0};
        for (int q = 0; q < width; ++q)
            factors_b[q] = scales_b[j + q] == NOT_FINITE ? NAN : ldexp(1, -scales_b[j + q]);
        for (int first = 0; first < steps; first += EXACT_STEPS) {
            multiply_block(a, i / SIDE, divided_up(height, SIDE), b, j / SIDE, divided_up(width, SIDE), first,
                           smaller(steps, first + EXACT_STEPS), true);
            write_block(height, width, alpha, scales_a + i, factors_b, first ? 1 : beta, C + (size_t)i * ldc + j, ldc);
        }
    }
    tiles_end();
}

DEFINE_MATMUL(threads)
