// Matrix product, GPU rung for 16-bit types: warp specialization, one producer and two consumers.
//
// Compared with tma, the mainloop has no barrier of the whole block. One warpgroup, the producer, starts copies; two
// warpgroups, the consumers, multiply, with 64 x COLUMNS elements of C each. Two mbarriers per stage connect them:
// `full`, at which the bytes of a tile arrive, and `empty`, at which the consumers' warps arrive after the products. So
// the producer waits only if the ring is full, and a consumer only if it is empty. The next product starts before the
// previous one is complete. The sums of a consumer need most registers of the SM; setmaxnreg moves registers from the
// producer to the consumers. Runs on compute capability 9.0 only. Limit: while a block reads and writes C, and before
// its first tile arrives, the tensor cores are idle.
//
// hpcmm:
//   operation: matmul
//   shelf: product
//   change: >-
//     a producer warpgroup loads, two consumers multiply tiles of twice the size; setmaxnreg divides the registers
//   counterpart: tma
//   dtypes: [float16, bfloat16]
//   rows: 128
//   columns: 256
//   depth: 64
//   block: 384
//   constants: {STAGES: 4, GROUP_ROWS: 8}
//   shared_bytes: STAGES * ((ROWS + COLUMNS) * 128 + 16)
//   tensor_maps: {A: ROWS, B: DEPTH}
//   architecture: sm_90a

#include "matmul/boxes.cuh"

constexpr int J = COLUMNS / 8, CONSUMERS = ROWS / 64;
constexpr int A_BYTES = ROWS * ROW_BYTES, B_BOX = DEPTH * ROW_BYTES;
constexpr int STAGE_BYTES = A_BYTES + COLUMNS / BOX_COLUMNS * B_BOX;
static_assert(DEPTH == BOX_COLUMNS && CONSUMERS == 2 && BLOCK == 128 * (1 + CONSUMERS), "as setmaxnreg divides them");

extern "C" __global__ void __launch_bounds__(BLOCK, 1)
    matmul(int m, int n, int k, float alpha, const Element *A, int lda, const Element *B, int ldb, float beta,
           Element *C, int ldc, const __grid_constant__ TensorMap map_a,
           const __grid_constant__ TensorMap map_b)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    unsigned long long *const full = (unsigned long long *)(shared + STAGES * STAGE_BYTES), *const empty = full + STAGES;
    const int group = __shfl_sync(~0u, threadIdx.x / 128, 0), thread = threadIdx.x % 128;  // uniform in a warp
    const int2 tile = rasterize(blockIdx.y * gridDim.x + blockIdx.x, gridDim.y, gridDim.x);
    const int first_row = tile.y * ROWS, first_column = tile.x * COLUMNS;
    const bool by_tma = aligned(A, lda) && aligned(B, ldb);
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            mbarrier_init(&full[s], by_tma ? 1 : 128);
            mbarrier_init(&empty[s], CONSUMERS * 4);
        }
        fence_mbarrier_init();
    }
    __syncthreads();

    int stage = 0, parity = 0;
    const auto advance = [&] {
        stage = stage == STAGES - 1 ? 0 : stage + 1;
        parity ^= stage == 0;
    };
    if (group == 0) {
        setmaxnreg_dec<56>();
        const Matrix from_a = {A, lda, m, k}, from_b = {B, ldb, k, n};
        if (!by_tma || thread == 0)
            for (int start = 0; start < k; start += DEPTH, advance()) {
                mbarrier_wait(&empty[stage], parity ^ 1);  // the stages are empty at the start
                unsigned char *const a = shared + stage * STAGE_BYTES, *const b = a + A_BYTES;
                if (by_tma) {
                    mbarrier_arrive_expect_tx(&full[stage], STAGE_BYTES);
                    cp_async_bulk_tensor_shared_global(a, map_a, start, first_row, &full[stage]);
                    for (int x = 0; x < COLUMNS; x += BOX_COLUMNS)
                        cp_async_bulk_tensor_shared_global(b + x / BOX_COLUMNS * B_BOX, map_b, first_column + x, start, &full[stage]);
                } else {
                    copy_box(a, ROWS, from_a, first_row, start, thread, 128);
                    for (int x = 0; x < COLUMNS; x += BOX_COLUMNS)
                        copy_box(b + x / BOX_COLUMNS * B_BOX, DEPTH, from_b, start, first_column + x, thread, 128);
                    fence_proxy_async();
                    mbarrier_arrive(&full[stage]);
                }
            }
    } else {
        setmaxnreg_inc<224>();
        const int lane = thread % 32, row = (group - 1) * 64;
        float sums[J][4] = {};
        for (int start = 0; start < k; start += DEPTH, advance()) {
            mbarrier_wait(&full[stage], parity);
            wgmma_fence();
            multiply(sums, shared + stage * STAGE_BYTES + row * ROW_BYTES, shared + stage * STAGE_BYTES + A_BYTES);
            wgmma_commit_group();
            wgmma_wait_group<1>(sums);  // the products of the previous tile are complete
            if (start > 0 && lane == 0)
                mbarrier_arrive(&empty[stage == 0 ? STAGES - 1 : stage - 1]);
        }
        wgmma_wait_group<0>(sums);
        update(sums, m, n, alpha, beta, C, ldc, first_row + row + thread / 32 * 16 + lane / 4,
               first_column + lane % 4 * 2);
    }
}
