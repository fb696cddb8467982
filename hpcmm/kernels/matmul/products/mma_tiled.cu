// Matrix product, GPU rung for 16-bit types: tiles in shared memory, loaded by ldmatrix, without bank conflicts.
//
// Compared with warp_mma, the four warps of a block share tiles of A and B. An element is loaded from global memory
// once per block, 16 bytes at a time. A warp computes WARP_ROWS x WARP_COLUMNS elements of C, so each fragment is used
// in several products. ldmatrix loads four 8 x 8 matrices of a tile at once, in the layout of the fragments. It reads
// rows of 16 bytes from eight rows of a tile at a time; a swizzle of the 16-byte chunks places them in different banks.
// B is stored by rows, as in global memory, and ldmatrix.trans transposes it. Needs compute capability 8.0. Limit: the
// tensor cores are idle while a tile is loaded.
//
// hpcmm:
//   operation: matmul
//   shelf: product
//   change: tiles in shared memory with a swizzle; ldmatrix loads fragments without bank conflicts
//   counterpart: warp_mma
//   dtypes: [float16, bfloat16]
//   rows: 128
//   columns: 128
//   depth: 64
//   block: 128
//   constants: {GROUP_ROWS: 8, WARP_ROWS: 64, WARP_COLUMNS: 64}
//   architecture: sm_80

#include "matmul/boxes.cuh"

constexpr int I = WARP_ROWS / 16, J = WARP_COLUMNS / 8, WARPS_WIDE = COLUMNS / WARP_COLUMNS;
static_assert(DEPTH == BOX_COLUMNS && ROWS == COLUMNS && BLOCK == ROWS / WARP_ROWS * WARPS_WIDE * 32, "a warp a tile");

// Copy a box from global to shared memory: a thread copies chunk `thread % 8` of every 16th row.
__device__ void store_box(unsigned char *box, int rows, const Matrix &from, int row, int column)
{
    if (!aligned(from.elements, from.ld) || row + rows > from.rows || column + BOX_COLUMNS > from.columns) {
        copy_box(box, rows, from, row, column, threadIdx.x, BLOCK);
        return;
    }
    const int y = threadIdx.x / 8, c = threadIdx.x % 8;
    const Element *source = from.elements + (size_t)(row + y) * from.ld + column + c * 8;
#pragma unroll 4
    for (int i = 0; i < rows; i += BLOCK / 8, source += (size_t)(BLOCK / 8) * from.ld)
        *(Chunk *)chunk_of(box, y + i, c) = *(const Chunk *)source;
}

extern "C" __global__ void __launch_bounds__(BLOCK, 2)
    matmul(int m, int n, int k, float alpha, const Element *A, int lda, const Element *B, int ldb, float beta,
           Element *C, int ldc)
{
    __shared__ __align__(1024) unsigned char tile_a[ROWS * ROW_BYTES], tile_b[COLUMNS / 64 * DEPTH * ROW_BYTES];
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const int row = warp / WARPS_WIDE * WARP_ROWS, column = warp % WARPS_WIDE * WARP_COLUMNS;
    const int2 tile = rasterize(blockIdx.y * gridDim.x + blockIdx.x, gridDim.y, gridDim.x);
    const int first_row = tile.y * ROWS, first_column = tile.x * COLUMNS;
    const Matrix from_a = {A, lda, m, k}, from_b = {B, ldb, k, n};
    float sums[I][J][4] = {};
    for (int start = 0; start < k; start += DEPTH) {
        __syncthreads();  // all warps have read the previous tiles
        store_box(tile_a, ROWS, from_a, first_row, start);
        for (int x = 0; x < COLUMNS; x += BOX_COLUMNS)
            store_box(tile_b + x * DEPTH * 2, DEPTH, from_b, start, first_column + x);
        __syncthreads();
        multiply_warp(sums, tile_a, tile_b, row, column);
    }
#pragma unroll
    for (int i = 0; i < I; ++i)
        update(sums[i], m, n, alpha, beta, C, ldc, first_row + row + i * 16 + lane / 4,
               first_column + column + lane % 4 * 2);
}
