/* Sums that verify a matrix product: of rows and of columns with weights, and of some rows of the product.

   The sums are in a wider type than the elements, so that their own rounding does not count. Every sum is added up by
   one thread in the order of its terms, so that it does not depend on the number of threads. Matrices are row-major with
   a leading dimension, except for b, which may also be column-major. Only blocks of them are copied. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
    GROUP = 4,          /* sums that are added up at the same time: one addition takes several clocks */
    WIDTH = 64,         /* columns of a block: several cache lines of each row, which the processor prefetches */
    HEIGHT = 64,        /* rows of a block, so that it stays in the L1 cache */
    PITCH = HEIGHT + 8, /* between its columns; a power of two would use few sets of the cache */
};

static inline float bits_of_float(uint32_t bits)
{
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

/* bfloat16 is the upper half of a float. */
static inline float bfloat16_of(uint16_t bits)
{
    return bits_of_float((uint32_t)bits << 16);
}

/* float16 has 5 bits of exponent with a bias of 15, float has 8 with 127; the product also normalises subnormals. */
static inline float float16_of(uint16_t bits)
{
    const uint32_t rest = (uint32_t)(bits & 0x7fff) << 13;
    const int sign = bits & 0x8000, special = (bits & 0x7c00) == 0x7c00; /* infinity or NaN */
    const float number = special ? bits_of_float(0x7f800000 | rest) : bits_of_float(rest) * 0x1p112f;
    return sign ? -number : number;
}

/* e4m3 has 4 bits of exponent with a bias of 7, and no infinity: only the largest exponent and fraction are NaN. */
static inline float float8_e4m3_of(uint8_t bits)
{
    const uint32_t rest = (uint32_t)(bits & 0x7f) << 20;
    const float number = (bits & 0x7f) == 0x7f ? bits_of_float(0x7fc00000) : bits_of_float(rest) * 0x1p120f;
    return bits & 0x80 ? -number : number;
}

static inline double same(double number)
{
    return number;
}

static inline size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Defines three functions of elements T, which NUMBER converts, with sums in W.

   row_sums:    sums[i][s] = sum over j of x[i][j] weights[j][s], or with the squares of x; s < GROUP
   column_sums: sums[j][s] = sum over i of x[i][j] weights[i][s], likewise
   products:    products[j][r] = sum over t of a[t][r] b[t][j], and the sums of the magnitudes and of the squares of the
                terms; a and the results are contiguous, and the number of r is a multiple of GROUP */
#define DEFINE(NAME, T, W, NUMBER)                                                                                     \
    void row_sums_##NAME(const T *x, size_t rows, size_t columns, size_t ld, const W *weights, int square, W *sums,    \
                         int threads)                                                                                  \
    {                                                                                                                  \
        _Pragma("omp parallel for num_threads(threads) schedule(static)")                                              \
        for (size_t i = 0; i < rows; i++) {                                                                            \
            W sum[GROUP] = {0};                                                                                        \
            for (size_t j = 0; j < columns; j++) {                                                                     \
                const W number = NUMBER(x[i * ld + j]), term = square ? number * number : number;                      \
                for (int s = 0; s < GROUP; s++)                                                                        \
                    sum[s] += term * weights[j * GROUP + s];                                                           \
            }                                                                                                          \
            for (int s = 0; s < GROUP; s++)                                                                            \
                sums[i * GROUP + s] = sum[s];                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
                                                                                                                       \
    /* Copies the elements of a block as numbers; columns become contiguous. `down` and `along` are the distances of   \
       neighbours in a column and in a row. */                                                                         \
    static void read_##NAME(const T *x, size_t rows, size_t columns, size_t down, size_t along,                        \
                            double block[WIDTH][PITCH])                                                                \
    {                                                                                                                  \
        for (size_t i = 0; i < rows; i++)                                                                              \
            for (size_t j = 0; j < columns; j++)                                                                       \
                block[j][i] = NUMBER(x[i * down + j * along]);                                                         \
    }                                                                                                                  \
                                                                                                                       \
    void column_sums_##NAME(const T *x, size_t rows, size_t columns, size_t ld, const W *weights, int square, W *sums, \
                            int threads)                                                                               \
    {                                                                                                                  \
        memset(sums, 0, columns * GROUP * sizeof *sums);                                                               \
        _Pragma("omp parallel for num_threads(threads) schedule(static)")                                              \
        for (size_t left = 0; left < columns; left += WIDTH) {                                                         \
            double block[WIDTH][PITCH];                                                                                \
            const size_t width = least(WIDTH, columns - left);                                                         \
            for (size_t top = 0; top < rows; top += HEIGHT) {                                                          \
                const size_t height = least(HEIGHT, rows - top);                                                       \
                read_##NAME(x + top * ld + left, height, width, ld, 1, block);                                         \
                for (size_t j = 0; j < width; j++) {                                                                   \
                    W sum[GROUP], *target = sums + (left + j) * GROUP;                                                 \
                    memcpy(sum, target, sizeof sum);                                                                   \
                    for (size_t i = 0; i < height; i++) {                                                              \
                        const W number = block[j][i], term = square ? number * number : number;                        \
                        for (int s = 0; s < GROUP; s++)                                                                \
                            sum[s] += term * weights[(top + i) * GROUP + s];                                           \
                    }                                                                                                  \
                    memcpy(target, sum, sizeof sum);                                                                   \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
                                                                                                                       \
    void products_##NAME(const double *a, const T *b, size_t rows, size_t terms, size_t columns, size_t down,          \
                         size_t along, W *products, double *magnitudes, double *squares, int threads)                  \
    {                                                                                                                  \
        memset(products, 0, columns * rows * sizeof *products);                                                        \
        memset(magnitudes, 0, columns * rows * sizeof *magnitudes);                                                    \
        memset(squares, 0, columns * rows * sizeof *squares);                                                          \
        _Pragma("omp parallel for num_threads(threads) schedule(static)")                                              \
        for (size_t left = 0; left < columns; left += WIDTH) {                                                         \
            double block[WIDTH][PITCH];                                                                                \
            const size_t width = least(WIDTH, columns - left);                                                         \
            for (size_t top = 0; top < terms; top += HEIGHT) {                                                         \
                const size_t height = least(HEIGHT, terms - top);                                                      \
                read_##NAME(b + top * down + left * along, height, width, down, along, block);                         \
                for (size_t j = 0; j < width; j++)                                                                     \
                    for (size_t r = 0; r < rows; r += GROUP) {                                                         \
                        const size_t target = (left + j) * rows + r;                                                   \
                        W sum[GROUP];                                                                                  \
                        double magnitude[GROUP], square[GROUP];                                                        \
                        memcpy(sum, products + target, sizeof sum);                                                    \
                        memcpy(magnitude, magnitudes + target, sizeof magnitude);                                      \
                        memcpy(square, squares + target, sizeof square);                                               \
                        for (size_t t = 0; t < height; t++) {                                                          \
                            const double number = block[j][t], *factors = a + (top + t) * rows + r;                    \
                            for (int s = 0; s < GROUP; s++) {                                                          \
                                const double term = factors[s] * number;                                               \
                                sum[s] += (W)factors[s] * number;                                                      \
                                magnitude[s] += fabs(term);                                                            \
                                square[s] += term * term;                                                              \
                            }                                                                                          \
                        }                                                                                              \
                        memcpy(products + target, sum, sizeof sum);                                                    \
                        memcpy(magnitudes + target, magnitude, sizeof magnitude);                                      \
                        memcpy(squares + target, square, sizeof square);                                               \
                    }                                                                                                  \
            }                                                                                                          \
        }                                                                                                              \
    }

DEFINE(int8, int8_t, double, same)
DEFINE(float8_e4m3, uint8_t, double, float8_e4m3_of)
DEFINE(int32, int32_t, double, same)
DEFINE(float16, uint16_t, double, float16_of)
DEFINE(bfloat16, uint16_t, double, bfloat16_of)
DEFINE(float32, float, double, same)
DEFINE(float64, double, long double, same)
