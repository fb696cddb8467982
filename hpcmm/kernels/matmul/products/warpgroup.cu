// Matrix product, GPU rung: a warpgroup starts asynchronous products, and meanwhile loads and splits the next tile.
//
// Compared with tensor_core, the instructions are those of Hopper (wgmma): the four warps of a warpgroup multiply 64 x
// 8 elements of A in registers by 8 x 128 of B in shared memory, into 64 x 128 sums, and are free for other work until
// the products are complete. Shared-memory bandwidth is then the bottleneck. So shared memory holds only the TF32 parts
// of B, split once for both warpgroups of a block. A is loaded from global memory into registers, because a block reads
// no element of A twice. The order of a sum's terms is free, so each lane loads four neighbours of A, 16 bytes, and the
// rows of B are stored in the matching order. Tensor cores, which truncate, add DEPTH terms starting from zero; the
// FP32 units, which round, add these products to the sums.
//
// float32 only, by three products of TF32 parts. Runs on compute capability 9.0 only. Limit: there is one block per SM,
// and SMs are idle if C has few tiles, or few in the last wave.
//
// hpcmm:
//   operation: matmul
//   shelf: product
//   change: warpgroups of Hopper start three TF32 products from shared memory, and load the next tile meanwhile
//   counterpart: tensor_core
//   dtypes: [float32]
//   arithmetic: three TF32 products
//   rows: 128
//   columns: 128
//   depth: 32
//   block: 256
//   constants: {STAGES: 2, GROUP_ROWS: 8, PARTS: 2}
//   shared_bytes: STAGES * PARTS * DEPTH * COLUMNS * ITEMSIZE
//   architecture: sm_90a

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

// Rasterization order: return column x and row y of the i-th of `tile_rows` x `tile_columns` tiles of C. The order goes
// down the columns of groups of GROUP_ROWS rows of tiles.
__device__ int2 rasterize(int i, unsigned tile_rows, unsigned tile_columns)
{
    const int group_tiles = GROUP_ROWS * tile_columns, first_row = i / group_tiles * GROUP_ROWS;
    const int rows = min(GROUP_ROWS, tile_rows - first_row);
    return make_int2(i % group_tiles / rows, first_row + i % group_tiles % rows);
}

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

// Split: store the parts of B in a stage in shared memory, and keep those of A in registers.
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
        wgmma_mma_async_m64n128k8_tf32(products, a.small[s], descriptor(big_b + s * 8 * COLUMNS), s > 0);
        wgmma_mma_async_m64n128k8_tf32(products, a.big[s], descriptor(small_b + s * 8 * COLUMNS), true);
    }
#pragma unroll
    for (int s = 0; s < STEPS; ++s)
        wgmma_mma_async_m64n128k8_tf32(products, a.big[s], descriptor(big_b + s * 8 * COLUMNS), true);
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

extern "C" __global__ void __launch_bounds__(BLOCK, 1)
    matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    extern __shared__ __align__(128) unsigned char shared[];
    REAL *const ring = (REAL *)shared;  // [STAGES][big, small][GROUPS][COLUMNS][4]
    const int thread = threadIdx.x, g = thread % 32 / 4, t = thread % 4;
    const int2 tile = rasterize(blockIdx.y * gridDim.x + blockIdx.x, gridDim.y, gridDim.x);
    const int first_row = tile.y * ROWS, first_column = tile.x * COLUMNS;

    // Rows and columns past the end are copies of the last ones: their sums are never stored.
    const int row = first_row + thread / 32 * 16 + g, column = thread % COLUMNS, group = thread / COLUMNS;
    const REAL *a[2] = {A + (size_t)min(row, m - 1) * lda, A + (size_t)min(row + 8, m - 1) * lda};
    const REAL *const b = B + (size_t)group * ldb + min(first_column + column, n - 1);
    Loader loader = {k, ldb, group, t, lda % 4 == 0 && (size_t)A % 16 == 0, 0, b};
    Operands operands;

    REAL sums[16][4] = {};
    if (k <= SHORT_K)
        multiply_short(sums, a, B, ldb, n, k, first_column + 2 * t);
    else {
        Parts parts[2];
        float products[16][4] = {};
        loader.load(operands, a);
        split_tile(operands, ring, parts[0], group, column);
        loader.load(operands, a);
        __syncthreads();
        for (int start = 0; start < k; start += 2 * DEPTH)  // mainloop: a tile in each stage
#pragma unroll
            for (int stage = 0; stage < 2; ++stage) {
                multiply(products, parts[stage], ring + stage * PARTS * PART_SIZE);
                split_tile(operands, ring + (1 - stage) * PARTS * PART_SIZE, parts[1 - stage], group, column);
                loader.load(operands, a);
                accumulate(sums, products);
                __syncthreads();  // the next tile is stored, and all warps have read this one
            }
    }

    const bool inside = first_row + ROWS <= m && first_column + COLUMNS <= n;
    const bool pairs = inside && ldc % 2 == 0 && (size_t)C % sizeof(Pair) == 0;
    Pair c[16][2] = {};
    load_c(c, m, n, beta, C, ldc, row, first_column + 2 * t, pairs);
    store_c(sums, c, m, n, alpha, beta, C, ldc, row, first_column + 2 * t, pairs);
}
