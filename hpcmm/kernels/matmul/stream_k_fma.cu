// Matrix product, GPU rung: persistent blocks divide the terms of tiles among them, and multiply by the FMA units.
//
// As oblong, with the tiles of split_k and the division of stream_k: one block an SM has as many whole tiles as all others
// have, and its part of the steps of those that are left. Of the blocks that add up parts of the same tile, the one
// that is done last adds these up, in the order of the blocks whichever that is. No block waits for another.
// The first stages of the next tile, and the elements of C that are read, are on their way before a tile is done.
// Needs compute capability 8.0.

#include "matmul/division.cuh"
#include "matmul/fma_tile.cuh"

// What a block has of a tile that it began, and of one that it did not.
__device__ __align__(16) float parts[MAX_BLOCKS][2][ROWS * COLUMNS];
// Blocks that are done with their part of a tile; none between two launches.
__device__ unsigned int done[2 * MAX_BLOCKS];

// Hand over the sums of a piece. True in the block that is the last of those with a piece of this tile: `sums` are
// those of all, then.
template <int N> __device__ bool add_up(Vector (&sums)[N], const Piece &piece, const Division &division)
{
    const int tile = piece.tile - division.rounds() * gridDim.x, thread = threadIdx.x;
    const int first = division.block_of((long long)tile * division.steps);
    const int last = division.block_of((long long)(tile + 1) * division.steps - 1);
    Vector *const part = (Vector *)parts[blockIdx.x][piece.from > 0];
#pragma unroll
    for (int f = 0; f < N; ++f)
        part[f * BLOCK + thread] = sums[f];
    __shared__ bool all;
    __threadfence();  // the part is visible before it is counted
    __syncthreads();
    if (thread == 0) {
        all = atomicAdd(&done[tile], 1u) == last - first;
        if (all)
            done[tile] = 0;
    }
    __syncthreads();
    if (!all)
        return false;
    __threadfence();
#pragma unroll
    for (int f = 0; f < N; ++f)
        sums[f] = {};
#pragma unroll 1
    for (int block = first; block <= last; ++block) {
        const Vector *const other = (const Vector *)parts[block][block > first];
#pragma unroll
        for (int f = 0; f < N; ++f) {
            const Vector v = other[f * BLOCK + thread];
#pragma unroll
            for (int e = 0; e < 4; ++e)
                sums[f].of[e] += v.of[e];
        }
    }
    return true;
}

template <int E>
__device__ void persistent_product(int m, int n, int k, float alpha, const float *A, int lda, const float *B, int ldb,
                                   float beta, float *C, int ldc)
{
    extern __shared__ __align__(128) float shared[];
    using T = Tile<E>;
    constexpr int OWN = T::OWN, AT_ONCE = OWN % 8 == 0 ? 8 : OWN;
    const Result result(C, m, n, ldc);
    T tile(shared, lda, ldb);
    // What a block is at stands in shared memory, not in registers, of which the products need all.
    __shared__ struct {
        Piece piece;
        int row, column;
    } at;
    auto division = [&] { return Division{((m + ROWS - 1) / ROWS) * ((n + COLUMNS - 1) / COLUMNS), max(1, (k + DEPTH - 1) / DEPTH)}; };
    // Go to the next piece, of which the first stages are on their way then. False if there is none.
    auto advance = [&](int i) {
        __syncthreads();  // all are done with the last one
        if (threadIdx.x == 0) {
            const Piece piece = division().piece(i);
            const int high = (m + ROWS - 1) / ROWS, wide = (n + COLUMNS - 1) / COLUMNS;
            const int of_group = GROUP * wide, group_row = piece.tile / of_group * GROUP;
            const int group_rows = min(GROUP, high - group_row);
            at.piece = piece;
            at.row = (group_row + piece.tile % of_group % group_rows) * ROWS;
            at.column = piece.tile % of_group / group_rows * COLUMNS;
        }
        __syncthreads();
        if (at.piece.to <= at.piece.from)
            return false;
        tile.seek(A, B, m, n, at.row, at.column, at.piece.from * DEPTH, min(k, at.piece.to * DEPTH));
        tile.start();
        return true;
    };
    bool more = advance(0);
#pragma unroll 1
    for (int i = 1; more; ++i) {
        if (beta != 0 && at.piece.to - at.piece.from == division().steps)
#pragma unroll 1
            for (int line = threadIdx.x; line < ROWS * (COLUMNS / 32); line += BLOCK) {
                const int row = at.row + line / (COLUMNS / 32), column = at.column + line % (COLUMNS / 32) * 32;
                if (row < m && column < n)
                    prefetch_global(C + (size_t)row * ldc + column);
            }
        tile.multiply(at.piece.to - at.piece.from);
        Vector sums[OWN];
        tile.add_slices(sums);
        const Piece piece = at.piece;
        const int row = at.row, column = at.column;
        more = advance(i);
        if (piece.to - piece.from == division().steps || add_up(sums, piece, division())) {
#pragma unroll
            for (int from = 0; from < OWN; from += AT_ONCE) {
                Vector before[AT_ONCE] = {};
                if (beta != 0)
#pragma unroll
                    for (int f = 0; f < AT_ONCE; ++f)
                        before[f] = result.load(row + tile.row_of(from + f), column + tile.column_of(from + f));
#pragma unroll
                for (int f = 0; f < AT_ONCE; ++f)
                    result.store(row + tile.row_of(from + f), column + tile.column_of(from + f), alpha, sums[from + f], beta,
                                 before[f]);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK, 1)
    matmul(int m, int n, int k, float alpha, const float *A, int lda, const float *B, int ldb, float beta, float *C, int ldc)
{
    if ((lda | ldb | n | k) % 4 == 0 && ((size_t)A | (size_t)B) % 16 == 0)
        persistent_product<4>(m, n, k, alpha, A, lda, B, ldb, beta, C, ldc);
    else
        persistent_product<1>(m, n, k, alpha, A, lda, B, ldb, beta, C, ldc);
}
