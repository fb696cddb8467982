// Matrix product, GPU rung: persistent blocks divide the terms of tiles, and multiply on the FMA units.
//
// As large_thread_tile, with the division of stream_k and the tiles of split_k or of fma_columns.cuh. With the latter,
// two blocks fit on an SM, and one multiplies while the other waits. The resident blocks compute the same number of
// whole tiles and an equal share of the steps of the remaining tiles; in builds of whole tiles, a block has one tile.
// Of the blocks that share a tile, the last to finish adds up their sums in the order of the blocks, so the result does
// not depend on which block that is. No block waits for another. The loads of the next tile's first stages, and of C if
// it is read, start before a tile is finished. Needs compute capability 8.0. Limit: the rate of the FMA units.
//
// hpcmm:
//   operation: matmul
//   shelf: product
//   change: persistent blocks divide the terms of tiles if SMs would be idle; products ordered by register banks
//   counterpart: large_thread_tile
//   dtypes: [float32]
//   architecture: sm_80
//   options: ['--ptxas-options=-O1']

#include "matmul/division.cuh"
#include "matmul/prefetch.cuh"
#include "matmul/rasterize.cuh"
#if SLICES == 1
#include "matmul/fma_columns.cuh"
template <int EA, int EB> using TileOf = Tile<EB>;
#else
#include "matmul/fma_tile.cuh"
template <int EA, int EB> using TileOf = Tile<EA, EB, false>;
#endif

// The sums of a block's pieces: [0] of a tile whose first step it computes, [1] of another tile.
__device__ __align__(16) float pieces[MAX_BLOCKS][2][ROWS * COLUMNS];
__device__ unsigned int done[2 * MAX_BLOCKS];

// Fix-up: publish the sums of a piece. The last block to finish a piece of this tile adds up the sums of all pieces and
// returns true.
template <int N> __device__ bool fix_up(Vector (&sums)[N], const Piece &piece, const Division &division)
{
    const Divided of = division.divided(piece);
    const int thread = threadIdx.x;
    Vector *const own = (Vector *)pieces[blockIdx.x][piece.from > 0];
#pragma unroll
    for (int f = 0; f < N; ++f)
        own[f * BLOCK + thread] = sums[f];
    if (!is_last(done, of))
        return false;
#pragma unroll
    for (int f = 0; f < N; ++f)
        sums[f] = {};
    constexpr int AT_ONCE = N < 8 ? 8 / N : 1;  // pieces that are loaded at the same time
#pragma unroll 1
    for (int first = of.first; first <= of.last; first += AT_ONCE) {
        Vector others[AT_ONCE][N];
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i)
            if (first + i <= of.last)
#pragma unroll
                for (int f = 0; f < N; ++f)
                    others[i][f] = ((const Vector *)pieces[first + i][first + i > of.first])[f * BLOCK + thread];
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i)
            if (first + i <= of.last)
#pragma unroll
                for (int f = 0; f < N; ++f)
#pragma unroll
                    for (int e = 0; e < 4; ++e)
                        sums[f].of[e] += others[i][f].of[e];
    }
    return true;
}

#if SLICES > 1
// Write alpha sums + beta C to the tile at `row` and `column`.
template <class T>
__device__ void write(const T &tile, const Vector (&sums)[T::OWN_FRAGMENTS], float *C, int ldc, int m, int n, int row,
                      int column, float alpha, float beta)
{
    constexpr int FRAGMENTS = T::OWN_FRAGMENTS, PASS_FRAGMENTS = FRAGMENTS % 8 == 0 ? 8 : FRAGMENTS;
    const auto in_passes = [&](const auto &result) {
#pragma unroll
        for (int from = 0; from < FRAGMENTS; from += PASS_FRAGMENTS) {
            Vector before[PASS_FRAGMENTS] = {};
            if (beta != 0)
#pragma unroll
                for (int f = 0; f < PASS_FRAGMENTS; ++f)
                    before[f] = result.load(row + tile.row_of(from + f), column + tile.column_of(from + f));
#pragma unroll
            for (int f = 0; f < PASS_FRAGMENTS; ++f)
                result.store(row + tile.row_of(from + f), column + tile.column_of(from + f), alpha, sums[from + f],
                             beta, before[f]);
        }
    };
    if (whole_vectors(C, n, ldc))
        in_passes(Result<VECTORS>{C, m, n, ldc});
    else
        in_passes(Result<SINGLY>{C, m, n, ldc});
}
#endif

template <int EA, int EB>
__device__ void persistent_product(int m, int n, int k, float alpha, const float *A, int lda, const float *B, int ldb,
                                   float beta, float *C, int ldc)
{
    extern __shared__ __align__(128) float shared[];
    using T = TileOf<EA, EB>;
    T tile(shared, lda, ldb);
    // The current piece is in shared memory, not in registers: the products need all of them.
    __shared__ struct {
        Piece piece;
        int row, column;
    } current;
    auto division = [&] {
        return Division{((m + ROWS - 1) / ROWS) * ((n + COLUMNS - 1) / COLUMNS), max(1, (k + DEPTH - 1) / DEPTH)};
    };
    // Go to the i-th piece and start its prologue; return false if there is none.
    auto advance = [&](int i) {
        __syncthreads();  // all threads are done with the previous piece
        if (threadIdx.x == 0) {
            const Piece piece = division().piece(i);
            const int2 tile = rasterize(piece.tile, (m + ROWS - 1) / ROWS, (n + COLUMNS - 1) / COLUMNS);
            current.piece = piece;
            current.row = tile.y * ROWS;
            current.column = tile.x * COLUMNS;
        }
        __syncthreads();
        if (current.piece.to <= current.piece.from)
            return false;
        tile.seek(A, B, m, n, current.row, current.column, current.piece.from * DEPTH,
                  min(k, current.piece.to * DEPTH));
        tile.prologue();
        return true;
    };
    bool more = advance(0);
#pragma unroll 1
    for (int i = 1; more; ++i) {
        if (beta != 0 && current.piece.to - current.piece.from == division().steps)
            prefetch_tile(C, ldc, m, n, current.row, current.column, ROWS, threadIdx.x, BLOCK);
        tile.mainloop(current.piece.to - current.piece.from);
        Vector sums[T::OWN_FRAGMENTS];
        tile.reduce_slices(sums);
        const Piece piece = current.piece;
        const int row = current.row, column = current.column;
        more = advance(i);
        if (piece.to - piece.from < division().steps && !fix_up(sums, piece, division()))
            continue;
#if SLICES == 1
        tile.write(sums, shared + STAGES * T::STAGE, C, ldc, m, n, row, column, alpha, beta);
#else
        write(tile, sums, C, ldc, m, n, row, column, alpha, beta);
#endif
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT)
    matmul(int m, int n, int k, float alpha, const float *A, int lda, const float *B, int ldb, float beta, float *C,
           int ldc)
{
    const int of_a = COPIED ? lda : lda | k, of_b = COPIED ? ldb : ldb | n;  // copied rows have zeros behind their ends
    // The code of the first branch is the first: a cold kernel waits for each line of its code after 64 KiB.
    if (A_WIDTH * B_WIDTH > 1 &&
        !(of_a % A_WIDTH == 0 && of_b % B_WIDTH == 0 && ((size_t)A | (size_t)B) % 16 == 0))
        persistent_product<1, 1>(m, n, k, alpha, A, lda, B, ldb, beta, C, ldc);
    else
        persistent_product<A_WIDTH, B_WIDTH>(m, n, k, alpha, A, lda, B, ldb, beta, C, ldc);
}
