// Matrix product, GPU rung for 16-bit types: the next tiles are copied while the current one is multiplied.
//
// Compared with mma_tiled, cp.async copies the tiles into a ring of STAGES stages, from global to shared memory and 16
// bytes at a time, without passing through registers. While a tile is multiplied, the copies of the next STAGES - 1
// tiles are in flight. One barrier per tile is enough. Rows that are not a multiple of 16 bytes use ordinary loads and
// stores. Needs compute capability 8.0. Limit: mma.sync takes its operands from registers, so each operand is read from
// shared memory twice as often as by a warpgroup's product.
//
// hpcmm:
//   operation: matmul
//   shelf: product
//   change: tiles arrive by cp.async in a ring of stages
//   counterpart: mma_tiled
//   dtypes: [float16, bfloat16]
//   rows: 128
//   columns: 128
//   depth: 64
//   block: 128
//   constants: {STAGES: 3, GROUP_ROWS: 8, WARP_ROWS: 64, WARP_COLUMNS: 64}
//   shared_bytes: STAGES * DEPTH * (ROWS + COLUMNS) * ITEMSIZE
//   architecture: sm_80

#include "matmul/copied_boxes.cuh"

constexpr int I = WARP_ROWS / 16, J = WARP_COLUMNS / 8, WARPS_WIDE = COLUMNS / WARP_COLUMNS;
static_assert(DEPTH == BOX_COLUMNS && ROWS == COLUMNS && BLOCK == ROWS / WARP_ROWS * WARPS_WIDE * 32, "a warp a tile");

extern "C" __global__ void __launch_bounds__(BLOCK, 2)
    matmul(int m, int n, int k, float alpha, const Element *A, int lda, const Element *B, int ldb, float beta,
           Element *C, int ldc)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int row = warp / WARPS_WIDE * WARP_ROWS, column = warp % WARPS_WIDE * WARP_COLUMNS;
    const int2 tile = rasterize(blockIdx.y * gridDim.x + blockIdx.x, gridDim.y, gridDim.x);
    const int first_row = tile.y * ROWS, first_column = tile.x * COLUMNS;
    const Matrix from_a = {A, lda, m, k}, from_b = {B, ldb, k, n};
    for (int s = 0; s < STAGES - 1; ++s)  // prologue: all stages but one
        load(shared + s * STAGE_BYTES, from_a, from_b, first_row, first_column, s * DEPTH);
    float sums[I][J][4] = {};
    int stage = 0;
    for (int start = 0; start < k; start += DEPTH) {
        cp_async_wait_group<STAGES - 2>();
        __syncthreads();  // this tile has arrived, and all warps have read the previous one
        const int next = stage == 0 ? STAGES - 1 : stage - 1;
        load(shared + next * STAGE_BYTES, from_a, from_b, first_row, first_column, start + (STAGES - 1) * DEPTH);
        unsigned char *const tiles = shared + stage * STAGE_BYTES;
        multiply_warp(sums, tiles, tiles + A_BYTES, row, column);
        stage = stage == STAGES - 1 ? 0 : stage + 1;
    }
#pragma unroll
    for (int i = 0; i < I; ++i)
        update(sums[i], m, n, alpha, beta, C, ldc, first_row + row + i * 16 + lane / 4,
               first_column + column + lane % 4 * 2);
}
