// Matrix product, GPU rung for 16-bit types: persistent blocks, and C read and written by TMA.
//
// Compared with warp_specialized, there are only as many blocks as SMs, and each computes several tiles of C: the
// producer loads the first tiles of A and B of the next tile of C while the consumers finish the current one. TMA reads
// and writes C in boxes of 64 x 64 in shared memory: the old C arrives before the last products are complete, and the
// new C is written while the next tile is multiplied. Consumers access the boxes with ldmatrix and stmatrix, whose
// fragments have the layout of the sums. The first EARLY stages are loaded before the other threads start. The products
// of narrow tiles take less time than one thread needs to start their copies, so there one loads A and another one B.
// Runs on compute capability 9.0 only. Limit: each block reads all of its tiles of A and B from the L2 cache.
//
// hpcmm:
//   operation: matmul
//   shelf: product
//   change: blocks compute tile after tile, and TMA reads and writes C
//   counterpart: warp_specialized
//   dtypes: [float16, bfloat16]
//   architecture: sm_90a

#include "matmul/boxes_of_c.cuh"

constexpr int J = COLUMNS / 8, CONSUMERS = ROWS / 64;
constexpr int A_BYTES = ROWS * ROW_BYTES, B_BOX = DEPTH * ROW_BYTES;
constexpr int STAGE_BYTES = A_BYTES + Q * B_BOX;
constexpr int EARLY = STAGES > 2 ? 2 : 1;  // more would delay the consumers, which wait for the thread that loads
constexpr int LOADERS = COLUMNS == 64 ? 2 : 1;  // threads that load, each of another warp
constexpr bool DIVIDED = CONSUMERS == 2;   // setmaxnreg divides the registers; one consumer has enough
static_assert(DEPTH == BOX_COLUMNS && CONSUMERS <= 2 && BLOCK == 128 * (1 + CONSUMERS), "as setmaxnreg divides them");

extern "C" __global__ void __launch_bounds__(BLOCK, 1)
    matmul(int m, int n, int k, float alpha, const Element *A, int lda, const Element *B, int ldb, float beta,
           Element *C, int ldc, const __grid_constant__ TensorMap map_a,
           const __grid_constant__ TensorMap map_b, const __grid_constant__ TensorMap map_c)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    unsigned char *const boxes_c = shared + STAGES * STAGE_BYTES;  // [CONSUMERS][C_BOXES]
    unsigned long long *const full = (unsigned long long *)(boxes_c + CONSUMERS * C_BOXES * C_BOX);
    unsigned long long *const empty = full + STAGES, *const full_c = empty + STAGES;
    const int group = __shfl_sync(~0u, threadIdx.x / 128, 0), thread = threadIdx.x % 128;  // uniform in a warp
    const bool by_tma = aligned(A, lda) && aligned(B, ldb);
    const bool c_by_tma = aligned(C, ldc) && n % 8 == 0;  // TMA stores whole 16-byte units of a row
    const int tile_rows = (m + ROWS - 1) / ROWS, tile_columns = (n + COLUMNS - 1) / COLUMNS;
    const int tiles = tile_rows * tile_columns;
    const auto load = [&](int loader, int stage, int first_row, int first_column, int start) {
        unsigned char *const a = shared + stage * STAGE_BYTES, *const b = a + A_BYTES;
        const bool loads_a = LOADERS == 1 || loader == 0, loads_b = LOADERS == 1 || loader == 1;
        mbarrier_arrive_expect_tx(&full[stage], (loads_a ? A_BYTES : 0) + (loads_b ? Q * B_BOX : 0));
        if (loads_a)
            cp_async_bulk_tensor_shared_global(a, map_a, start, first_row, &full[stage]);
        if (loads_b)
#pragma unroll
            for (int q = 0; q < Q; ++q)
                cp_async_bulk_tensor_shared_global(b + q * B_BOX, map_b, first_column + q * BOX_COLUMNS, start,
                                                   &full[stage]);
    };
    const int early = by_tma && k > 0 ? min((k + DEPTH - 1) / DEPTH, EARLY) : 0;
    if (threadIdx.x == 0) {
        for (const TensorMap *map : {&map_a, &map_b, &map_c})
            prefetch_tensormap(*map);
        for (int s = 0; s < STAGES; ++s) {
            mbarrier_init(&full[s], by_tma ? LOADERS : 128);
            mbarrier_init(&empty[s], CONSUMERS * 4);
        }
        for (int q = 0; q < CONSUMERS * C_BOXES; ++q)
            mbarrier_init(&full_c[q], 1);
        fence_mbarrier_init();
        const int2 tile = rasterize(blockIdx.x, tile_rows, tile_columns);
        for (int s = 0; s < early; ++s)
            for (int loader = 0; loader < LOADERS; ++loader)
                load(loader, s, tile.y * ROWS, tile.x * COLUMNS, s * DEPTH);
    }
    __syncthreads();

    int stage = group == 0 ? early : 0, parity = 0;  // of a warp, in uniform registers
    const auto advance = [&] {
        stage = stage == STAGES - 1 ? 0 : stage + 1;
        parity ^= stage == 0;
    };
    if (group == 0) {
        if constexpr (DIVIDED)
            setmaxnreg_dec<56>();
        const int warp = __shfl_sync(~0u, thread / 32, 0);
        if (!by_tma || (thread % 32 == 0 && warp < LOADERS))
            for (int i = blockIdx.x; i < tiles; i += gridDim.x) {
                const int2 tile = rasterize(i, tile_rows, tile_columns);
                const int first_row = tile.y * ROWS, first_column = tile.x * COLUMNS;
                for (int start = i == blockIdx.x ? early * DEPTH : 0; start < k; start += DEPTH, advance()) {
                    mbarrier_wait(&empty[stage], parity ^ 1);
                    if (by_tma)
                        load(warp, stage, first_row, first_column, start);
                    else {
                        unsigned char *const a = shared + stage * STAGE_BYTES, *const b = a + A_BYTES;
                        copy_box(a, ROWS, {A, lda, m, k}, first_row, start, thread, 128);
                        for (int q = 0; q < Q; ++q)
                            copy_box(b + q * B_BOX, DEPTH, {B, ldb, k, n}, start, first_column + q * BOX_COLUMNS, thread, 128);
                        fence_proxy_async();
                        mbarrier_arrive(&full[stage]);
                    }
                }
            }
    } else {
        if constexpr (DIVIDED)
            setmaxnreg_inc<224>();
        const int lane = thread % 32, consumer = group - 1;
        BoxesOfC c = {boxes_c + consumer * C_BOXES * C_BOX, full_c + consumer * C_BOXES, consumer + 1, thread};
        for (int i = blockIdx.x; i < tiles; i += gridDim.x) {
            const int2 tile = rasterize(i, tile_rows, tile_columns);
            const int row = tile.y * ROWS + consumer * 64, column = tile.x * COLUMNS;
            if (c_by_tma && beta != 0)
                c.start(map_c, row, column);
            float sums[J][4] = {};
            for (int start = 0; start < k; start += DEPTH, advance()) {
                mbarrier_wait(&full[stage], parity);
                unsigned char *const a = shared + stage * STAGE_BYTES, *const b = a + A_BYTES;
                wgmma_fence();
                multiply(sums, a + consumer * 64 * ROW_BYTES, b);
                wgmma_commit_group();
                wgmma_wait_group<1>(sums);
                if (start > 0 && lane == 0)
                    mbarrier_arrive(&empty[stage == 0 ? STAGES - 1 : stage - 1]);
            }
            wgmma_wait_group<0>(sums);
            if (k > 0 && lane == 0)
                mbarrier_arrive(&empty[stage == 0 ? STAGES - 1 : stage - 1]);
            c.update(sums, alpha, beta, map_c, {C, ldc, m, n}, c_by_tma, row, column);
        }
        cp_async_bulk_wait_group_read<0>();  // the block may end
    }
}
