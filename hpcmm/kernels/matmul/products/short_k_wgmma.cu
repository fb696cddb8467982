// Matrix product, GPU rung for 16-bit types: for few steps of k, one launch that takes rows of any alignment.
//
// With few steps of k a product is over before a pipeline fills, and a launch that aligns rows, as split_k_wgmma has
// it, takes as long as the product. Here all threads of a block load both tiles for up to STAGES * DEPTH steps at once:
// aligned vectors of 16 bytes, which they shift in registers, CHUNKS of them in flight per thread. Then its warpgroups
// multiply, and C goes through shared memory in place of the tiles. Several small blocks of an SM overlap these phases.
// Runs on compute capability 9.0 only. Limit: nothing overlaps within a block, so with many steps of k a pipeline is
// faster.
//
// hpcmm:
//   operation: matmul
//   shelf: product
//   change: one launch loads rows of any alignment for all steps of a short k at once, without a pipeline
//   counterpart: split_k_wgmma
//   dtypes: [float16, bfloat16]
//   architecture: sm_90a

#include "matmul/any_rows.cuh"
#include "matmul/prefetch.cuh"

constexpr int J = COLUMNS / 8, A_BYTES = ROWS * ROW_BYTES, B_BOX = DEPTH * ROW_BYTES;
constexpr int STAGE_BYTES = A_BYTES + Q * B_BOX;
constexpr int CHUNKS = 4;  // of a thread, in flight, at most
static_assert(DEPTH == BOX_COLUMNS && BLOCK == 2 * ROWS, "a warpgroup for 64 rows");

// Copy a box with all threads; elements outside the matrix are zero.
template <int BOX_ROWS> __device__ void copy_any(unsigned char *box, const Matrix &from, int row, int column)
{
    constexpr int STEP = BLOCK / 8, N = BOX_ROWS / STEP < CHUNKS ? BOX_ROWS / STEP : CHUNKS;  // rows; chunks
    static_assert(BOX_ROWS % (N * STEP) == 0, "copies end with the box");
    const int x = threadIdx.x % 8;
#pragma unroll 1
    for (int y = threadIdx.x / 8; y < BOX_ROWS; y += N * STEP) {
        ShiftedChunk chunks[N];
#pragma unroll
        for (int c = 0; c < N; ++c)
            chunks[c] = {from, row + y + c * STEP, column + x * 8};
#pragma unroll
        for (int c = 0; c < N; ++c)
            *(Chunk *)chunk_of(box, y + c * STEP, x) = chunks[c].shifted();
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT)
    matmul(int m, int n, int k, float alpha, const Element *A, int lda, const Element *B, int ldb, float beta,
           Element *C, int ldc)
{
    extern __shared__ __align__(1024) unsigned char shared[];  // [STAGES][STAGE_BYTES]
    const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0), warp = threadIdx.x / 32;
    const int first_row = blockIdx.y * ROWS, first_column = blockIdx.x * COLUMNS;
    if (beta != 0)
        prefetch_tile(C, ldc, m, n, first_row, first_column, ROWS, threadIdx.x, BLOCK);
    float sums[J][4] = {};
    for (int start = 0; start < k; start += STAGES * DEPTH) {
        const int stages = min(STAGES, (k - start + DEPTH - 1) / DEPTH);
        unsigned char *stage = shared;
        for (int s = 0; s < stages; ++s, stage += STAGE_BYTES) {
            copy_any<ROWS>(stage, {A, lda, m, k}, first_row, start + s * DEPTH);
            for (int q = 0; q < Q; ++q)
                copy_any<DEPTH>(stage + A_BYTES + q * B_BOX, {B, ldb, k, n}, start + s * DEPTH,
                                first_column + q * BOX_COLUMNS);
        }
        fence_proxy_async();
        __syncthreads();
        wgmma_fence();
        stage = shared;
        for (int s = 0; s < stages; ++s, stage += STAGE_BYTES)
            multiply(sums, stage + warpgroup * 64 * ROW_BYTES, stage + A_BYTES);
        wgmma_commit_group();
        wgmma_wait_group<0>(sums);
        __syncthreads();  // all have read the stages; the next ones, or C, take their place
    }
    update_rows(sums, alpha, beta, {C, ldc, m, n}, shared + warp * WARP_BOX, first_row + warp * 16, first_column);
}
