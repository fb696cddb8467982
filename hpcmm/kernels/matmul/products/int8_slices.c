/* Matrix product, CPU rung for float32: three slices of int8, six products by AMX.

   What changes: a row of A and a column of B are scaled by a power of two and rounded to integers of 23 bits and a sign,
   whose three digits to the base 256 are int8. The products of digits of the orders 0, 1 and 2 are six; their sums in
   int32 are exact, and those of one order share their tiles. Products of higher orders are below the rounding of float32.
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
#include "matmul/amx_layers.h"

enum {
    EXACT_STEPS = 32768 / DEPTH, /* 3 x 2^14 x 32768 is within int32 */
    FEWEST = 32,                 /* terms of a product that is computed by slices */
};

static int scale_for(int exponent, double squares)
{
    (void)squares;
    return 22 - exponent;
}

INLINE void split(int count, const REAL *x, int8_t *to, size_t stride)
{
    int rest[DEPTH];
    for (int j = 0; j < count; ++j)
        rest[j] = x[j] + copysignf(0.5f, x[j]);
    for (int l = LAYERS - 1; l >= 0; --l)
        for (int j = 0; j < count; ++j) {
            to[l * stride + j] = rest[j];
            rest[j] = (rest[j] + 128) >> 8;
        }
}

static _Thread_local _Alignas(64) float totals[MC * NC];

VECTORIZED static void fold(int count, float weight, bool fresh, const int *s, float *t)
{
    for (int i = 0; i < count; ++i)
        t[i] = fresh ? weight * s[i] : t[i] + weight * s[i];
}

/* C = alpha t 2^-scales + beta C */
VECTORIZED static void write_block(int rows, int columns, float alpha, const float *t, const int *scales_a,
                                   const double *factors_b, float beta, float *C, size_t ldc)
{
    for (int i = 0; i < rows; ++i) {
        const double factor = scales_a[i] == NOT_FINITE ? NAN : ldexp(alpha, 32 - scales_a[i]);
        for (int j = 0; j < columns; j += EDGE) {
            const int width = smaller(EDGE, columns - j);
            float row[EDGE] = {0};
            const float *from = t + sum_at(i, j);
            if (beta != 0)
                memcpy(row, C + i * ldc + j, width * sizeof *C);
            for (int q = 0; q < EDGE; ++q)
                row[q] = from[q] * factor * factors_b[j + q] + (double)beta * row[q];
            memcpy(C + i * ldc + j, row, width * sizeof *C);
        }
    }
}

static void multiply_few(int m, int n, int k, float alpha, const float *A, size_t lda, const float *B, size_t ldb,
                         float beta, float *C, size_t ldc)
{
    for (int i = 0; i < m; ++i) {
        float *restrict c = C + i * ldc;
        for (int j = 0; j < n; ++j)
            c[j] = beta == 0 ? 0 : beta * c[j]; /* beta = 0: C is not read */
        for (int p = 0; p < k; ++p)
            for (int j = 0; j < n; ++j)
                c[j] += alpha * A[i * lda + p] * B[p * ldb + j];
    }
}

void matmul(int m, int n, int k, float alpha, const float *A, int lda, const float *B, int ldb, float beta, float *C,
            int ldc, int threads, char *a_copy, char *b_copy, int *scales_a, double *factors_b)
{
    if (k < FEWEST) {
        multiply_few(m, n, k, alpha, A, lda, B, ldb, beta, C, ldc);
        return;
    }
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
        for (int j = 0; j < n; j += SIDE) {
            int scales[SIDE];
            layers_of_b(smaller(SIDE, n - j), k, B + j, ldb, b, j / SIDE, scales);
            for (int q = 0; q < smaller(SIDE, n - j); ++q)
                factors_b[j + q] = scales[q] == NOT_FINITE ? NAN : ldexp(1, -scales[q]);
        }
        int i, j, height, width;
        for (struct walk walk = walk_of(m, n); next_block(&walk, &i, &j, &height, &width);) {
            const int rows = divided_up(height, SIDE), columns = divided_up(width, SIDE);
            for (int first = 0; first < steps; first += EXACT_STEPS)
                for (int order = LAYERS - 1; order >= 0; --order) {
                    multiply_block(order + 1, a, i / SIDE, rows, b, j / SIDE, columns, first,
                                   smaller(steps, first + EXACT_STEPS), true);
                    fold(rows * (NC / SIDE) * SIDE * SIDE, 1.f / (1 << 8 * order), first == 0 && order == LAYERS - 1, sums,
                         totals);
                }
            write_block(height, width, alpha, totals, scales_a + i, factors_b + j, beta, C + (size_t)i * ldc + j, ldc);
        }
        tiles_end();
    }
}
