// Matrix product, GPU rung for 16-bit types: the tensor memory accelerator copies the tiles.
//
// Compared with wgmma_shared, no thread computes addresses of copies: one thread passes a tensor map, made by the host,
// and the coordinates of a box to the copy engine (TMA). TMA writes the box with the swizzle, with zeros past the ends
// of the matrix, and counts its bytes at an mbarrier in shared memory, at which all threads wait. Each stage of the
// ring has one mbarrier. TMA requires rows of a multiple of 16 bytes; other rows are copied by the threads. Runs on
// compute capability 9.0 only. Limit: a block multiplies only after it has waited for its own copies and barrier; a
// second block on the SM hides this in part.
//
// hpcmm:
//   operation: matmul
//   shelf: product
//   change: the copy engine (TMA) loads tiles, which arrive at mbarriers
//   counterpart: wgmma_shared
//   dtypes: [float16, bfloat16]
//   rows: 128
//   columns: 128
//   depth: 64
//   block: 128
//   constants: {STAGES: 3, GROUP_ROWS: 8}
//   shared_bytes: STAGES * ((ROWS + COLUMNS) * 128 + 16)
//   tensor_maps: {A: ROWS, B: DEPTH}
//   architecture: sm_90a

#include "matmul/boxes.cuh"

constexpr int I = ROWS / 64, J = COLUMNS / 8;
constexpr int A_BYTES = ROWS * ROW_BYTES, B_BOX = DEPTH * ROW_BYTES;
constexpr int STAGE_BYTES = A_BYTES + COLUMNS / BOX_COLUMNS * B_BOX;
static_assert(DEPTH == BOX_COLUMNS && BLOCK == 128, "one warpgroup, and rows of 128 bytes");

extern "C" __global__ void __launch_bounds__(BLOCK, 2)
    matmul(int m, int n, int k, float alpha, const Element *A, int lda, const Element *B, int ldb, float beta,
           Element *C, int ldc, const __grid_constant__ TensorMap map_a,
           const __grid_constant__ TensorMap map_b)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    unsigned long long *const full = (unsigned long long *)(shared + STAGES * STAGE_BYTES);
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const int2 tile = rasterize(blockIdx.y * gridDim.x + blockIdx.x, gridDim.y, gridDim.x);
    const int first_row = tile.y * ROWS, first_column = tile.x * COLUMNS;
    const Matrix from_a = {A, lda, m, k}, from_b = {B, ldb, k, n};
    const bool by_tma = aligned(A, lda) && aligned(B, ldb);
    if (thread == 0) {
        for (int s = 0; s < STAGES; ++s)
            mbarrier_init(&full[s], by_tma ? 1 : BLOCK);
        fence_mbarrier_init();
    }
    __syncthreads();

    // Load the tiles at term `start` into a stage.
    const auto load = [&](int s, int start) {
        unsigned char *const a = shared + s * STAGE_BYTES, *const b = a + A_BYTES;
        if (!by_tma) {
            copy_box(a, ROWS, from_a, first_row, start, thread, BLOCK);
            for (int x = 0; x < COLUMNS; x += BOX_COLUMNS)
                copy_box(b + x / BOX_COLUMNS * B_BOX, DEPTH, from_b, start, first_column + x, thread, BLOCK);
            fence_proxy_async();
            mbarrier_arrive(&full[s]);
        } else if (thread == 0) {
            mbarrier_arrive_expect_tx(&full[s], STAGE_BYTES);
            cp_async_bulk_tensor_shared_global(a, map_a, start, first_row, &full[s]);
            for (int x = 0; x < COLUMNS; x += BOX_COLUMNS)
                cp_async_bulk_tensor_shared_global(b + x / BOX_COLUMNS * B_BOX, map_b, first_column + x, start, &full[s]);
        }
    };

    for (int s = 0; s < STAGES - 1 && s * DEPTH < k; ++s)
        load(s, s * DEPTH);
    float sums[I][J][4] = {};
    int stage = 0, parity = 0;
    for (int start = 0; start < k; start += DEPTH) {
        mbarrier_wait(&full[stage], parity);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < I; ++i)
            multiply(sums[i], shared + stage * STAGE_BYTES + i * 64 * ROW_BYTES, shared + stage * STAGE_BYTES + A_BYTES);
        wgmma_commit_group();
        const int next = stage == 0 ? STAGES - 1 : stage - 1;
        if (start + (STAGES - 1) * DEPTH < k)
            load(next, start + (STAGES - 1) * DEPTH);
#pragma unroll
        for (int i = 0; i < I; ++i)
            wgmma_wait_group<0>(sums[i]);
        __syncthreads();  // all warps' products of this tile are complete: its stage is free
        stage = stage == STAGES - 1 ? 0 : stage + 1;
        parity ^= stage == 0;
    }
#pragma unroll
    for (int i = 0; i < I; ++i)
        update(sums[i], m, n, alpha, beta, C, ldc, first_row + i * 64 + warp * 16 + lane / 4,
               first_column + lane % 4 * 2);
}
