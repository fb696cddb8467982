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

#include "matmul/rasterize.cuh"
#include "matmul/tf32_warpgroups.cuh"

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
