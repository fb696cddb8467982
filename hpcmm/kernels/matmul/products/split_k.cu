// Matrix product, GPU rung: the terms of a tile of C are split among warps of a block and blocks of a cluster.
//
// Small products have fewer tiles of C than SMs. Here the PARTS blocks of a cluster divide the terms of a tile, and so
// do the SLICES slices of each block; each slice computes the whole tile. Slices add up their sums through shared
// memory, blocks through distributed shared memory: each block adds up a share of the tile, from the sums that the
// other blocks send it, and stores that share. That needs no workspace, no atomics and no second kernel, and the order
// of additions is fixed. C is loaded before the main loop if a thread has registers left. Rows of A and B are copied as
// many elements at a time as their alignment allows; for a large product a launch before copies them to whole lines.
// Needs compute capability 9.0. Limit: adding up the sums takes longer with more slices and parts.
//
// hpcmm:
//   operation: matmul
//   shelf: product
//   change: warps of a block and blocks of a cluster divide the terms of a tile, whose size depends on the shape
//   counterpart: warp_tiled
//   dtypes: [float32]
//   architecture: sm_90
//   options: ['--ptxas-options=-O{LEVEL}']

#include "matmul/fma_tile.cuh"
#if COPIED
#include "matmul/whole_rows.cuh"
#endif

constexpr int OWN_FRAGMENTS = THREAD_ROWS * THREAD_COLUMNS / 4 / SLICES;  // vectors of C that a thread adds up
constexpr int SHARE = (OWN_FRAGMENTS + PARTS - 1) / PARTS;                // of these, added up by this block
// Whether C is loaded before the main loop, so that nothing waits for it: if a thread has registers left.
constexpr bool EARLY = SHARE <= 4 && THREAD_ROWS * THREAD_COLUMNS <= 64;

// Load C, if it is read, of the fragments that this block adds up: rank, rank + PARTS, ... of each thread.
template <Access ACCESS, class T>
__device__ void load(Vector (&before)[SHARE], const T &tile, int first_row, int first_column, float beta,
                     const Result<ACCESS> &result)
{
    const int rank = blockIdx.z;
    if (beta != 0)
#pragma unroll
        for (int i = 0; i < SHARE; ++i)
            if (i * PARTS + rank < OWN_FRAGMENTS)
                before[i] = result.load(first_row + tile.row_of(i * PARTS + rank),
                                        first_column + tile.column_of(i * PARTS + rank));
}

// Add up the sums of the blocks of a cluster, and write C. `before` is from `load`.
template <Access ACCESS, class T>
__device__ void finish(const T &tile, const Vector (&sums)[OWN_FRAGMENTS], Vector *exchange, int first_row,
                       int first_column, float alpha, float beta, const Vector (&before)[SHARE],
                       const Result<ACCESS> &result)
{
    const int rank = blockIdx.z;
    Vector total[SHARE];
    if (PARTS == 1)
#pragma unroll
        for (int i = 0; i < SHARE; ++i)
            total[i] = sums[i];
    else {
        exchange += threadIdx.x;  // [PARTS][SHARE][BLOCK]
        barrier_cluster_wait();   // all blocks have started, so that their shared memory can be written
#pragma unroll
        for (int f = 0; f < OWN_FRAGMENTS; ++f)
            st_shared_cluster_v4(mapa(exchange + (rank * SHARE + f / PARTS) * BLOCK, f % PARTS),
                                 *(const float4 *)&sums[f]);
        barrier_cluster_arrive();
        barrier_cluster_wait();
#pragma unroll
        for (int i = 0; i < SHARE; ++i) {
            if (OWN_FRAGMENTS % PARTS != 0 && i * PARTS + rank >= OWN_FRAGMENTS)
                continue;
            total[i] = exchange[i * BLOCK];
#pragma unroll
            for (int p = 1; p < PARTS; ++p) {
                const Vector other = exchange[(p * SHARE + i) * BLOCK];
#pragma unroll
                for (int e = 0; e < 4; ++e)
                    total[i].of[e] += other.of[e];
            }
        }
    }
#pragma unroll
    for (int i = 0; i < SHARE; ++i)
        if (OWN_FRAGMENTS % PARTS == 0 || i * PARTS + rank < OWN_FRAGMENTS)
            result.store(first_row + tile.row_of(i * PARTS + rank), first_column + tile.column_of(i * PARTS + rank),
                         alpha, total[i], beta, before[i]);
}

template <int EA, int EB>
__device__ void product(int m, int n, int k, float alpha, const float *A, int lda, const float *B, int ldb, float beta,
                        float *C, int ldc)
{
    extern __shared__ __align__(128) float shared[];
    using T = Tile<EA, EB, true>;
    const int rank = blockIdx.z, row = blockIdx.y * ROWS, column = blockIdx.x * COLUMNS;
    if (PARTS > 1)
        barrier_cluster_arrive();  // this block has started
    T tile(shared, lda, ldb);
    const int stages = (k + DEPTH - 1) / DEPTH;
    const int from = (long long)stages * rank / PARTS, to = (long long)stages * (rank + 1) / PARTS;
    tile.seek(A, B, m, n, row, column, from * DEPTH, min(k, to * DEPTH));
    const auto with_access = [&](const auto &use) {
        if (whole_vectors(C, n, ldc))
            use(Result<VECTORS>{C, m, n, ldc});
        else
            use(Result<BY_ROWS>{C, m, n, ldc});
    };
    Vector before[SHARE] = {}, sums[OWN_FRAGMENTS];
    tile.prologue();
    if (EARLY)
        with_access([&](const auto &result) { load(before, tile, row, column, beta, result); });
    tile.mainloop(to - from);
    tile.reduce_slices(sums);
    Vector *const exchange = (Vector *)(shared + SLICES * STAGES * T::STAGE);
    with_access([&](const auto &result) {
        if (!EARLY)  // before the sums of others arrive
            load(before, tile, row, column, beta, result);
        finish(tile, sums, exchange, row, column, alpha, beta, before, result);
    });
}

extern "C" __global__ void __cluster_dims__(1, 1, PARTS) __launch_bounds__(BLOCK, 1)
    matmul(int m, int n, int k, float alpha, const float *A, int lda, const float *B, int ldb, float beta, float *C,
           int ldc)
{
    if (COPIED)
        griddepcontrol_wait();  // for rows that `copy` aligns
    const int of_a = COPIED ? lda : lda | k, of_b = COPIED ? ldb : ldb | n;  // copied rows have zeros behind their ends
    // The code of the first branch is the first: a cold kernel waits for each line of its code after 64 KiB.
    if (A_WIDTH * B_WIDTH > 1 &&
        !(of_a % A_WIDTH == 0 && of_b % B_WIDTH == 0 && ((size_t)A | (size_t)B) % 16 == 0))
        product<1, 1>(m, n, k, alpha, A, lda, B, ldb, beta, C, ldc);
    else
        product<A_WIDTH, B_WIDTH>(m, n, k, alpha, A, lda, B, ldb, beta, C, ldc);
}
