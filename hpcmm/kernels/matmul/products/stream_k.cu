// Matrix product, GPU rung: blocks divide the terms of a tile, so no SM is idle.
//
// The blocks of warpgroup, one per SM, are idle if there are few tiles, or few in the last wave. Here every block
// computes the same number of whole tiles and an equal share of all steps of the remaining tiles (stream-K; Osama,
// Merrill, Cecka, Garland and Owens, PPoPP 2023). Of the blocks that share a tile, the last to finish adds up their
// sums in the order of the blocks, so the result does not depend on which block that is. No block waits for another.
//
// float32 only, by three products of TF32 parts. Runs on compute capability 9.0 only. Limit: each block splits its
// tiles into TF32 parts again, and tensor cores multiply TF32 at half the rate of FP16.
//
// hpcmm:
//   operation: matmul
//   shelf: product
//   change: blocks divide the terms of a tile if SMs would be idle
//   counterpart: warpgroup
//   dtypes: [float32]
//   arithmetic: three TF32 products
//   architecture: sm_90a

#include "matmul/division.cuh"
#include "matmul/rasterize.cuh"
#include "matmul/tf32_warpgroups.cuh"

// The sums of a block's pieces: [0] of a tile whose first step it computes, [1] of another tile.
__device__ __align__(16) REAL pieces[MAX_BLOCKS][2][ROWS * COLUMNS];
__device__ unsigned int done[2 * MAX_BLOCKS];

// Fix-up: publish the sums of a piece. The last block to finish a piece of this tile adds up the sums of all pieces and
// returns true.
__device__ bool fix_up(REAL (&sums)[16][4], const Piece &piece, const Division &division)
{
    const Divided of = division.divided(piece);
    const int thread = threadIdx.x;
    float4 *const own = (float4 *)pieces[blockIdx.x][piece.from > 0];
#pragma unroll
    for (int j = 0; j < 16; ++j)
        own[j * BLOCK + thread] = make_float4(sums[j][0], sums[j][1], sums[j][2], sums[j][3]);
    if (!is_last(done, of))
        return false;
#pragma unroll
    for (int j = 0; j < 16; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e)
            sums[j][e] = 0;
#pragma unroll 1
    for (int block = of.first; block <= of.last; ++block) {
        const float4 *const other = (const float4 *)pieces[block][block > of.first];
#pragma unroll
        for (int j = 0; j < 16; ++j) {
            const float4 four = other[j * BLOCK + thread];
            sums[j][0] += four.x;
            sums[j][1] += four.y;
            sums[j][2] += four.z;
            sums[j][3] += four.w;
        }
    }
    return true;
}

extern "C" __global__ void __launch_bounds__(BLOCK, 1)
    matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    extern __shared__ __align__(128) unsigned char shared[];
    REAL *const ring = (REAL *)shared;  // [STAGES][big, small][GROUPS][COLUMNS][4]
    const int thread = threadIdx.x, g = thread % 32 / 4, t = thread % 4;
    const int high = (m + ROWS - 1) / ROWS, wide = (n + COLUMNS - 1) / COLUMNS;
    const Division division{high * wide, max(1, (k + DEPTH - 1) / DEPTH)};
    const bool aligned = lda % 4 == 0 && (size_t)A % 16 == 0;
    __shared__ Piece piece;  // not in registers: the products need all of them
    for (int i = 0;; ++i) {
        __syncthreads();  // all threads are done with the previous piece
        if (thread == 0)
            piece = division.piece(i);
        __syncthreads();
        if (piece.to <= piece.from)
            return;
        const int2 tile = rasterize(piece.tile, high, wide);
        const int first_row = tile.y * ROWS, first_column = tile.x * COLUMNS;
        const int end = min(k, piece.to * DEPTH);

        // Rows and columns past the end are copies of the last ones: their sums are never stored.
        const int row = first_row + thread / 32 * 16 + g, column = thread % COLUMNS, group = thread / COLUMNS;
        const int first = piece.from * DEPTH;
        const REAL *a[2] = {A + (size_t)min(row, m - 1) * lda + first, A + (size_t)min(row + 8, m - 1) * lda + first};
        const REAL *const b = B + (size_t)(first + group) * ldb + min(first_column + column, n - 1);
        Loader loader = {end, ldb, group, t, aligned, first, b};
        Operands operands;

        REAL sums[16][4] = {};
        if (k <= SHORT_K)
            multiply_short(sums, a, B, ldb, n, k, first_column + 2 * t);
        else {
            Parts parts[2];
            float products[16][4] = {};
            loader.load(operands, a);
            split_tile(operands, ring, parts[0], group, column);
            loader.load(operands, a);
            __syncthreads();
            for (int start = piece.from * DEPTH; start < end; start += 2 * DEPTH)  // mainloop: a tile in each stage
#pragma unroll
                for (int stage = 0; stage < 2; ++stage) {
                    multiply(products, parts[stage], ring + stage * PARTS * PART_SIZE);
                    split_tile(operands, ring + (1 - stage) * PARTS * PART_SIZE, parts[1 - stage], group, column);
                    loader.load(operands, a);
                    accumulate(sums, products);
                    __syncthreads();  // the next tile is stored, and all warps have read this one
                }
        }
        if (piece.to - piece.from < division.steps && !fix_up(sums, piece, division))
            continue;

        const bool inside = first_row + ROWS <= m && first_column + COLUMNS <= n;
        const bool pairs = inside && ldc % 2 == 0 && (size_t)C % sizeof(Pair) == 0;
        Pair c[16][2] = {};
        load_c(c, m, n, beta, C, ldc, row, first_column + 2 * t, pairs);
        store_c(sums, c, m, n, alpha, beta, C, ldc, row, first_column + 2 * t, pairs);
    }
}
