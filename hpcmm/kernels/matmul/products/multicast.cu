// Matrix product, GPU rung for 16-bit types: the blocks of a cluster load a tile of B, or of A, once for all of them.
//
// Compared with persistent, blocks run in clusters of CLUSTER on neighbouring SMs, one below the other in C, so they
// multiply the same columns of B. Each block loads its part of a tile of B, and TMA writes it to the shared memory of
// all of them (multicast), which saves a third of the traffic between L2 and the SMs. For a narrow C, where A is the
// larger tile, the blocks lie beside each other and share A (SHARES_A). A stage is empty only when the consumers of all
// blocks have read it. Runs on compute capability 9.0 only. Limit: the blocks of a cluster wait for each other, which
// costs as much time as the saved traffic or more, except where rows are not whole lines of the L2 cache.
//
// hpcmm:
//   operation: matmul
//   shelf: product
//   change: two blocks of a cluster load each tile of B, or of A, once for both
//   counterpart: persistent
//   dtypes: [float16, bfloat16]
//   architecture: sm_90a

#include "matmul/boxes_of_c.cuh"

constexpr int J = COLUMNS / 8, CONSUMERS = ROWS / 64;
constexpr int A_BYTES = ROWS * ROW_BYTES, B_BOX = DEPTH * ROW_BYTES;
constexpr int PART = (SHARES_A ? ROWS : DEPTH) / CLUSTER;  // rows of a shared tile that each block loads for all
constexpr int CLUSTER_ROWS = SHARES_A ? ROWS : CLUSTER * ROWS, CLUSTER_COLUMNS = SHARES_A ? CLUSTER * COLUMNS : COLUMNS;
constexpr int STAGE_BYTES = A_BYTES + COLUMNS / BOX_COLUMNS * B_BOX;
static_assert(DEPTH == BOX_COLUMNS && CONSUMERS == 2 && BLOCK == 128 * (1 + CONSUMERS), "as setmaxnreg divides them");

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(BLOCK, 1)
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
    if (threadIdx.x == 0) {
        for (const TensorMap *map : {&map_a, &map_b, &map_c})
            prefetch_tensormap(*map);
        for (int s = 0; s < STAGES; ++s) {
            mbarrier_init(&full[s], by_tma ? 1 : 128);
            mbarrier_init(&empty[s], CLUSTER * CONSUMERS * 4);
        }
        for (int q = 0; q < CONSUMERS * C_BOXES; ++q)
            mbarrier_init(&full_c[q], 1);
        fence_mbarrier_init();
    }
    barrier_cluster_arrive();
    barrier_cluster_wait();

    // A tile of the cluster is CLUSTER tiles of its blocks, one below the other or side by side.
    const int rank = blockIdx.x % CLUSTER, clusters = gridDim.x / CLUSTER;
    const int down = SHARES_A ? 0 : rank * ROWS, right = SHARES_A ? rank * COLUMNS : 0;
    const int tile_rows = (m + CLUSTER_ROWS - 1) / CLUSTER_ROWS;
    const int tile_columns = (n + CLUSTER_COLUMNS - 1) / CLUSTER_COLUMNS;
    const int tiles = tile_rows * tile_columns;
    int stage = 0, parity = 0;
    const auto advance = [&] {
        stage = stage == STAGES - 1 ? 0 : stage + 1;
        parity ^= stage == 0;
    };
    if (group == 0) {
        setmaxnreg_dec<56>();
        const int warp = __shfl_sync(~0u, thread / 32, 0);  // one warp issues the copies, by one of its threads
        if (!by_tma || warp == 0)
            for (int i = blockIdx.x / CLUSTER; i < tiles; i += clusters) {
                const int2 tile = rasterize(i, tile_rows, tile_columns);
                const int first_row = tile.y * CLUSTER_ROWS + down, first_column = tile.x * CLUSTER_COLUMNS + right;
                for (int start = 0; start < k; start += DEPTH, advance()) {
                    mbarrier_wait(&empty[stage], parity ^ 1);
                    unsigned char *const a = shared + stage * STAGE_BYTES, *const b = a + A_BYTES;
                    if (by_tma && thread == 0) {
                        mbarrier_arrive_expect_tx(&full[stage], STAGE_BYTES);
                        constexpr unsigned short ALL = (1 << CLUSTER) - 1;
                        const int part = rank * PART;
                        if (SHARES_A)
                            cp_async_bulk_tensor_shared_global_multicast(a + part * ROW_BYTES, map_a, start,
                                                                         first_row + part, &full[stage], ALL);
                        else
                            cp_async_bulk_tensor_shared_global(a, map_a, start, first_row, &full[stage]);
#pragma unroll
                        for (int q = 0; q < Q; ++q) {
                            unsigned char *const box = b + q * B_BOX;
                            const int x = first_column + q * BOX_COLUMNS;
                            if (SHARES_A)
                                cp_async_bulk_tensor_shared_global(box, map_b, x, start, &full[stage]);
                            else
                                cp_async_bulk_tensor_shared_global_multicast(box + part * ROW_BYTES, map_b, x,
                                                                             start + part, &full[stage], ALL);
                        }
                    } else if (!by_tma) {
                        copy_box(a, ROWS, {A, lda, m, k}, first_row, start, thread, 128);
                        for (int q = 0; q < Q; ++q)
                            copy_box(b + q * B_BOX, DEPTH, {B, ldb, k, n}, start, first_column + q * BOX_COLUMNS, thread, 128);
                        fence_proxy_async();
                        mbarrier_arrive(&full[stage]);
                    }
                    __syncwarp();
                }
            }
    } else {
        setmaxnreg_inc<224>();
        const int lane = thread % 32, consumer = group - 1;
        BoxesOfC c = {boxes_c + consumer * C_BOXES * C_BOX, full_c + consumer * C_BOXES, consumer + 1, thread};
        for (int i = blockIdx.x / CLUSTER; i < tiles; i += clusters) {
            const int2 tile = rasterize(i, tile_rows, tile_columns);
            const int row = tile.y * CLUSTER_ROWS + down + consumer * 64, column = tile.x * CLUSTER_COLUMNS + right;
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
                if (start > 0 && lane < CLUSTER)
                    mbarrier_arrive_shared_cluster(mapa(&empty[stage == 0 ? STAGES - 1 : stage - 1], lane));
            }
            wgmma_wait_group<0>(sums);
            if (k > 0 && lane < CLUSTER)
                mbarrier_arrive_shared_cluster(mapa(&empty[stage == 0 ? STAGES - 1 : stage - 1], lane));
            c.update(sums, alpha, beta, map_c, {C, ldc, m, n}, c_by_tma, row, column);
        }
        cp_async_bulk_wait_group_read<0>();  // the block may end
    }
    barrier_cluster_arrive();  // no block ends while another one may still arrive at its mbarriers
    barrier_cluster_wait();
}
