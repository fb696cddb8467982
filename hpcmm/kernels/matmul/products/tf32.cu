// Matrix product, GPU rung for float32: one product of TF32, which rounds A and B to 11 bits.
//
// As persistent, with elements of 32 bits: a producer loads by TMA, which also rounds, consumers multiply, and blocks
// compute tile after tile. wgmma takes 16-bit operands by rows or by columns, but TF32 operands from shared memory only
// with neighbours along k side by side. A is stored in this order, B is not. So the block computes the transpose of C:
// the first operand is the transpose of B and comes from registers, where any order is as good, and the second one is
// the tile of A. A consumer has 64 columns of C, and loads its elements of the next stage while the products of this
// one run. Its order of columns is free. It is such that two columns of a lane are neighbours, and that with TMA's
// swizzle lanes that read at the same time access different banks. The first EARLY stages are loaded before the other
// threads start.
//
// For a narrow C, the PARTS blocks of a cluster divide the terms of one tile, as in split_k_wgmma, and each stores a
// share of its rows. A thread has the same elements of C in every block, so the sums go through distributed shared
// memory as they are. TMA takes only rows of a multiple of 16 bytes: `copy` writes other operands to a workspace with
// rows of whole lines of the L2 cache, once for all tiles. The result is checked against the error bound of TF32, not
// of float32. Runs on compute capability 9.0 only. Limit: the bandwidth from the L2 cache for small tiles, of shared
// memory for large ones, and the power limit for large products.
//
// hpcmm:
//   operation: matmul
//   shelf: product
//   change: float32 rounded to TF32 by TMA; the transpose of C from B in registers, and split-K for a narrow C
//   dtypes: [float32]
//   arithmetic: TF32
//   context: true
//   architecture: sm_90a

#include "matmul/rasterize.cuh"
#include "matmul/ring.cuh"
#include "matmul/swizzled_rows.cuh"
#include "matmul/whole_rows.cuh"
#include "ptx.cuh"

constexpr int J = ROWS / 8, CONSUMERS = COLUMNS / 64, THREADS = 128 * CONSUMERS;
constexpr int SHARE = J / PARTS;  // eights of rows that a block of the cluster adds up and stores
constexpr int BOX_COLUMNS = ROW_BYTES / sizeof(float), BOX_BYTES = DEPTH * ROW_BYTES;  // of a box of B
constexpr int BOXES = COLUMNS / BOX_COLUMNS, A_BYTES = ROWS * ROW_BYTES, B_BYTES = BOXES * BOX_BYTES;
constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
// Stages whose elements of B are in registers. With three, a consumer loads the next stage before it waits for the
// products of the previous one. It has to for few rows, whose products take no longer than the loads.
constexpr int BUFFERS = J > 16 ? 2 : 3;
constexpr int EARLY = 2;  // more would delay the consumers, which wait for the thread that loads
constexpr bool DIVIDED = CONSUMERS == 2 && J > 8;  // setmaxnreg divides the registers; the others have enough
static_assert(DEPTH == BOX_COLUMNS && CONSUMERS <= 2 && BLOCK == 128 + THREADS, "as the roles are divided");
static_assert(J % PARTS == 0 && (PARTS == 1 || ROWS * COLUMNS * 4 <= STAGES * STAGE_BYTES), "sums replace the stages");
static_assert(STAGES >= BUFFERS && STAGES >= EARLY, "a stage is read before an earlier one is released");

// Two neighbours in a row.
struct alignas(8) Two {
    float of[2];
};

// A or B, row-major.
struct Matrix {
    const float *elements;
    int ld, rows, columns;

    // Return whether rows start at multiples of 16 bytes, as TMA requires.
    __device__ bool aligned() const
    {
        return ld % 4 == 0 && (size_t)elements % 16 == 0;
    }
};

// Round to the nearest TF32 number, ties away from zero, as TMA does.
__device__ float rounded(float x)
{
    const unsigned bits = __float_as_uint(x);
    return (bits & 0x7f800000) == 0x7f800000 ? x : __uint_as_float((bits + 0x1000) & 0xffffe000);
}

// Copy a box by 128 threads, with zeros outside: part of a wider matrix, whose rows TMA cannot take.
__device__ void copy_box(unsigned char *box, int box_rows, const Matrix &from, int row, int column)
{
    const int x = threadIdx.x % BOX_COLUMNS;
#pragma unroll 2
    for (int y = threadIdx.x / BOX_COLUMNS; y < box_rows; y += 128 / BOX_COLUMNS) {
        const bool inside = row + y < from.rows && column + x < from.columns;
        ((float *)chunk_of(box, y, x / 4))[x % 4] =
            inside ? rounded(from.elements[(size_t)(row + y) * from.ld + column + x]) : 0;
    }
}

// The column of the tile of a lane's first element; its second one is beside it. Of the eight chunks in a row of a box,
// two warps have four each: lanes 0 to 15, which read at the same time, have two of each half of the row, and the
// swizzle by four rows spreads these over all banks.
__device__ int first_column(int consumer, int warp, int g)
{
    const int chunk = g / 2 % 2 * 4 + warp % 2 * 2 + g / 4;
    return consumer * 64 + warp / 2 * BOX_COLUMNS + chunk * 4 + g % 2 * 2;
}

// A lane's elements of B in a stage, for each 8 terms: columns x and x + 1 of term t, then of term t + 4. They are
// rows g and g + 8 of the first operand.
struct Fragments {
    float of[DEPTH / 8][4];

    // `place`: of the lane's elements of term t in the stage. Those of term t + 4 have another chunk by the swizzle.
    __device__ void load(const unsigned char *stage, int place)
    {
        const unsigned char *const low = stage + place, *const high = stage + (place ^ 4 * CHUNK_BYTES) + 4 * ROW_BYTES;
#pragma unroll
        for (int s = 0; s < DEPTH / 8; ++s) {
            const Two a = *(const Two *)(low + s * 8 * ROW_BYTES), b = *(const Two *)(high + s * 8 * ROW_BYTES);
            of[s][0] = a.of[0];
            of[s][1] = a.of[1];
            of[s][2] = b.of[0];
            of[s][3] = b.of[1];
        }
    }
};

// Start the products of a stage.
__device__ void multiply(float (&sums)[J][4], const Fragments &b, const unsigned char *a)
{
    const unsigned long long first = descriptor(a);
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < DEPTH / 8; ++s)
        wgmma_mma_async(sums, b.of[s], first + s * 32 / 16, true);  // in units of 16 bytes
    wgmma_commit_group();
}

// Epilogue: C = alpha sums + beta C in a lane's pairs of neighbours, in rows 8 j and 8 j + 1 from its first one on. beta =
// 0: C is not read. Few threads share an SM, so each has several loads in flight: the first part of C is loaded before
// the products of the tile, and each other part before the part before it is stored.
struct PairsOfC {
    static constexpr int AT_ONCE = SHARE > 16 ? 4 : 8, LOADED = 2;
    static_assert(SHARE % AT_ONCE == 0 || SHARE < AT_ONCE, "whole parts");

    float *from, *to;   // of the next part: stepped, because products with ldc would stay in registers
    int ldc;
    int rows, columns;  // inside C, from the first element on
    bool whole;         // all pairs are inside C and at multiples of 8 bytes
    Two old[LOADED][AT_ONCE][2];

    // Call f(row, its address, its pair of `old`) for the rows of the part from `first` on, and return the next part.
    template <class F> __device__ float *each(int first, float *c, F f)
    {
        const size_t next = ldc, next_pair = 7 * next;
#pragma unroll
        for (int j = first; j < min(first + AT_ONCE, SHARE); ++j, c += next_pair)
#pragma unroll
            for (int h = 0; h < 2; ++h, c += h == 1 ? next : 0)
                f(8 * j + h, c, old[j / AT_ONCE % LOADED][j % AT_ONCE][h]);
        return c;
    }

    __device__ void load(int first)
    {
        if (whole)
            from = each(first, from, [](int, const float *c, Two &pair) { pair = *(const Two *)c; });
        else
            from = each(first, from, [&](int row, const float *c, Two &pair) {
#pragma unroll
                for (int e = 0; e < 2; ++e)
                    pair.of[e] = row < rows && e < columns ? c[e] : 0;
            });
    }

    __device__ void update(const float (&sums)[J][4], float alpha, float beta)
    {
        const auto updated = [&](int row, const Two &before) {
            const float *const sum = sums[row / 8] + row % 8;
            const Two product = {alpha * sum[0], alpha * sum[2]};
            return beta == 0 ? product : Two{product.of[0] + beta * before.of[0], product.of[1] + beta * before.of[1]};
        };
#pragma unroll
        for (int first = 0; first < SHARE; first += AT_ONCE) {
            if (first + AT_ONCE < SHARE && beta != 0)
                load(first + AT_ONCE);
            if (whole)
                to = each(first, to, [&](int row, float *c, const Two &pair) { *(Two *)c = updated(row, pair); });
            else
                to = each(first, to, [&](int row, float *c, const Two &pair) {
                    const Two sum = updated(row, pair);
#pragma unroll
                    for (int e = 0; e < 2; ++e)
                        if (row < rows && e < columns)
                            c[e] = sum.of[e];
                });
        }
    }
};

// Add up the sums of the blocks of a cluster, in a fixed order. The first SHARE eights of `sums` are then this block's
// share of the rows.
__device__ void add_parts(float (&sums)[J][4], float4 *exchange, int rank)
{
    float4 *const own = exchange + threadIdx.x - 128;  // [J][THREADS]
    barrier_sync(1, THREADS);  // all consumers have read the stages
#pragma unroll
    for (int j = 0; j < J; ++j)
        own[j * THREADS] = make_float4(sums[j][0], sums[j][1], sums[j][2], sums[j][3]);
    barrier_cluster_arrive();
    barrier_cluster_wait();
#pragma unroll
    for (int j = 0; j < SHARE; ++j)
#pragma unroll
        for (int p = 0; p < PARTS; ++p) {
            const float4 part = ld_shared_cluster_v4(mapa(own + (rank * SHARE + j) * THREADS, p));
            const float of[4] = {part.x, part.y, part.z, part.w};
#pragma unroll
            for (int e = 0; e < 4; ++e)
                sums[j][e] = p == 0 ? of[e] : sums[j][e] + of[e];
        }
    barrier_cluster_arrive();  // this thread has read the sums of the others
}

extern "C" __global__ void
#if PARTS > 1  // a cluster of one block takes up to 6 % longer
    __cluster_dims__(1, 1, PARTS)
#endif
    __launch_bounds__(BLOCK, 1)
    matmul(int m, int n, int k, float alpha, const float *A, int lda, const float *B, int ldb, float beta, float *C,
           int ldc, const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    Ring<STAGE_BYTES, CONSUMERS> ring(shared, shared + STAGES * STAGE_BYTES);
    const int group = __shfl_sync(~0u, threadIdx.x / 128, 0), thread = threadIdx.x % 128;  // uniform in a warp
    const Matrix of_a = {A, lda, m, k}, of_b = {B, ldb, k, n};
    const bool by_tma = of_a.aligned() && of_b.aligned();
    const int tile_rows = (m + ROWS - 1) / ROWS, tile_columns = (n + COLUMNS - 1) / COLUMNS;
    const int tiles = tile_rows * tile_columns;  // with several parts, a cluster for each
    const int rank = blockIdx.z, all_steps = (k + DEPTH - 1) / DEPTH;
    const int begin = (long long)all_steps * rank / PARTS;
    const int steps = (int)((long long)all_steps * (rank + 1) / PARTS) - begin;  // of this block
    // Start the copies of a stage by TMA, by one thread.
    const auto load = [&](int stage, int row, int column, int step) {
        unsigned char *const a = shared + stage * STAGE_BYTES, *const b = a + A_BYTES;
        const int start = (begin + step) * DEPTH;
        mbarrier_arrive_expect_tx(&ring.full[stage], STAGE_BYTES);
        cp_async_bulk_tensor_shared_global(a, map_a, start, row, &ring.full[stage]);
#pragma unroll
        for (int q = 0; q < BOXES; ++q)
            cp_async_bulk_tensor_shared_global(b + q * BOX_BYTES, map_b, column + q * BOX_COLUMNS, start,
                                               &ring.full[stage]);
    };
    const int early = by_tma ? min(steps, EARLY) : 0;
    if (threadIdx.x == 0) {
        prefetch_tensormap(map_a);
        prefetch_tensormap(map_b);
        ring.init(by_tma ? 1 : 128);
        const int2 tile = rasterize(blockIdx.x, tile_rows, tile_columns);
#pragma unroll 1
        for (int s = 0; s < early; ++s)
            load(s, tile.y * ROWS, tile.x * COLUMNS, s);
    }
    __syncthreads();

    if (group == 0) {
        if constexpr (DIVIDED)
            setmaxnreg_dec<72>();
        if (!by_tma || thread == 0)
#pragma unroll 1
            for (int i = blockIdx.x; i < tiles; i += gridDim.x) {
                const int2 tile = rasterize(i, tile_rows, tile_columns);
                const int row = tile.y * ROWS, column = tile.x * COLUMNS;
#pragma unroll 1
                for (int step = 0; step < steps; ++step, ring.advance()) {
                    if (i == blockIdx.x && step < early)
                        continue;
                    mbarrier_wait(&ring.empty[ring.stage], ring.parity ^ 1);
                    if (by_tma) {
                        load(ring.stage, row, column, step);
                        continue;
                    }
                    unsigned char *const a = ring.bytes(), *const b = a + A_BYTES;
                    const int start = (begin + step) * DEPTH;
                    copy_box(a, ROWS, of_a, row, start);
#pragma unroll 1
                    for (int q = 0; q < BOXES; ++q)
                        copy_box(b + q * BOX_BYTES, DEPTH, of_b, start, column + q * BOX_COLUMNS);
                    fence_proxy_async();
                    mbarrier_arrive(&ring.full[ring.stage]);
                }
            }
        if constexpr (PARTS > 1) {
            __syncwarp();
            barrier_cluster_arrive();
            barrier_cluster_wait();
            barrier_cluster_arrive();
        }
    } else {
        if constexpr (DIVIDED)
            setmaxnreg_inc<216>();
        const int lane = thread % 32, t = lane % 4, x = first_column(group - 1, thread / 32, lane / 4);
        const int chunk = x % BOX_COLUMNS / 4 ^ t;
        const int place = __shfl_sync(~0u,  // the compiler does not compute it again for each stage
                                      A_BYTES + x / BOX_COLUMNS * BOX_BYTES + t * ROW_BYTES + chunk * CHUNK_BYTES +
                                          x % 4 * sizeof(float),
                                      lane);
        const bool aligned_pairs = ldc % 2 == 0 && (size_t)C % sizeof(Two) == 0;
#pragma unroll 1
        for (int i = blockIdx.x; i < tiles; i += gridDim.x) {
            const int2 tile = rasterize(i, tile_rows, tile_columns);
            const int row = tile.y * ROWS + rank * SHARE * 8 + 2 * t, column = tile.x * COLUMNS + x;
            float *const c = C + (size_t)row * ldc + column;
            PairsOfC pairs = {c, c, ldc, m - row, n - column};
            pairs.whole = (tile.y + 1) * ROWS <= m && (tile.x + 1) * COLUMNS <= n && aligned_pairs;
            if (beta != 0)
                pairs.load(0);
            float sums[J][4] = {};
            Fragments fragments[BUFFERS];
            const auto load = [&](Fragments &next) {
                mbarrier_wait(&ring.full[ring.stage], ring.parity);
                next.load(ring.bytes(), place);
            };
            if (steps > 0)
                load(fragments[0]);
#pragma unroll 1
            for (int first = 0; first < steps; first += BUFFERS)
#pragma unroll
                for (int b = 0; b < BUFFERS; ++b)
                    if (first + b < steps) {
                        Fragments &next = fragments[(b + 1) % BUFFERS];
                        const int before = ring.previous();
                        multiply(sums, fragments[b], ring.bytes());
                        ring.advance();
                        if (BUFFERS > 2 && first + b + 1 < steps)
                            load(next);
                        // The products of the stage before are complete, and so are the loads of their operands: TMA
                        // may overwrite it.
                        wgmma_wait_group<1>(sums);
                        if (first + b > 0 && lane == 0)
                            mbarrier_arrive(&ring.empty[before]);
                        if (BUFFERS == 2 && first + b + 1 < steps)
                            load(next);
                    }
            wgmma_wait_group<0>(sums);
            if constexpr (PARTS > 1)
                add_parts(sums, (float4 *)shared, rank);
            else if (steps > 0 && lane == 0)
                mbarrier_arrive(&ring.empty[ring.previous()]);
            pairs.update(sums, alpha, beta);
        }
    }
    if constexpr (PARTS > 1)
        barrier_cluster_wait();  // no block ends while another one may still read its sums
}
