// The steps of warpgroup: a block of two warpgroups multiplies a tile of C by wgmma, in three products of TF32 parts.
#ifndef TF32_WARPGROUPS_CUH
#define TF32_WARPGROUPS_CUH

#include "ptx.cuh"

static_assert(sizeof(REAL) == 4, "wgmma multiplies no float64");

constexpr int STEPS = DEPTH / 8, GROUPS = DEPTH / 4;  // steps of 8 terms and groups of 4 rows of B in a tile
constexpr int PASS_GROUPS = BLOCK / COLUMNS;          // groups that the block splits at once, one column per thread
constexpr int PART_SIZE = DEPTH * COLUMNS;            // elements of the big or the small parts of a tile of B
static_assert(ROWS == BLOCK / 2 && COLUMNS == 128, "each warpgroup has 64 x 128 of C");
static_assert(DEPTH % 16 == 0 && STAGES == 2 && PARTS == 2 && 4 % PASS_GROUPS == 0, "as the loops below are written");

// Sums of up to SHORT_K terms do not use tensor cores: the error of the split is too large for them.
constexpr int SHORT_K = 16;

struct alignas(2 * sizeof(REAL)) Pair {
    REAL of[2];
};

// The elements of a tile that a thread loads. A: rows g and g + 8 of its warp's 16, columns 4 t to 4 t + 3 of each 16.
// B: one column, rows r, r + 4, r + 8 and r + 12 of each 16 for a group; there is one group for each r.
struct Operands {
    float a[2][DEPTH / 16][4], b[GROUPS / PASS_GROUPS][4];
};

// The TF32 parts of a thread's elements of A, in the order of the products.
struct Parts {
    float big[STEPS][4], small[STEPS][4];
};

// Load: from global memory to registers, one tile after the other.
struct Loader {
    int end, ldb, group, t;
    bool aligned;   // whether 16 bytes of A can be loaded at a time
    int start;      // the first term of the next tile
    const REAL *b;  // this thread's first element of it

    // Load the next tile; terms from `end` on are zero. `a` points to this thread's two rows.
    __device__ void load(Operands &operands, const REAL *(&a)[2])
    {
        const bool whole = start + DEPTH <= end;
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
            for (int p = 0; p < DEPTH; p += 16) {
                const REAL *const source = a[i] + p + 4 * t;
                if (whole && aligned)
                    *(float4 *)operands.a[i][p / 16] = *(const float4 *)source;
                else
#pragma unroll
                    for (int e = 0; e < 4; ++e)
                        operands.a[i][p / 16][e] = start + p + 4 * t + e < end ? source[e] : 0;
            }
#pragma unroll
        for (int q = 0; q < GROUPS; q += PASS_GROUPS)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int p = q / 4 * 16 + e * 4 + q % 4;
                operands.b[q / PASS_GROUPS][e] = whole || start + p + group < end ? b[(size_t)p * ldb] : 0;
            }
        a[0] += DEPTH;
        a[1] += DEPTH;
        b += (size_t)DEPTH * ldb;
        start += DEPTH;
    }
};

// Split each x into big, the nearest TF32 number, and small, the exact remainder.
template <int N> __device__ void split(const float (&x)[N], float (&big)[N], float (&small)[N])
{
#pragma unroll
    for (int i = 0; i < N; ++i) {
        big[i] = __uint_as_float((__float_as_uint(x[i]) + 0x1000) & 0xffffe000);
        small[i] = x[i] - big[i];
    }
}

// Split the operands into TF32 parts: those of B are stored in a stage in shared memory, those of A stay in registers.
__device__ void split_tile(const Operands &operands, REAL *stage, Parts &parts, int group, int column)
{
#pragma unroll
    for (int q = 0; q < GROUPS; q += PASS_GROUPS) {
        float big[4], small[4];
        split(operands.b[q / PASS_GROUPS], big, small);
        REAL *const target = stage + ((q + group) * COLUMNS + column) * 4;
        *(float4 *)target = make_float4(big[0], big[1], big[2], big[3]);
        *(float4 *)(target + PART_SIZE) = make_float4(small[0], small[1], small[2], small[3]);
    }
    fence_proxy_async();
#pragma unroll
    for (int s = 0; s < STEPS; ++s) {
        float x[4];
#pragma unroll
        for (int e = 0; e < 4; ++e)
            x[e] = operands.a[e % 2][s / 2][s % 2 * 2 + e / 2];
        split(x, parts.big[s], parts.small[s]);
    }
}

// The matrix descriptor (PTX ISA) of 8 rows of B in shared memory, without a swizzle: two groups of 4 rows, each with
// its COLUMNS columns one after the other and the 4 elements of a column together.
__device__ unsigned long long descriptor(const float *groups)
{
    constexpr unsigned long long LEADING_OFFSET = COLUMNS * 16, STRIDE_OFFSET = 8 * 16;  // bytes
    return (__cvta_generic_to_shared(groups) | LEADING_OFFSET << 16 | STRIDE_OFFSET << 32) >> 4;
}

// Multiply: start the products of a tile, from zero, small ones first.
__device__ void multiply(float (&products)[16][4], const Parts &a, const REAL *stage)
{
    const REAL *const big_b = stage, *const small_b = stage + PART_SIZE;
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < STEPS; ++s) {
        wgmma_mma_async(products, a.small[s], descriptor(big_b + s * 8 * COLUMNS), s > 0);
        wgmma_mma_async(products, a.big[s], descriptor(small_b + s * 8 * COLUMNS), true);
    }
#pragma unroll
    for (int s = 0; s < STEPS; ++s)
        wgmma_mma_async(products, a.big[s], descriptor(big_b + s * 8 * COLUMNS), true);
    wgmma_commit_group();
}

// Multiply without tensor cores: add the products of k terms.
__device__ void multiply_short(float (&sums)[16][4], const REAL *const (&a)[2], const REAL *B, int ldb, int n, int k,
                               int column)
{
#pragma unroll 1
    for (int p = 0; p < k; ++p)
#pragma unroll
        for (int j = 0; j < 16; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e)
                sums[j][e] += a[e / 2][p] * B[(size_t)p * ldb + min(column + j * 8 + e % 2, n - 1)];
}

// Accumulate: wait for the products and add them to the sums.
__device__ void accumulate(float (&sums)[16][4], float (&products)[16][4])
{
    wgmma_wait_group<0>(products);
#pragma unroll
    for (int j = 0; j < 16; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e)
            sums[j][e] += products[j][e];
}

// Epilogue: C = alpha sums + beta C. Only one block fits on an SM, so it loads all its elements of C at once, if beta
// is not 0. `row` and `column` are the position of this thread's first element. `pairs`: the block's tile is inside C,
// and neighbours can be accessed together.
__device__ void load_c(Pair (&c)[16][2], int m, int n, REAL beta, const REAL *C, int ldc, int row, int column,
                       bool pairs)
{
#pragma unroll
    for (int j = 0; j < 16; ++j)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int y = row + 8 * h, x = column + 8 * j;
            const REAL *const source = C + (size_t)y * ldc + x;
            if (beta != 0 && pairs)
                c[j][h] = *(const Pair *)source;
            else
#pragma unroll
                for (int e = 0; e < 2; ++e)
                    if (beta != 0 && y < m && x + e < n)
                        c[j][h].of[e] = source[e];
        }
}

__device__ void store_c(const float (&sums)[16][4], const Pair (&c)[16][2], int m, int n, REAL alpha, REAL beta,
                        REAL *C, int ldc, int row, int column, bool pairs)
{
#pragma unroll
    for (int j = 0; j < 16; ++j)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int y = row + 8 * h, x = column + 8 * j;
            REAL *const target = C + (size_t)y * ldc + x;
            Pair sum;
#pragma unroll
            for (int e = 0; e < 2; ++e)
                sum.of[e] = alpha * sums[j][2 * h + e] + beta * c[j][h].of[e];
            if (pairs)
                *(Pair *)target = sum;
            else
#pragma unroll
                for (int e = 0; e < 2; ++e)
                    if (y < m && x + e < n)
                        target[e] = sum.of[e];
        }
}

#endif
