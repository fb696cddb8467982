// Matrix product, GPU rung for 16-bit types: a warpgroup multiplies both operands from shared memory.
//
// Compared with mma_pipelined, the products use the instruction of Hopper: one wgmma multiplies 64 x 16 elements of A
// by 16 x COLUMNS of B and reads both from shared memory. There are no ldmatrix and no fragments, so registers hold
// only sums. A matrix descriptor contains the start of a tile and the swizzle of its rows of 128 bytes. The swizzle is
// the same as for ldmatrix, and B may be stored by rows. wgmma runs asynchronously, in another proxy than ordinary
// loads and stores, so their writes to shared memory need a fence before it. Runs on compute capability 9.0 only.
// Limit: all threads compute addresses of copies, and wait for a tile together.
//
// hpcmm:
//   operation: matmul
//   shelf: product
//   change: a warpgroup of Hopper multiplies both operands from shared memory
//   counterpart: mma_pipelined
//   dtypes: [float16, bfloat16]
//   rows: 128
//   columns: 128
//   depth: 64
//   block: 128
//   constants: {STAGES: 3, GROUP_ROWS: 8}
//   shared_bytes: STAGES * DEPTH * (ROWS + COLUMNS) * ITEMSIZE
//   architecture: sm_90a

#include "matmul/copied_boxes.cuh"

constexpr int I = ROWS / 64, J = COLUMNS / 8;  // a warpgroup computes ROWS x COLUMNS of C
static_assert(DEPTH == BOX_COLUMNS && ROWS == COLUMNS && BLOCK == 128, "one warpgroup, and rows of 128 bytes");

extern "C" __global__ void __launch_bounds__(BLOCK, 2)
    matmul(int m, int n, int k, float alpha, const Element *A, int lda, const Element *B, int ldb, float beta,
           Element *C, int ldc)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int2 tile = rasterize(blockIdx.y * gridDim.x + blockIdx.x, gridDim.y, gridDim.x);
    const int first_row = tile.y * ROWS, first_column = tile.x * COLUMNS;
    const Matrix from_a = {A, lda, m, k}, from_b = {B, ldb, k, n};
    for (int s = 0; s < STAGES - 1; ++s)
        load(shared + s * STAGE_BYTES, from_a, from_b, first_row, first_column, s * DEPTH);
    float sums[I][J][4] = {};
    int stage = 0;
    for (int start = 0; start < k; start += DEPTH) {
        cp_async_wait_group<STAGES - 2>();
        fence_proxy_async();
        __syncthreads();  // this tile has arrived, and the products of the previous one are complete
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < I; ++i)
            multiply(sums[i], shared + stage * STAGE_BYTES + i * 64 * ROW_BYTES, shared + stage * STAGE_BYTES + A_BYTES);
        wgmma_commit_group();
        const int next = stage == 0 ? STAGES - 1 : stage - 1;
        load(shared + next * STAGE_BYTES, from_a, from_b, first_row, first_column, start + (STAGES - 1) * DEPTH);
#pragma unroll
        for (int i = 0; i < I; ++i)
            wgmma_wait_group<0>(sums[i]);
        stage = stage == STAGES - 1 ? 0 : stage + 1;
    }
#pragma unroll
    for (int i = 0; i < I; ++i)
        update(sums[i], m, n, alpha, beta, C, ldc, first_row + i * 64 + warp * 16 + lane / 4,
               first_column + lane % 4 * 2);
}
