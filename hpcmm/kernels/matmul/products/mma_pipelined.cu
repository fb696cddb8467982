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

#include "matmul/boxes.cuh"

constexpr int I = WARP_ROWS / 16, J = WARP_COLUMNS / 8, WARPS_WIDE = COLUMNS / WARP_COLUMNS;
constexpr int A_BYTES = ROWS * ROW_BYTES, STAGE_BYTES = A_BYTES + COLUMNS / BOX_COLUMNS * DEPTH * ROW_BYTES;
static_assert(DEPTH == BOX_COLUMNS && ROWS == COLUMNS && BLOCK == ROWS / WARP_ROWS * WARPS_WIDE * 32, "a warp a tile");

// Start the copies of a box: a thread copies chunk `thread % 8` of every 16th row. Elements past the ends are zero.
__device__ void load_box(unsigned char *box, int rows, const Matrix &from, int row, int column)
{
    if (!aligned(from.elements, from.ld)) {
        copy_box(box, rows, from, row, column, threadIdx.x, BLOCK);
        return;
    }
    const int y = threadIdx.x / 8, c = threadIdx.x % 8;
    const int valid = max(0, min(8, from.columns - column - c * 8)) * (int)sizeof(Element);
#pragma unroll
    for (int i = 0; i < rows; i += BLOCK / 8) {
        const bool inside = row + y + i < from.rows && valid;
        const Element *const source = from.elements + (size_t)(row + y + i) * from.ld + column + c * 8;
        cp_async<16>(chunk_of(box, y + i, c), inside ? source : from.elements, inside ? valid : 0);
    }
}

// Load: start the copies of the tiles of A and B at term `start` as one commit group.
__device__ void load(unsigned char *stage, const Matrix &a, const Matrix &b, int first_row, int first_column, int start)
{
    load_box(stage, ROWS, a, first_row, start);
#pragma unroll
    for (int x = 0; x < COLUMNS; x += BOX_COLUMNS)
        load_box(stage + A_BYTES + x * DEPTH * 2, DEPTH, b, start, first_column + x);
    cp_async_commit_group();
}

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
