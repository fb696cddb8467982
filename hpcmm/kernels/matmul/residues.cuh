// float64 matrices as integers modulo small numbers, and back: the kernels before and after the int8 products of
// ozaki_14.
//
// A row of A and a column of B are scaled by a power of two and rounded to integers. An integer of up to 59 bits is
// represented by its residues modulo MODULI, each of them an int8. The integers of A B are below half the product P of
// MODULI in magnitude, so they follow from their residues by the Chinese remainder theorem. Layers of residues, one per
// modulus, follow each other in memory.
//
// Order of elements: within groups of 128, neighbouring lanes read neighbouring elements, and each lane writes the
// residues of its four elements as one word. So byte 4 i + e of a group belongs to element i + 32 e.
#ifndef RESIDUES_CUH
#define RESIDUES_CUH

#include "ptx.cuh"

constexpr int GROUP = 128, WARPS = 8;  // elements of a group; warps of a block
constexpr int NOT_FINITE = 0x7fffffff;  // the exponent of a row or column with an infinity or a NaN

// Tables by modulus; the host computes them with integers of any size.
__constant__ const float NEGATIVE_MODULUS[] = {NEGATIVE_MODULI}, INVERSE_MODULUS[] = {INVERSE_MODULI};
__constant__ const float POWER_1[] = {POWERS_1}, POWER_2[] = {POWERS_2}, POWER_3[] = {POWERS_3};  // of 2^DIGIT_BITS
__constant__ const double WEIGHT_HIGH[] = {WEIGHTS_HIGH}, WEIGHT_LOW[] = {WEIGHTS_LOW};

// ---- scaling ----

// The sum of squares of elements, over 4^exponent, with the largest exponent of them: it neither overflows nor
// underflows. It is up to 2^-10 too small, because elements have 20 bits here and the sum is a float.
struct Norm {
    int exponent = -4096;  // biased as in a double; below any other
    float sum = 0;

    // 4^difference, or 0 below the range of a float
    static __device__ float power_of_4(int difference)
    {
        return __uint_as_float((unsigned)max(127 + 2 * difference, 0) << 23);
    }

    // Add an element, given by its words.
    __device__ void add(int2 words)
    {
        int shifted = 0;
        if ((words.y & 0x7ff00000) == 0) {  // a subnormal number, or 0
            const double normal = __hiloint2double(words.y, words.x) * (1ll << 54);
            words.y = __double2hiint(normal);
            shifted = 54;
        }
        const int its = (words.y >> 20 & 0x7ff) - shifted;
        if (its > exponent) {
            sum *= power_of_4(exponent - its);
            exponent = its;
        }
        const float mantissa = __uint_as_float(127u << 23 | (unsigned)(words.y & 0xfffff) << 3);
        sum += mantissa * mantissa * power_of_4(its - exponent);
    }

    __device__ void add(const Norm &other)
    {
        const int larger = max(exponent, other.exponent);
        sum = sum * power_of_4(exponent - larger) + other.sum * power_of_4(other.exponent - larger);
        exponent = larger;
    }

    // Return s such that the elements times 2^s have a norm of at most the root of LIMIT, which is a bit less than P / 2:
    // by the Cauchy-Schwarz inequality, the integers of A B are then below P / 2.
    __device__ int scale() const
    {
        if (exponent == 0x7ff)
            return NOT_FINITE;
        const int log = (int)(__float_as_uint(LIMIT / sum) >> 23) - 127;
        return (log >> 1) - (exponent - 1023);
    }
};

// scales[j] of the columns of B. A block has 32 columns, and each of its 32 warps every 32nd row.
extern "C" __global__ void scale_columns(int n, int k, const double *B, int ldb, int *scales)
{
    __shared__ int exponents[32][32];
    __shared__ float sums[32][32];
    const int x = threadIdx.x, y = threadIdx.y, column = blockIdx.x * 32 + x;
    Norm norm;
    if (column < n) {
#pragma unroll 8
        for (int p = y; p < k; p += 32)
            norm.add(*(const int2 *)(B + (size_t)p * ldb + column));
    }
    exponents[y][x] = norm.exponent;
    sums[y][x] = norm.sum;
    __syncthreads();
    if (y == 0 && column < n) {
        for (int i = 1; i < 32; ++i)
            norm.add(Norm{exponents[i][x], sums[i][x]});
        scales[column] = norm.scale();
    }
}

// 2^s in two factors: 2^s alone may be out of range.
struct Scaling {
    double first, second;

    __device__ explicit Scaling(int s) : first(ldexp(1.0, s / 2)), second(ldexp(1.0, s - s / 2)) {}
    __device__ double operator()(double x) const { return x * first * second; }
};

// ---- residues ----

// Four integers in digits of DIGIT_BITS bits with signs.
struct Digits {
    float of[4][4];  // [digit][integer]

    // Round x to an integer; take its digits.
    __device__ void set(int e, double x)
    {
        constexpr double ROUND = 3ll << 51;  // x + ROUND is rounded to an integer
        constexpr double BASE = 1ll << DIGIT_BITS;
        double power = BASE * BASE * BASE;
#pragma unroll
        for (int digit = 3; digit >= 0; --digit, power /= BASE) {
            const double multiple = fma(x, 1 / power, ROUND) - ROUND;
            of[digit][e] = (float)multiple;
            x = fma(-power, multiple, x);
        }
    }

    // Return the residues modulo the l-th modulus, between minus and plus half of it, as the bytes of a word. All
    // numbers are integers below 2^24, so float is exact.
    __device__ unsigned residues(int l) const
    {
        constexpr float ROUND = 3 << 22;
        unsigned bytes[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            const float z = fmaf(of[3][e], POWER_3[l], fmaf(of[2][e], POWER_2[l], fmaf(of[1][e], POWER_1[l], of[0][e])));
            const float quotient = fmaf(z, INVERSE_MODULUS[l], ROUND) - ROUND;
            bytes[e] = __float_as_uint(fmaf(quotient, NEGATIVE_MODULUS[l], z) + ROUND);  // its last byte
        }
        return prmt_b32(prmt_b32(bytes[0], bytes[1], 0x0040), prmt_b32(bytes[2], bytes[3], 0x0040), 0x5410);
    }
};

// scales[i] of the rows of A, and layers[l][i][p] with `depth` elements per row: k rounded up to whole groups. A block has
// a row. It reads the row twice, the second time from a cache.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
    split_rows(int m, int k, int depth, const double *A, int lda, int *scales, unsigned *layers)
{
    __shared__ int exponents[WARPS];
    __shared__ float sums[WARPS];
    const int row = blockIdx.x, warp = threadIdx.y, lane = threadIdx.x;
    const double *const a = A + (size_t)row * lda;
    Norm norm;
#pragma unroll 4
    for (int p = warp * 32 + lane; p < k; p += WARPS * 32)
        norm.add(*(const int2 *)(a + p));
    for (int lanes = 16; lanes > 0; lanes /= 2) {
        const int exponent = __shfl_xor_sync(~0u, norm.exponent, lanes);
        norm.add(Norm{exponent, __shfl_xor_sync(~0u, norm.sum, lanes)});
    }
    if (lane == 0) {
        exponents[warp] = norm.exponent;
        sums[warp] = norm.sum;
    }
    __syncthreads();
    norm = Norm{exponents[0], sums[0]};
    for (int i = 1; i < WARPS; ++i)
        norm.add(Norm{exponents[i], sums[i]});
    if (warp == 0 && lane == 0)
        scales[row] = norm.scale();

    const Scaling scaling(norm.scale());
    for (int first = warp * GROUP; first < depth; first += WARPS * GROUP) {
        Digits digits;
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            const int p = first + lane + 32 * e;
            digits.set(e, p < k ? scaling(a[p]) : 0);
        }
        unsigned *const word = layers + ((size_t)row * depth + first) / 4 + lane;
#pragma unroll
        for (int l = 0; l < LAYERS; ++l)
            word[(size_t)l * m * depth / 4] = digits.residues(l);
    }
}

// Return the row of a layer of B that holds a column of B. An accumulator of wgmma then has four neighbouring bytes of
// a layer of C.
__device__ inline int row_of_column(int column)
{
    const int i = column % 32, e = column % GROUP / 32;
    return column / GROUP * GROUP + i / 4 * 16 + e / 2 * 8 + i % 4 * 2 + e % 2;
}

// layers[l][row_of_column(j)][p] of B, with `columns` rows of `depth` elements: n and k rounded up to whole groups. A
// block has 32 columns of B in a group of k.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
    split_columns(int n, int k, int columns, int depth, const double *B, int ldb, const int *scales, unsigned *layers)
{
    __shared__ double tile[GROUP][33];  // padded against bank conflicts
    const int first = blockIdx.y * GROUP, first_column = blockIdx.x * 32, lane = threadIdx.x;
    const int column = first_column + lane;
    const Scaling scaling(column < n ? scales[column] : 0);
    for (int p = threadIdx.y; p < GROUP; p += WARPS) {
        const bool inside = first + p < k && column < n;
        tile[p][lane] = inside ? scaling(B[(size_t)(first + p) * ldb + column]) : 0;
    }
    __syncthreads();
    for (int y = threadIdx.y; y < 32; y += WARPS) {
        Digits digits;
#pragma unroll
        for (int e = 0; e < 4; ++e)
            digits.set(e, tile[lane + 32 * e][y]);
        unsigned *const word = layers + ((size_t)row_of_column(first_column + y) * depth + first) / 4 + lane;
#pragma unroll
        for (int l = 0; l < LAYERS; ++l)
            word[(size_t)l * columns * depth / 4] = digits.residues(l);
    }
}

// ---- recombination ----

// C = alpha A B + beta C from layers[l][i][j] of A B, with `rows` rows of `columns` elements, which are residues from 0
// to the modulus. A block has WARPS groups of a row.
//
// A B is the sum of residues times weights, modulo P. The weights are multiples of 2^GRID_BITS in WEIGHT_HIGH, so that
// the sum of these parts is exact, and the rest in WEIGHT_LOW. P is split likewise.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
    recombine(int n, int rows, int columns, double alpha, const unsigned *layers, const int *scales_a,
              const int *scales_b, double beta, double *C, int ldc)
{
    const int row = blockIdx.x, first = (blockIdx.y * WARPS + threadIdx.y) * GROUP, lane = threadIdx.x;
    if (first >= n)
        return;
    const unsigned *const word = layers + ((size_t)row * columns + first) / 4 + lane;
    double high[4] = {}, low[4] = {};
#pragma unroll
    for (int l = 0; l < LAYERS; ++l) {
        const unsigned residues = word[(size_t)l * rows * columns / 4];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            // the number 2^52 + residue, by its words: faster than a conversion
            const double residue = __hiloint2double(0x43300000, residues >> 8 * e & 0xff) - 0x1p52;
            high[e] = fma(residue, WEIGHT_HIGH[l], high[e]);
            low[e] = fma(residue, WEIGHT_LOW[l], low[e]);
        }
    }
    const int scale_a = scales_a[row];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
        const int column = first + lane + 32 * e;
        if (column >= n)
            continue;
        constexpr double ROUND = 3ll << 51;
        const double multiple = fma(high[e] + low[e], 1 / PRODUCT_HIGH, ROUND) - ROUND;
        double x = fma(-PRODUCT_HIGH, multiple, high[e]) + fma(-PRODUCT_LOW, multiple, low[e]);
        const int scale_b = scales_b[column];
        if (scale_a == NOT_FINITE || scale_b == NOT_FINITE)
            x = __uint_as_float(0x7fffffff);  // NaN
        else
            x = Scaling(max(-2040, min(2040, -scale_a - scale_b)))(x);  // beyond, it is 0 or infinite
        double *const c = C + (size_t)row * ldc + column;
        *c = beta != 0 ? fma(alpha, x, beta * *c) : alpha * x;
    }
}

#endif
