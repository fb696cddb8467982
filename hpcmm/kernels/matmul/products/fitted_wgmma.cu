// Matrix product, GPU rung for 16-bit types: as many rows of C in a tile as occupy the SMs best.
//
// wgmma multiplies 64 rows at a time, so tiles of the other rungs have multiples of 64 rows: with 133 rows of C, a third
// of the products of a tile of 192 rows are products of zeros. But it has any multiple of 8 columns. Here persistent
// blocks compute tiles of the transpose of C, as those of few_rows_wgmma: 64 columns of C for each consumer, and ROWS
// rows, a multiple of 8 that follows from m, n and the SM count. After the steps of k, the ring of stages holds the tile
// of C: the old one arrives while the last products are computed, stmatrix transposes the sums of a warp back into it,
// and TMA writes it to C while the next tile is computed. A first launch aligns rows of A and B that TMA cannot take, as
// for split_k_wgmma. Runs on compute capability 9.0 only. Limit: small tiles load more of A and B for each product.
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
constexpr int A_BOX = ROWS * ROW_BYTES, BOXES = DEPTH / BOX_COLUMNS, A_BYTES = BOXES * A_BOX;
constexpr int B_BOX = DEPTH * ROW_BYTES, STAGE_BYTES = A_BYTES + CONSUMERS * B_BOX;
// Stages that hold C, of HELD boxes of 64 columns each: a box for each consumer
constexpr int C_BOX = ROWS * ROW_BYTES, HELD = STAGE_BYTES / C_BOX, C_STAGES = (CONSUMERS + HELD - 1) / HELD;
constexpr int EARLY = STAGES < 3 ? STAGES : 3;  // more would delay the consumers, which wait for the thread that loads
static_assert(ROWS % 8 == 0 && DEPTH % BOX_COLUMNS == 0 && C_STAGES < STAGES && BLOCK == THREADS + 32, "a warp loads");

// C = alpha sums + beta C in a consumer's box. READ: it holds the old C.
template <bool READ> __device__ void update(const float (&sums)[J][4], float alpha, float beta, unsigned char *box)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
#pragma unroll
    for (int j = 0; j < J; j += 2) {
        // of four matrices of 8 x 8 elements: 16 rows and 16 columns of C; with the last 8 rows, twice the same two
        const int more = j + 1 < J;
        unsigned char *const chunk = chunk_of(box, (j + more * (lane / 16)) * 8 + lane % 8, warp * 2 + lane / 8 % 2);
        unsigned pairs[4] = {};
        if (READ)
            ldmatrix_x4_trans(pairs, chunk);
#pragma unroll
        for (int q = 0; q < 4; ++q) {
            const float *const pair = &sums[j + more * (q / 2)][q % 2 * 2];
            pairs[q] = READ ? to_pair(alpha * pair[0] + beta * to_float(pairs[q] & 0xffff),
                                      alpha * pair[1] + beta * to_float(pairs[q] >> 16))
                            : to_pair(alpha * pair[0], alpha * pair[1]);
        }
        stmatrix_x4_trans(chunk, pairs);
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK, 1)
    matmul(int m, int n, int k, float alpha, const Element *A, int lda, const Element *B, int ldb, float beta,
           Element *C, int ldc, const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
           const __grid_constant__ TensorMap map_c)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    Ring<STAGE_BYTES, CONSUMERS> ring(shared, shared + STAGES * STAGE_BYTES);
    const int thread = threadIdx.x, lane = thread % 32, steps = (k + DEPTH - 1) / DEPTH;
    const bool by_tma = aligned(A, lda) && aligned(B, ldb), c_by_tma = aligned(C, ldc) && n % 8 == 0;
    const int tile_rows = (m + ROWS - 1) / ROWS, tile_columns = (n + COLUMNS - 1) / COLUMNS;
    const int tiles = tile_rows * tile_columns;
    const auto corner = [&](int i) {
        const int2 tile = rasterize(i, tile_rows, tile_columns);
        return make_int2(tile.x * COLUMNS, tile.y * ROWS);
    };

    const auto load_by_tma = [&](const auto &ring, const int2 &at, int start) {
        unsigned char *const a = ring.bytes(), *const b = a + A_BYTES;
        unsigned long long *const full = &ring.full[ring.stage];
        mbarrier_arrive_expect_tx(full, STAGE_BYTES);
#pragma unroll
        for (int c = 0; c < CONSUMERS; ++c)
            cp_async_bulk_tensor_shared_global(b + c * B_BOX, map_b, at.x + c * BOX_COLUMNS, start, full);
#pragma unroll
        for (int i = 0; i < BOXES; ++i)
            cp_async_bulk_tensor_shared_global(a + i * A_BOX, map_a, start + i * BOX_COLUMNS, at.y, full);
    };
    const auto load = [&](const int2 &at, int start) {
        unsigned char *const a = ring.bytes(), *const b = a + A_BYTES;
        if (by_tma) {
            if (lane == 0)
                load_by_tma(ring, at, start);
        } else {
            for (int c = 0; c < CONSUMERS; ++c)
                copy_box(b + c * B_BOX, DEPTH, {B, ldb, k, n}, start, at.x + c * BOX_COLUMNS, lane, 32);
            for (int i = 0; i < BOXES; ++i)
                copy_box(a + i * A_BOX, ROWS, {A, lda, m, k}, at.y, start + i * BOX_COLUMNS, lane, 32);
            fence_proxy_async();
            mbarrier_arrive(&ring.full[ring.stage]);
        }
        __syncwarp();
    };
    // Make a stage hold C, the old one if it is read.
    const auto load_c = [&](const int2 &at, int first) {
        unsigned long long *const full = &ring.full[ring.stage];
        if (beta != 0 && c_by_tma && lane == 0) {
            const int boxes = min(HELD, CONSUMERS - first);
            mbarrier_arrive_expect_tx(full, boxes * C_BOX);
#pragma unroll 1
            for (int i = 0; i < boxes; ++i)
                cp_async_bulk_tensor_shared_global(ring.bytes() + i * C_BOX, map_c, at.x + (first + i) * BOX_COLUMNS, at.y,
                                                   full);
        } else if (!by_tma || lane == 0)
            mbarrier_arrive(full);
        __syncwarp();
    };
    int loaded = by_tma && blockIdx.x < tiles ? min(steps, EARLY) : 0;  // steps, before the other threads have started
    if (thread == THREADS)
        for (const TensorMap *map : {&map_a, &map_b, &map_c})
            prefetch_tensormap(*map);
    if (thread >= THREADS)
        griddepcontrol_wait();  // for rows that `copy` aligns
    if (thread == THREADS) {
        auto first = ring;
        first.init(by_tma ? 1 : 32);
#pragma unroll 1  // less code before the first products
        for (int step = 0; step < loaded; ++step, first.advance())
            load_by_tma(first, corner(blockIdx.x), step * DEPTH);
    }
    __syncthreads();

    // Uniform in a warp, as the compiler can see, so that the addresses of copies and descriptors are in uniform registers.
    const int consumer = __shfl_sync(~0u, thread / 128, 0);
    if (consumer == CONSUMERS) {  // the producer
        ring.skip(loaded);
        for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, loaded = 0) {
            const int2 at = corner(tile);
            for (int step = loaded; step < steps + C_STAGES; ++step, ring.advance()) {
                mbarrier_wait(&ring.empty[ring.stage], ring.parity ^ 1);
                if (step < steps)
                    load(at, step * DEPTH);
                else
                    load_c(at, (step - steps) * HELD);
            }
        }
        return;
    }
    const bool stores = c_by_tma && thread % 128 == 0;
    int stored = -1;  // stage from which TMA writes C
    const auto release = [&](int stage) {
        if (lane == 0)
            mbarrier_arrive(&ring.empty[stage]);
    };
    const auto release_stored = [&] {
        if (stores && stored >= 0) {
            cp_async_bulk_wait_group_read<0>();
            mbarrier_arrive(&ring.empty[stored]);
        }
        stored = -1;
    };
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const int2 at = corner(tile);
        float sums[J][4] = {};
        for (int step = 0; step < steps; ++step, ring.advance()) {
            mbarrier_wait(&ring.full[ring.stage], ring.parity);
            const unsigned long long a = descriptor(ring.bytes());
            const unsigned long long b = descriptor(ring.bytes() + A_BYTES + consumer * B_BOX);
            wgmma_fence();
#pragma unroll
            for (int p = 0; p < DEPTH; p += 16)
                // 64 x 16 elements of the transpose of B by 16 x ROWS of that of A
                wgmma_mma_async<BFLOAT16>(sums, b + p * ROW_BYTES / 16,
                                          a + (p / BOX_COLUMNS * A_BOX + p % BOX_COLUMNS * 2) / 16);
            wgmma_commit_group();
            wgmma_wait_group<1>(sums);
            if (step > 0)
                release(ring.previous());
            else
                release_stored();
        }
        wgmma_wait_group<0>(sums);
        if (steps > 0)
            release(ring.previous());
        else
            release_stored();

        const int column = at.x + consumer * BOX_COLUMNS;
        const Matrix c = {C, ldc, min(m, at.y + ROWS), n};
        for (int i = 0; i < C_STAGES; ++i, ring.advance()) {
            // All consumers wait, also those whose box is in another stage. Otherwise one could release this stage while
            // others still read what was in it before.
            mbarrier_wait(&ring.full[ring.stage], ring.parity);
            if (i != consumer / HELD) {
                release(ring.stage);
                continue;
            }
            unsigned char *const box = ring.bytes() + consumer % HELD * C_BOX;
            if (beta != 0 && !c_by_tma) {
                copy_box(box, ROWS, c, at.y, column, thread % 128, 128);
                barrier_sync(1 + consumer, 128);
            }
            if (beta != 0)
                update<true>(sums, alpha, beta, box);
            else
                update<false>(sums, alpha, beta, box);
            fence_proxy_async();
            barrier_sync(1 + consumer, 128);
            if (!c_by_tma)  // 16 rows of each warp in turns
                for (int y = thread % 128 / 32 * 16; y < ROWS; y += 64)
                    store_pairs(c, C + (size_t)(at.y + y) * ldc + column, box + y * ROW_BYTES, at.y + y, column);
            __syncwarp();
            if (stores) {
                if (column < n)
                    cp_async_bulk_tensor_global_shared(map_c, column, at.y, box);
                cp_async_bulk_commit_group();
                stored = ring.stage;
            } else
                release(ring.stage);
        }
    }
    cp_async_bulk_wait_group_read<0>();  // the block may end
}
