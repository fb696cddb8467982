// Matrix product, GPU rung for 16-bit types: the terms of a tile of C are split among the blocks of a cluster.
//
// Compared with multicast, the PARTS blocks of a cluster divide the terms of a tile instead of sharing B, so that a
// narrow C with many terms occupies all SMs. A block loads its first EARLY stages before any other thread has started.
// Blocks write their sums to their own shared memory, in place of the stages, and each reads a share of the rows from
// all of them, through distributed shared memory and in a fixed order. With one part, blocks compute tile after tile.
// TMA takes only rows of a multiple of 16 bytes: `copy` writes other operands to a workspace with such rows, once for
// all tiles. If operands are small, blocks start while it still runs. Runs on compute capability 9.0 only. Limit:
// threads store C, and the products of a tile do not hide the end of the previous one, so persistent is faster if all
// SMs have a tile and TMA takes the rows.
//
// hpcmm:
//   operation: matmul
//   shelf: product
//   change: the blocks of a cluster divide the terms of a tile; a first launch aligns rows that TMA cannot take
//   counterpart: persistent
//   dtypes: [float16, bfloat16]
//   architecture: sm_90a

#include "matmul/copied_rows.cuh"
#include "matmul/division.cuh"
#include "matmul/parts_of_c.cuh"
#include "matmul/prefetch.cuh"
#include "matmul/ring.cuh"

#ifndef STREAM_K
#define STREAM_K 0  // whether blocks divide the steps of tiles that do not fill a wave
#endif

constexpr int J = COLUMNS / 8, CONSUMERS = ROWS / 64, THREADS = 128 * CONSUMERS;
constexpr int A_BYTES = ROWS * ROW_BYTES, B_BOX = DEPTH * ROW_BYTES, STAGE_BYTES = A_BYTES + Q * B_BOX;
constexpr int SHARE = (ROWS + PARTS - 1) / PARTS;  // rows of the tile that a block adds up
constexpr int PITCH = COLUMNS + 8;   // of rows of sums; avoids bank conflicts
constexpr int EARLY = 2;  // more would delay the consumers, which wait for the thread that loads
constexpr bool DIVIDED = BLOCK == THREADS + 128;  // setmaxnreg divides the registers, among whole warpgroups
static_assert(EARLY <= STAGES, "early loads wait for no consumer");
static_assert(DEPTH == BOX_COLUMNS && (DIVIDED ? ROWS == 128 : BLOCK == THREADS + 32), "a warp loads");
static_assert(PARTS == 1 || ROWS * PITCH * 4 <= STAGES * STAGE_BYTES, "sums take the place of the stages");

#if STREAM_K
// The sums of a block's pieces: [0] of a tile whose first step it computes, [1] of another tile.
__device__ float4 pieces[MAX_BLOCKS][2][J * THREADS];
// The number of blocks that have finished their piece of a tile; 0 between launches.
__device__ unsigned int done[2 * MAX_BLOCKS];
#endif

// Publish the sums of a piece. The last block to finish a piece of this tile adds up the sums of all in the order of k,
// and returns true. Called by all consumers; `all` is shared by them.
template <int N> __device__ bool fix_up(float (&sums)[N][4], const Piece &piece, const Division &division, int *all)
{
#if STREAM_K
    const Divided of = division.divided(piece);
    const int thread = threadIdx.x;
    float4 *const own = pieces[blockIdx.x][piece.from > 0] + thread;
#pragma unroll
    for (int j = 0; j < N; ++j)
        own[j * THREADS] = make_float4(sums[j][0], sums[j][1], sums[j][2], sums[j][3]);
    __threadfence();  // the sums are visible before they are counted
    barrier_sync(1, THREADS);
    if (thread == 0) {
        *all = atomicAdd(&done[of.tile], 1u) == of.last - of.first;
        if (*all)
            done[of.tile] = 0;
    }
    barrier_sync(1, THREADS);
    if (!*all)
        return false;
    __threadfence();
#pragma unroll
    for (int j = 0; j < N; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e)
            sums[j][e] = 0;
#pragma unroll 1
    for (int block = of.first; block <= of.last; ++block) {
        const float4 *const other = pieces[block][block > of.first] + thread;
#pragma unroll
        for (int j = 0; j < N; ++j) {
            const float4 part = other[j * THREADS];
            sums[j][0] += part.x, sums[j][1] += part.y, sums[j][2] += part.z, sums[j][3] += part.w;
        }
    }
#endif
    return true;
}

extern "C" __global__ void
#if PARTS > 1  // a cluster of one block takes up to 6 % longer
    __cluster_dims__(1, 1, PARTS)
#endif
    __launch_bounds__(BLOCK, 1)
    matmul(int m, int n, int k, float alpha, const Element *A, int lda, const Element *B, int ldb, float beta,
           Element *C, int ldc, const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    unsigned char *const boxes = shared + STAGES * STAGE_BYTES;  // [4 CONSUMERS] for C, if no other block has terms
    unsigned char *const mbarriers = boxes + (PARTS == 1 ? 4 * CONSUMERS * WARP_BOX : 0);
    Ring<STAGE_BYTES, CONSUMERS> ring(shared, mbarriers);
    const int thread = threadIdx.x, lane = thread % 32, rank = blockIdx.z;
    const int tile_rows = (m + ROWS - 1) / ROWS, tile_columns = (n + COLUMNS - 1) / COLUMNS;
    const int tiles = tile_rows * tile_columns;  // with several parts, a cluster for each
    const auto corner = [&](int i) {
        const int2 tile = rasterize(i, tile_rows, tile_columns);
        return make_int2(tile.x * COLUMNS, tile.y * ROWS);
    };
    const int stages = (k + DEPTH - 1) / DEPTH;
    const int from = (long long)stages * rank / PARTS, to = (long long)stages * (rank + 1) / PARTS;
    const bool by_tma = aligned(A, lda) && aligned(B, ldb), vectors = aligned(C, ldc) && n % 8 == 0;
    const bool loads = thread >= THREADS;
    const Matrix c = {C, ldc, m, n};
    const Division division = {tiles, max(1, stages)};
    // This block's i-th piece of a tile: all steps of its part, or those that it computes of tiles that blocks divide.
    const auto piece_of = [&](int i) -> Piece {
        if constexpr (!STREAM_K)
            return {(int)(blockIdx.x + i * gridDim.x), from, to};
        const Piece piece = division.piece(i);
        return {piece.from < piece.to ? piece.tile : tiles, piece.from, min(piece.to, stages)};
    };
    const auto load_by_tma = [&](const auto &ring, const int2 &at, int start) {
        unsigned char *const a = ring.bytes(), *const b = a + A_BYTES;
        unsigned long long *const full = &ring.full[ring.stage];
        mbarrier_arrive_expect_tx(full, STAGE_BYTES);
        cp_async_bulk_tensor_shared_global(a, map_a, start, at.y, full);
#pragma unroll
        for (int q = 0; q < Q; ++q)
            cp_async_bulk_tensor_shared_global(b + q * B_BOX, map_b, at.x + q * BOX_COLUMNS, start, full);
    };
    Piece piece = piece_of(0);
    int2 at = corner(piece.tile);  // column and row
    // Steps that one thread loads before the other threads have started
    int early = by_tma && piece.tile < tiles ? min(piece.to - piece.from, EARLY) : 0;
    if (thread == THREADS)
        ring.init(by_tma ? 1 : 32);
    if (loads)
        griddepcontrol_wait();  // for rows that `copy` aligns
    if (thread == THREADS) {
        auto first = ring;
#pragma unroll 1  // less code before the first products
        for (int step = 0; step < early; ++step, first.advance())
            load_by_tma(first, at, (piece.from + step) * DEPTH);
    }
    __syncthreads();

    // Uniform in a warp, as the compiler can see, so that the addresses of copies and descriptors are in uniform registers.
    const int warp = __shfl_sync(~0u, thread / 32, 0), consumer = warp / 4;
    float sums[J][4] = {};
    if (consumer == CONSUMERS) {
        if (DIVIDED)
            setmaxnreg_dec<40>();
        ring.skip(early);
        for (int i = 0; warp == THREADS / 32 && piece.tile < tiles; piece = piece_of(++i), early = 0) {  // the producer
            if (i > 0)
                at = corner(piece.tile);
            for (int step = piece.from + early; step < piece.to; ++step, ring.advance()) {
                mbarrier_wait(&ring.empty[ring.stage], ring.parity ^ 1);
                const int start = step * DEPTH;
                if (!by_tma) {
                    unsigned char *const a = ring.bytes(), *const b = a + A_BYTES;
                    copy_box(a, ROWS, {A, lda, m, k}, at.y, start, lane, 32);
                    for (int q = 0; q < Q; ++q)
                        copy_box(b + q * B_BOX, DEPTH, {B, ldb, k, n}, start, at.x + q * BOX_COLUMNS, lane, 32);
                    fence_proxy_async();
                    mbarrier_arrive(&ring.full[ring.stage]);
                } else if (lane == 0)
                    load_by_tma(ring, at, start);
                __syncwarp();
            }
        }
    } else {
        if (DIVIDED)
            setmaxnreg_inc<232>();
        for (int i = 0; piece.tile < tiles; piece = piece_of(++i)) {
            if (i > 0)
                at = corner(piece.tile);
            if (beta != 0)
                prefetch_tile(C, ldc, min(m, at.y + ROWS), n, at.y + rank * SHARE, at.x, SHARE, thread, THREADS);
            for (int step = piece.from; step < piece.to; ++step, ring.advance()) {
                mbarrier_wait(&ring.full[ring.stage], ring.parity);
                unsigned char *const a = ring.bytes(), *const b = a + A_BYTES;
                wgmma_fence();
                multiply(sums, a + consumer * 64 * ROW_BYTES, b);
                wgmma_commit_group();
                wgmma_wait_group<1>(sums);
                if (step > piece.from && lane == 0)
                    mbarrier_arrive(&ring.empty[ring.previous()]);
            }
            wgmma_wait_group<0>(sums);
            if constexpr (PARTS > 1)
                break;
            if (piece.from < piece.to && lane == 0)
                mbarrier_arrive(&ring.empty[ring.previous()]);
            unsigned char *const box = boxes + thread / 32 * WARP_BOX;
            const int row = at.y + thread / 32 * 16;
            if (!STREAM_K || piece.to - piece.from == stages || fix_up(sums, piece, division, (int *)ring.end()))
                update_rows(sums, alpha, beta, c, box, row, at.x);
#pragma unroll
            for (int j = 0; j < J; ++j)
#pragma unroll
                for (int e = 0; e < 4; ++e)
                    sums[j][e] = 0;
        }
    }

    if constexpr (PARTS > 1) {
        at = corner(blockIdx.x);
        float *const exchange = (float *)shared;  // [ROWS][PITCH]
        if (!loads) {
            barrier_sync(1, THREADS);  // the products of all consumers are complete
            float *const own = exchange + (thread / 32 * 16 + lane / 4) * PITCH + lane % 4 * 2;
#pragma unroll
            for (int j = 0; j < J; ++j)
#pragma unroll
                for (int h = 0; h < 2; ++h)
                    *(float2 *)(own + 8 * h * PITCH + 8 * j) = make_float2(sums[j][2 * h], sums[j][2 * h + 1]);
        }
        constexpr int FOURS = SHARE * (COLUMNS / 4), COUNT = (FOURS + THREADS - 1) / THREADS;
        const int first = loads ? ROWS * (COLUMNS / 4) : rank * FOURS + thread;  // of this thread
        const int end = min(rank * FOURS + FOURS, ROWS * (COLUMNS / 4));
        const auto for_each = [&](auto what) {  // four neighbours, at (y, x) of the tile
#pragma unroll
            for (int i = 0; i < COUNT; ++i)
                if (first + i * THREADS < end) {
                    const int share = first + i * THREADS;
                    what(i, share / (COLUMNS / 4), share % (COLUMNS / 4) * 4);
                }
        };
        const auto inside = [&](int y, int x) { return at.y + y < m && at.x + x < n; };
        Element *const to = C + (size_t)at.y * ldc + at.x;
        uint2 old[COUNT] = {};
        if (beta != 0 && vectors)
            for_each([&](int i, int y, int x) {
                if (inside(y, x))
                    old[i] = *(const uint2 *)(to + (size_t)y * ldc + x);
            });
        else if (beta != 0)
            for_each([&](int i, int y, int x) {
                if (inside(y, x))
                    old[i] = load_four(to + (size_t)y * ldc + x, false, n - at.x - x);
            });
        barrier_cluster_arrive();
        barrier_cluster_wait();
        float4 sums_of[COUNT][PARTS];
        for_each([&](int i, int y, int x) { load_parts(sums_of[i], exchange + y * PITCH + x); });
        barrier_cluster_arrive();  // this thread has read the sums of the others
        for_each([&](int i, int y, int x) {
            if (inside(y, x))
                store_four(to + (size_t)y * ldc + x, vectors, n - at.x - x, alpha, total(sums_of[i]), beta, old[i]);
        });
        barrier_cluster_wait();  // no block ends while another one may still read its sums
    }
}
