// Matrix product, GPU rung for 16-bit types: the terms of a tile of C are split among the blocks of a cluster.
//
// Compared with multicast, the PARTS blocks of a cluster divide the terms of a tile instead of sharing B, so that a
// narrow C with many terms occupies all SMs. A block loads its first EARLY stages before any other thread has started.
// Blocks write their sums to their own shared memory, in place of the stages, and each reads a share of the rows from
// all of them, through distributed shared memory and in a fixed order. With one part, blocks compute tile after tile.
// TMA takes only rows of a multiple of 16 bytes: `copy` writes other operands to a workspace with such rows, once for
// all tiles. Runs on compute capability 9.0 only. Limit: threads store C, and the products of a tile do not hide the
// end of the previous one, so persistent is faster if all SMs have a tile and TMA takes the rows.
//
// hpcmm:
//   operation: matmul
//   shelf: product
//   change: the blocks of a cluster divide the terms of a tile; a first launch aligns rows that TMA cannot take
//   counterpart: persistent
//   dtypes: [float16, bfloat16]
//   architecture: sm_90a

#include "matmul/boxes.cuh"
#include "matmul/prefetch.cuh"
#include "matmul/ring.cuh"

constexpr int J = COLUMNS / 8, CONSUMERS = ROWS / 64, THREADS = 128 * CONSUMERS, Q = COLUMNS / BOX_COLUMNS;
constexpr int A_BYTES = ROWS * ROW_BYTES, B_BOX = DEPTH * ROW_BYTES, STAGE_BYTES = A_BYTES + Q * B_BOX;
constexpr int SHARE = (ROWS + PARTS - 1) / PARTS;  // rows of the tile that a block adds up
constexpr int PITCH = COLUMNS + 8;   // of rows of sums; avoids bank conflicts
constexpr int WARP_BOX = 16 * ROW_BYTES;
constexpr int EARLY = 2;  // more would delay the consumers, which wait for the thread that loads
constexpr bool DIVIDED = BLOCK == THREADS + 128;  // setmaxnreg divides the registers, among whole warpgroups
static_assert(EARLY <= STAGES, "early loads wait for no consumer");
static_assert(DEPTH == BOX_COLUMNS && (DIVIDED ? ROWS == 128 : BLOCK == THREADS + 32), "a warp loads");
static_assert(PARTS == 1 || ROWS * PITCH * 4 <= STAGES * STAGE_BYTES, "sums take the place of the stages");

struct alignas(8) Four {  // neighbours
    unsigned short of[4];
};

// Copy chunk i of a matrix to rows of whole chunks, at multiples of 16 bytes.
__device__ inline void copy_chunk(const Matrix &from, Element *to, unsigned i)
{
    const unsigned per_row = (from.columns + 7) / 8;
    const int row = i / per_row, column = i % per_row * 8;
    const Element *const first = from.elements + (size_t)row * from.ld + column;
    const int shift = (size_t)first % sizeof(Chunk) / sizeof(Element);
    if (column < shift || column - shift + 16 > from.columns) {
        ((Chunk *)to)[i] = from.load(row, column);
        return;
    }
    const uint4 low = ((const uint4 *)(first - shift))[0], high = ((const uint4 *)(first - shift))[1];
    unsigned words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int w = 0; w < 6; ++w)
        words[w] = shift & 4 ? words[w + 2] : words[w];
#pragma unroll
    for (int w = 0; w < 5; ++w)
        words[w] = shift & 2 ? words[w + 1] : words[w];
#pragma unroll
    for (int w = 0; w < 4; ++w)
        words[w] = shift & 1 ? prmt_b32(words[w], words[w + 1], 0x5432) : words[w];
    ((uint4 *)to)[i] = make_uint4(words[0], words[1], words[2], words[3]);
}

// Copy A (rows_a x columns_a) and B to rows of whole chunks; no rows: the matrix needs no copy.
extern "C" __global__ void __launch_bounds__(COPY_BLOCK)
    copy(int rows_a, int columns_a, const Element *A, int lda, Element *copy_a, int rows_b, int columns_b,
         const Element *B, int ldb, Element *copy_b)
{
    const unsigned chunks_a = rows_a * ((columns_a + 7u) / 8), chunks_b = rows_b * ((columns_b + 7u) / 8);
    const unsigned i = blockIdx.x * COPY_BLOCK + threadIdx.x;
    if (i < chunks_a)
        copy_chunk({A, lda, rows_a, columns_a}, copy_a, i);
    else if (i - chunks_a < chunks_b)
        copy_chunk({B, ldb, rows_b, columns_b}, copy_b, i - chunks_a);
}

// Call move(y, x, inside) for N neighbours at (y, x) each of 16 x 64 elements from (row, column) on, with 32 lanes.
template <int N, int UNROLL, class Move>
__device__ inline void for_each(const Matrix &c, int row, int column, const Move &move)
{
#pragma unroll UNROLL
    for (int i = threadIdx.x % 32; i < 16 * BOX_COLUMNS / N; i += 32) {
        const int y = i / (BOX_COLUMNS / N), x = i % (BOX_COLUMNS / N) * N;
        move(y, x, row + y < c.rows && column + x < c.columns);
    }
}

// C = alpha sums + beta C in a warp's 16 rows, through a box of 16 x 64 elements in shared memory, so that lanes access
// neighbours in C. `VECTORS`: rows of C are whole chunks at multiples of 16 bytes.
template <bool READ, bool VECTORS>
__device__ void update_rows(const float (&sums)[J][4], float alpha, float beta, const Matrix &c, unsigned char *box,
                            int row, int column)
{
    constexpr int N = VECTORS ? 8 : 1, UNROLL = VECTORS ? 4 : 2;
    const int lane = threadIdx.x % 32;
    Element *to = (Element *)c.elements + (size_t)row * c.ld + column;
#pragma unroll
    for (int q = 0; q < Q; ++q, column += BOX_COLUMNS, to += BOX_COLUMNS) {
        if (READ) {
            for_each<N, UNROLL>(c, row, column, [&](int y, int x, bool inside) {
                Chunk *const chunk = (Chunk *)chunk_of(box, y, x / 8);
                if (VECTORS)
                    *chunk = inside ? *(const Chunk *)(to + (size_t)y * c.ld + x) : Chunk{};
                else
                    chunk->of[x % 8] = inside ? to[(size_t)y * c.ld + x].bits : 0;
            });
            __syncwarp();
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            unsigned char *const chunk = chunk_of(box, lane % 16, 2 * i + lane / 16);
            unsigned pairs[4] = {};
            if (READ)
                ldmatrix_x4(pairs, chunk);
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const float *const pair = &sums[q * 8 + 2 * i + j / 2][j % 2 * 2];
                pairs[j] = READ ? to_pair(alpha * pair[0] + beta * to_float(pairs[j] & 0xffff),
                                          alpha * pair[1] + beta * to_float(pairs[j] >> 16))
                                : to_pair(alpha * pair[0], alpha * pair[1]);
            }
            stmatrix_x4(chunk, pairs);
        }
        __syncwarp();
        for_each<N, UNROLL>(c, row, column, [&](int y, int x, bool inside) {
            const Chunk *const chunk = (const Chunk *)chunk_of(box, y, x / 8);
            if (VECTORS && inside)
                *(Chunk *)(to + (size_t)y * c.ld + x) = *chunk;
            else if (inside)
                to[(size_t)y * c.ld + x].bits = chunk->of[x % 8];
        });
        __syncwarp();
    }
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
    Ring<STAGE_BYTES, CONSUMERS> ring(shared, mbarriers);  // of the producer
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
    int i = blockIdx.x;
    int2 at = corner(i);  // column and row

    int step = from;  // of the producer
    const auto load = [&] {
        unsigned char *const a = ring.bytes(), *const b = a + A_BYTES;
        const int start = step * DEPTH;
        if (by_tma) {
            unsigned long long *const full = &ring.full[ring.stage];
            mbarrier_arrive_expect_tx(full, STAGE_BYTES);
            cp_async_bulk_tensor_shared_global(a, map_a, start, at.y, full);
#pragma unroll
            for (int q = 0; q < Q; ++q)
                cp_async_bulk_tensor_shared_global(b + q * B_BOX, map_b, at.x + q * BOX_COLUMNS, start, full);
        } else {
            copy_box(a, ROWS, {A, lda, m, k}, at.y, start, lane, 32);
            for (int q = 0; q < Q; ++q)
                copy_box(b + q * B_BOX, DEPTH, {B, ldb, k, n}, start, at.x + q * BOX_COLUMNS, lane, 32);
            fence_proxy_async();
            mbarrier_arrive(&ring.full[ring.stage]);
        }
        ring.advance();
        if (++step == to) {
            step = from;
            i += gridDim.x;
            if (i < tiles)
                at = corner(i);
        }
    };
    if (thread == THREADS) {
        ring.init(by_tma ? 1 : 32);
        for (int s = 0; by_tma && s < EARLY && i < tiles && from < to; ++s)
            load();  // before the other threads have started
    }
    __syncthreads();

    float sums[J][4] = {};
    if (loads) {
        if (DIVIDED)
            setmaxnreg_dec<40>();
        if (thread < THREADS + (by_tma ? 1 : 32) && from < to)
            while (i < tiles) {
                mbarrier_wait(&ring.empty[ring.stage], ring.parity ^ 1);
                load();
            }
        __syncwarp();
    } else {
        if (DIVIDED)
            setmaxnreg_inc<232>();
        // Uniform in a warp, as the compiler can see, so that descriptors are in uniform registers. The ring of the
        // producer is advanced by one thread.
        Ring<STAGE_BYTES, CONSUMERS> ring(shared, mbarriers);
        const int consumer = __shfl_sync(~0u, thread / 128, 0);
        for (int i = blockIdx.x; i < tiles; i += gridDim.x) {
            const int2 at = corner(i);
            if (beta != 0)
                prefetch_tile(C, ldc, min(m, at.y + ROWS), n, at.y + rank * SHARE, at.x, SHARE, thread, THREADS);
            for (int step = from; step < to; ++step, ring.advance()) {
                mbarrier_wait(&ring.full[ring.stage], ring.parity);
                unsigned char *const a = ring.bytes(), *const b = a + A_BYTES;
                wgmma_fence();
                multiply(sums, a + consumer * 64 * ROW_BYTES, b);
                wgmma_commit_group();
                wgmma_wait_group<1>(sums);
                if (step > from && lane == 0)
                    mbarrier_arrive(&ring.empty[ring.previous()]);
            }
            wgmma_wait_group<0>(sums);
            if constexpr (PARTS > 1)
                break;
            if (from < to && lane == 0)
                mbarrier_arrive(&ring.empty[ring.previous()]);
            unsigned char *const box = boxes + thread / 32 * WARP_BOX;
            const int row = at.y + thread / 32 * 16;
            if (vectors && beta != 0)
                update_rows<true, true>(sums, alpha, beta, c, box, row, at.x);
            else if (vectors)
                update_rows<false, true>(sums, alpha, beta, c, box, row, at.x);
            else if (beta != 0)
                update_rows<true, false>(sums, alpha, beta, c, box, row, at.x);
            else
                update_rows<false, false>(sums, alpha, beta, c, box, row, at.x);
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
        barrier_cluster_arrive();
        barrier_cluster_wait();
        constexpr int FOURS = SHARE * (COLUMNS / 4), COUNT = (FOURS + THREADS - 1) / THREADS;
        const int first = loads ? ROWS * (COLUMNS / 4) : rank * FOURS + thread;  // of this thread
        const int end = min(rank * FOURS + FOURS, ROWS * (COLUMNS / 4));
        float4 totals[COUNT];
#pragma unroll
        for (int i = 0; i < COUNT; ++i)
            if (first + i * THREADS < end) {
                const int share = first + i * THREADS;
                float *const four = exchange + share / (COLUMNS / 4) * PITCH + share % (COLUMNS / 4) * 4;
                totals[i] = ld_shared_cluster_v4(mapa(four, 0));
#pragma unroll
                for (int p = 1; p < PARTS; ++p) {
                    const float4 part = ld_shared_cluster_v4(mapa(four, p));
                    totals[i] = make_float4(totals[i].x + part.x, totals[i].y + part.y, totals[i].z + part.z,
                                            totals[i].w + part.w);
                }
            }
        barrier_cluster_arrive();  // this thread has read the sums of the others
#pragma unroll
        for (int i = 0; i < COUNT; ++i)
            if (first + i * THREADS < end) {
                const int share = first + i * THREADS;
                const int row = at.y + share / (COLUMNS / 4), column = at.x + share % (COLUMNS / 4) * 4;
                if (row >= m || column >= n)
                    continue;
                Element *const to = C + (size_t)row * ldc + column;
                Four four = {};
                if (vectors && beta != 0)
                    four = *(const Four *)to;
                else if (beta != 0)
#pragma unroll
                    for (int e = 0; e < 4; ++e)
                        four.of[e] = column + e < n ? to[e].bits : 0;
                const float of[4] = {totals[i].x, totals[i].y, totals[i].z, totals[i].w};
#pragma unroll
                for (int e = 0; e < 4; e += 2) {
                    const float low = alpha * of[e], high = alpha * of[e + 1];
                    const unsigned pair = beta == 0 ? to_pair(low, high)
                                                    : to_pair(low + beta * to_float(four.of[e]),
                                                              high + beta * to_float(four.of[e + 1]));
                    four.of[e] = pair, four.of[e + 1] = pair >> 16;
                }
                if (vectors)
                    *(Four *)to = four;
                else
#pragma unroll
                    for (int e = 0; e < 4; ++e)
                        if (column + e < n)
                            to[e].bits = four.of[e];
            }
        barrier_cluster_wait();  // no block ends while another one may still read its sums
    }
}
