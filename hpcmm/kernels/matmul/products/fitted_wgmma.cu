// Matrix product, GPU rung for 16-bit types: as many rows of C in a tile as occupy the SMs best.
//
// wgmma multiplies 64 rows at a time, so tiles of the other rungs have multiples of 64 rows: with 133 rows of C, a third
// of the products of a tile of 192 rows are products of zeros. But it has any multiple of 8 columns. Here persistent
// blocks compute tiles of the transpose of C, as those of few_rows_wgmma: 64 columns of C for each consumer, and ROWS
// rows, a multiple of 16 that follows from m, n and the SM count. stmatrix transposes the sums of a warp back into boxes of shared memory,
// which TMA writes to C. A first launch aligns rows of A and B that TMA cannot take, as for split_k_wgmma. Runs on
// compute capability 9.0 only. Limit: the blocks of a small C leave SMs idle.
//
// hpcmm:
//   operation: matmul
//   shelf: product
//   change: "tiles of the transpose of C, with as many rows as occupy the SMs: fewer products of zeros"
//   counterpart: persistent
//   dtypes: [float16, bfloat16]
//   architecture: sm_90a

#include "matmul/copied_rows.cuh"
#include "matmul/ring.cuh"

constexpr int J = ROWS / 8, CONSUMERS = COLUMNS / BOX_COLUMNS, THREADS = 128 * CONSUMERS;
constexpr int A_BYTES = ROWS * ROW_BYTES, B_BOX = DEPTH * ROW_BYTES, STAGE_BYTES = A_BYTES + CONSUMERS * B_BOX;
// A consumer writes C to shared memory in rounds of ROUND boxes of 16 rows. TMA stores a round while the next is written.
constexpr int C_BOX = 16 * ROW_BYTES, ROUND = 4, C_BOXES = J / 2, HALF = ROUND * C_BOX;
static_assert(ROWS % 16 == 0 && DEPTH == BOX_COLUMNS && BLOCK == THREADS + 32, "a warp loads");

// A consumer's part of C: ROWS x 64 elements of each of its tiles.
struct PartOfC {
    const Matrix &c;
    const TensorMap &map;
    bool by_tma;
    unsigned char *boxes;      // [2][ROUND]
    unsigned long long *full;  // [2] mbarriers: the boxes hold the old C
    int barrier, half = 0, parity = 0;  // named barrier of the consumer; half of the next round; a bit for each half

    // Start to read the old C of a round. Called by one thread.
    __device__ void read(int row, int column, int round, int half) const
    {
        const int count = min(ROUND, C_BOXES - round * ROUND);
        mbarrier_arrive_expect_tx(&full[half], count * C_BOX);
        for (int i = 0; i < count; ++i)
            cp_async_bulk_tensor_shared_global(boxes + half * HALF + i * C_BOX, map, column,
                                               row + (round * ROUND + i) * 16, &full[half]);
    }

    // Start to read the old C of a tile; prefetch what the boxes do not hold. Called by one thread.
    __device__ void start(int row, int column) const
    {
        cp_async_bulk_wait_group_read<0>();  // TMA has read the previous tile from the boxes
        read(row, column, 0, half);
        if (C_BOXES > ROUND)
            read(row, column, 1, half ^ 1);
        for (int i = 2 * ROUND; i < C_BOXES; ++i)
            cp_async_bulk_prefetch_tensor(map, column, row + i * 16);
    }

    // C = alpha sums + beta C. beta = 0: C is not read. Else `start` was called if TMA takes C.
    template <bool READ>
    __device__ void update(const float (&sums)[J][4], float alpha, float beta, int row, int column)
    {
        const int thread = threadIdx.x % 128, lane = thread % 32;
#pragma unroll
        for (int round = 0; round * ROUND < C_BOXES; ++round, half ^= 1) {
            unsigned char *const box = boxes + half * HALF;
            const int count = min(ROUND, C_BOXES - round * ROUND), first_row = row + round * ROUND * 16;
            if (READ && by_tma) {
                mbarrier_wait(&full[half], parity >> half & 1);
                parity ^= 1 << half;
            } else {
                if (by_tma && thread == 0)
                    cp_async_bulk_wait_group_read<1>();
                barrier_sync(barrier, 128);  // the boxes are free
                if (READ) {
                    copy_box(box, count * 16, c, first_row, column, thread, 128);
                    barrier_sync(barrier, 128);
                }
            }
#pragma unroll
            for (int i = 0; i < count; ++i) {
                // of four matrices of 8 x 8 elements: 16 rows and 16 columns of C
                unsigned char *const chunk =
                    chunk_of(box, i * 16 + lane / 16 * 8 + lane % 8, thread / 32 * 2 + lane / 8 % 2);
                unsigned pairs[4] = {};
                if (READ)
                    ldmatrix_x4_trans(pairs, chunk);
#pragma unroll
                for (int q = 0; q < 4; ++q) {
                    const float *const pair = &sums[(round * ROUND + i) * 2 + q / 2][q % 2 * 2];
                    pairs[q] = READ ? to_pair(alpha * pair[0] + beta * to_float(pairs[q] & 0xffff),
                                              alpha * pair[1] + beta * to_float(pairs[q] >> 16))
                                    : to_pair(alpha * pair[0], alpha * pair[1]);
                }
                stmatrix_x4_trans(chunk, pairs);
            }
            fence_proxy_async();
            barrier_sync(barrier, 128);
            if (!by_tma && thread / 32 < count) {  // a box by each warp: TMA cannot take rows that are not aligned
                const int own_row = first_row + thread / 32 * 16;
                store_pairs(c, (Element *)c.elements + (size_t)own_row * c.ld + column, box + thread / 32 * C_BOX, own_row,
                            column);
            } else if (by_tma && thread == 0) {
                for (int i = 0; i < count; ++i)
                    cp_async_bulk_tensor_global_shared(map, column, first_row + i * 16, box + i * C_BOX);
                cp_async_bulk_commit_group();
                if (READ && (round + 2) * ROUND < C_BOXES) {
                    cp_async_bulk_wait_group_read<0>();
                    read(row, column, round + 2, half);
                }
            }
        }
    }
};

extern "C" __global__ void __launch_bounds__(BLOCK, 1)
    matmul(int m, int n, int k, float alpha, const Element *A, int lda, const Element *B, int ldb, float beta,
           Element *C, int ldc, const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
           const __grid_constant__ TensorMap map_c)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    unsigned char *const boxes = shared + STAGES * STAGE_BYTES;  // [CONSUMERS][2][ROUND] for C
    unsigned long long *const full_c = (unsigned long long *)(boxes + CONSUMERS * 2 * HALF);
    Ring<STAGE_BYTES, CONSUMERS> ring(shared, full_c + 2 * CONSUMERS);
    const int thread = threadIdx.x, lane = thread % 32;
    const bool by_tma = aligned(A, lda) && aligned(B, ldb), c_by_tma = aligned(C, ldc) && n % 8 == 0;
    const int tile_rows = (m + ROWS - 1) / ROWS, tile_columns = (n + COLUMNS - 1) / COLUMNS;
    const int tiles = tile_rows * tile_columns;
    const auto corner = [&](int i) {
        const int2 tile = rasterize(i, tile_rows, tile_columns);
        return make_int2(tile.x * COLUMNS, tile.y * ROWS);
    };

    int tile = blockIdx.x, start = 0;  // of the warp that loads
    int2 at = corner(tile);            // column and row
    const auto load = [&] {
        unsigned char *const a = ring.bytes(), *const b = a + A_BYTES;
        unsigned long long *const full = &ring.full[ring.stage];
        if (by_tma) {
            mbarrier_arrive_expect_tx(full, STAGE_BYTES);
#pragma unroll
            for (int c = 0; c < CONSUMERS; ++c)
                cp_async_bulk_tensor_shared_global(b + c * B_BOX, map_b, at.x + c * BOX_COLUMNS, start, full);
            cp_async_bulk_tensor_shared_global(a, map_a, start, at.y, full);
        } else {
            copy_box(a, ROWS, {A, lda, m, k}, at.y, start, lane, 32);
            for (int c = 0; c < CONSUMERS; ++c)
                copy_box(b + c * B_BOX, DEPTH, {B, ldb, k, n}, start, at.x + c * BOX_COLUMNS, lane, 32);
            fence_proxy_async();
            mbarrier_arrive(full);
        }
        ring.advance();
        start += DEPTH;
        if (start >= k) {
            start = 0;
            tile += gridDim.x;
            if (tile < tiles)
                at = corner(tile);
        }
    };
    if (thread >= THREADS)
        griddepcontrol_wait();  // for rows that `copy` aligns
    if (thread == THREADS) {
        for (int c = 0; c < 2 * CONSUMERS; ++c)
            mbarrier_init(&full_c[c], 1);
        ring.init(by_tma ? 1 : 32);
        for (int s = 0; by_tma && k > 0 && s < STAGES && tile < tiles; ++s)
            load();  // before the other threads have started
    }
    __syncthreads();

    if (thread >= THREADS) {
        if (k > 0 && thread < THREADS + (by_tma ? 1 : 32))
            while (tile < tiles) {
                mbarrier_wait(&ring.empty[ring.stage], ring.parity ^ 1);
                load();
            }
        __syncwarp();
        return;
    }
    // Uniform in a warp, as the compiler can see, so that descriptors are in uniform registers. The ring of the producer is
    // advanced by one thread.
    Ring<STAGE_BYTES, CONSUMERS> own(shared, full_c + 2 * CONSUMERS);
    const int consumer = __shfl_sync(~0u, thread / 128, 0);
    const Matrix matrix = {C, ldc, m, n};
    PartOfC c = {matrix, map_c, c_by_tma, boxes + consumer * 2 * HALF, full_c + 2 * consumer, consumer + 1};
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const int2 at = corner(tile);
        const int column = at.x + consumer * BOX_COLUMNS;
        if (c_by_tma && beta != 0 && thread % 128 == 0)
            c.start(at.y, column);
        float sums[J][4] = {};
        for (int start = 0; start < k; start += DEPTH, own.advance()) {
            mbarrier_wait(&own.full[own.stage], own.parity);
            const unsigned long long a = descriptor(own.bytes());
            const unsigned long long b = descriptor(own.bytes() + A_BYTES + consumer * B_BOX);
            wgmma_fence();
#pragma unroll
            for (int p = 0; p < DEPTH; p += 16)
                // 64 x 16 elements of the transpose of B by 16 x ROWS of that of A
                wgmma_mma_async<BFLOAT16>(sums, b + p * ROW_BYTES / 16, a + 2 * p / 16);
            wgmma_commit_group();
            wgmma_wait_group<1>(sums);
            if (start > 0 && lane == 0)
                mbarrier_arrive(&own.empty[own.previous()]);
        }
        wgmma_wait_group<0>(sums);
        if (k > 0 && lane == 0)
            mbarrier_arrive(&own.empty[own.previous()]);
        if (beta != 0)
            c.update<true>(sums, alpha, beta, at.y, column);
        else
            c.update<false>(sums, alpha, beta, at.y, column);
    }
    cp_async_bulk_wait_group_read<0>();  // the block may end
}
