// Matrix product, GPU rung: tensor_core in float64, with tiles of many shapes. Blocks may divide the terms of a tile.
//
// Compared with tensor_core, there are many tiles: narrow ones give small products enough blocks, wide ones read less,
// and widths between the powers of two fill the last wave: at 1152, there are 261 tiles of 128 x 40 for 264 resident
// blocks. The host picks one by the shape, and whether each block computes a whole tile. If not, the division is that
// of stream_k_fma: as many blocks as fit on the SMs compute the same number of whole tiles and an equal share of the
// steps of the remaining tiles. Of the blocks that share a tile, the last to finish adds up their sums in the order of
// the blocks, so the result does not depend on which block that is. No block waits for another. Tiles at the edges of C
// load as fast as the others: only rows and columns that exist are copied. While a block multiplies its last stages and
// loads nothing else, its tile of C is prefetched into the L2 cache. Needs compute capability 8.0. Limit: all warps
// copy tiles, and wait at a barrier of the block for each tile.
//
// hpcmm:
//   operation: matmul
//   shelf: product
//   change: tensor_core in float64 with tiles of many shapes; blocks divide the terms of tiles if that saves time
//   counterpart: tensor_core
//   dtypes: [float64]
//   architecture: sm_80

#include "matmul/division.cuh"
#include "matmul/prefetch.cuh"
#include "matmul/rasterize.cuh"
#include "matmul/warp_products.cuh"
#include "ptx.cuh"

// The sums of a block's pieces: [0] of a tile whose first step it computes, [1] of another tile.
__device__ __align__(16) REAL pieces[MAX_BLOCKS][2][ROWS * COLUMNS];
__device__ unsigned int done[2 * MAX_BLOCKS];

// The block's current piece. It is in shared memory, because the products need all registers.
struct Current {
    Piece piece;
    int row, column;  // first row and column of its tile
    int number;       // of the block's pieces
    bool last;        // no piece follows, which takes 64-bit divisions to find out if tiles are divided
};

// Return the block's piece `number`, and its tile in rasterization order.
__device__ Current locate(int number, const Division &division, int tile_rows, int tile_columns)
{
    const Piece piece = division.piece(number);
    const int2 tile = rasterize(piece.tile, tile_rows, tile_columns);
    const bool last = division.tiles % gridDim.x == 0 && number + 1 >= division.full_waves();
    return {piece, tile.y * ROWS, tile.x * COLUMNS, number, last};
}

constexpr int ROW_THREADS = BLOCK / DEPTH, C_STEP = ROW_THREADS * WIDTH;  // threads that copy a row of B, and columns
static_assert(A_STEP % 8 == 0 && C_STEP % 8 == 0, "no bank conflicts");

// Load: copy tiles from global to shared memory. A thread copies WIDTH columns of A, in rows a_row, a_row + A_STEP,
// ..., and WIDTH columns of B, from b_column, b_column + C_STEP, ... on. In the fast path, rows of A and columns of B
// past the ends are set to zero once and not copied.
struct Loader {
    const REAL *a, *b;  // this thread's first elements of the next tile
    int rows, columns;  // from this thread's first row of A and column of B to the end of the tile or the matrix
    int terms;          // terms of the piece from the next tile on
    int stage;          // offset of the stage that is filled next
    bool fast;          // whether copies of 16 bytes are possible

    static __device__ int a_row()
    {
        return threadIdx.x * WIDTH / DEPTH;
    }
    static __device__ int a_column()
    {
        return threadIdx.x * WIDTH % DEPTH;
    }
    static __device__ int b_row()
    {
        return threadIdx.x / ROW_THREADS;
    }
    static __device__ int b_column()
    {
        return threadIdx.x % ROW_THREADS * WIDTH;
    }

    // Go to the first term of a piece.
    __device__ void seek(REAL *ring, const REAL *A, int lda, const REAL *B, int ldb, int m, int n, int k,
                         const Current &current)
    {
        const int start = current.piece.from * DEPTH;
        a = A + (size_t)(current.row + a_row()) * lda + start + a_column();
        b = B + (size_t)(start + b_row()) * ldb + current.column + b_column();
        rows = min(m - current.row, ROWS) - a_row();
        columns = min(n - current.column, COLUMNS) - b_column();
        fast = (lda | ldb | n) % WIDTH == 0 && ((size_t)A | (size_t)B) % 16 == 0;
        terms = min(k, current.piece.to * DEPTH) - start;
        const bool few = terms < STAGES * DEPTH;  // some stages are not filled, but one of them is read
        if (few || fast && (rows < ROWS - a_row() || columns < COLUMNS - b_column()))
#pragma unroll 1
            for (stage = 0; stage < STAGES * STAGE; stage += STAGE) {
#pragma unroll 1
                for (int i = 0; i < ROWS - a_row(); i += A_STEP)
                    if (few || i >= rows)
                        *(Pair *)(to_a(ring) + i * A_PITCH) = {};
#pragma unroll 1
                for (int c = 0; c < COLUMNS - b_column(); c += C_STEP)
                    if (few || c >= columns)
                        *(Pair *)(to_b(ring) + c) = {};
            }
        stage = 0;
    }

    // Where this thread's first elements go.
    __device__ REAL *to_a(REAL *ring) const
    {
        return ring + stage + a_row() * A_PITCH + a_column();
    }
    __device__ REAL *to_b(REAL *ring) const
    {
        return ring + stage + ROWS * A_PITCH + b_row() * B_PITCH + b_column();
    }

    // Whether the copies of the next tile take the fast path.
    __device__ bool whole() const
    {
        return fast && terms >= DEPTH;
    }

    // Start the copies of the next tile, if there is one, as one commit group. In a tile that is not `whole`, terms past
    // the end are zero.
    __device__ void load(bool whole, REAL *ring, const REAL *A, int lda, int ldb, int n, const Current &current)
    {
        REAL *const next_a = to_a(ring), *const next_b = to_b(ring);
        if (whole) {
#pragma unroll
            for (int i = 0; i < ROWS; i += A_STEP)
                if (i < rows)
                    cp_async<16>(next_a + i * A_PITCH, a + (long long)i * lda);
#pragma unroll
            for (int c = 0; c < COLUMNS; c += C_STEP)
                if (c < columns)
                    cp_async<16>(next_b + c, b + c);
        } else if (terms > 0) {
#pragma unroll
            for (int i = 0; i < ROWS; i += A_STEP)
#pragma unroll
                for (int e = 0; e < WIDTH; ++e) {
                    if (ROWS % A_STEP != 0 && i >= ROWS - a_row())
                        continue;
                    const bool valid = i < rows && a_column() + e < terms;
                    cp_async<sizeof(REAL)>(next_a + i * A_PITCH + e, valid ? a + (long long)i * lda + e : A,
                                           valid ? sizeof(REAL) : 0);
                }
#pragma unroll
            for (int c = 0; c < COLUMNS; c += C_STEP)
#pragma unroll
                for (int e = 0; e < WIDTH; ++e) {
                    if (COLUMNS % C_STEP != 0 && c >= COLUMNS - b_column())
                        continue;
                    const bool valid = b_row() < terms && c + e < columns;
                    cp_async<sizeof(REAL)>(next_b + c + e, valid ? b + c + e : A, valid ? sizeof(REAL) : 0);
                }
        }
        a += DEPTH;
        b += (size_t)DEPTH * ldb;
        terms -= DEPTH;
        stage = stage == (STAGES - 1) * STAGE ? 0 : stage + STAGE;
        cp_async_commit_group();
    }
};

// Where a lane's elements are: y and x are the position of its warp's tile in the block's tile, g and t the numbers of
// its group of four lanes and of the lane in the group.
struct Lane {
    int y, x, g, t;

    __device__ Lane()
    {
        const int thread = threadIdx.x, warp = thread / 32;
        y = warp / (COLUMNS / WARP_COLUMNS) * WARP_ROWS;
        x = warp % (COLUMNS / WARP_COLUMNS) * WARP_COLUMNS;
        g = thread % 32 / 4;
        t = thread % 4;
    }
};

// Multiply: add the products of one step.
__device__ void multiply(REAL (&sums)[MMA_ROWS][MMA_COLUMNS][4], const Fragments &with)
{
    for_each_product([&](int i, int j) { mma_m16n8k8_f64(sums[i][j], with.a[i], with.b[j]); });
}

// Fix-up: publish the sums of a piece. The last block to finish a piece of this tile adds up the sums of all pieces and
// returns true.
__device__ bool fix_up(REAL (&sums)[MMA_ROWS][MMA_COLUMNS][4], const Piece &piece, const Division &division)
{
    const Divided of = division.divided(piece);
    const int thread = threadIdx.x;
    Pair *const own = (Pair *)pieces[blockIdx.x][piece.from > 0] + thread;
#pragma unroll
    for (int i = 0; i < MMA_ROWS; ++i)
#pragma unroll
        for (int j = 0; j < MMA_COLUMNS; ++j)
#pragma unroll
            for (int h = 0; h < 2; ++h)
                own[((i * MMA_COLUMNS + j) * 2 + h) * BLOCK] = {sums[i][j][2 * h], sums[i][j][2 * h + 1]};
    if (!is_last(done, of))
        return false;
    const bool two = of.last - of.first == 1;  // the order of two numbers does not change their sum
    if (!two)
#pragma unroll
        for (int i = 0; i < MMA_ROWS; ++i)
#pragma unroll
            for (int j = 0; j < MMA_COLUMNS; ++j)
#pragma unroll
                for (int e = 0; e < 4; ++e)
                    sums[i][j][e] = 0;
#pragma unroll 1
    for (int block = of.first; block <= of.last; ++block) {
        if (two && block == blockIdx.x)
            continue;
        const Pair *const other = (const Pair *)pieces[block][block > of.first] + thread;
#pragma unroll
        for (int i = 0; i < MMA_ROWS; ++i)
#pragma unroll
            for (int j = 0; j < MMA_COLUMNS; ++j)
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    const Pair sum = other[((i * MMA_COLUMNS + j) * 2 + h) * BLOCK];
                    sums[i][j][2 * h] += sum.of[0];
                    sums[i][j][2 * h + 1] += sum.of[1];
                }
    }
    return true;
}

// With several blocks on an SM, one multiplies while another waits at its barrier.
extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT)
    matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    extern __shared__ __align__(16) unsigned char shared[];
    REAL *const ring = (REAL *)shared;
    __shared__ Current current;
    auto division = [&] {
        return Division{((m + ROWS - 1) / ROWS) * ((n + COLUMNS - 1) / COLUMNS), max(1, (k + DEPTH - 1) / DEPTH)};
    };
    Loader loader;
    // Go to the next piece and start its prologue: the copies of all stages but one. Return false if there is none.
    auto advance = [&](bool first) {
        if (!first && current.last)
            return false;
        __syncthreads();  // all threads are done with the previous piece
        if (threadIdx.x == 0)
            current = locate(first ? 0 : current.number + 1, division(), (m + ROWS - 1) / ROWS,
                             (n + COLUMNS - 1) / COLUMNS);
        __syncthreads();
        if (current.piece.to <= current.piece.from)
            return false;
        loader.seek(ring, A, lda, B, ldb, m, n, k, current);
#pragma unroll 1
        for (int stage = 0; stage < STAGES - 1; ++stage)
            loader.load(loader.whole(), ring, A, lda, ldb, n, current);
        return true;
    };
    const bool reads = __double_as_longlong(beta) << 1 != 0;  // beta != 0, without a wait for the pipe of float64
    bool more = advance(true);
#pragma unroll 1
    while (more) {
        cp_async_wait_group<STAGES - 2>();
        __syncthreads();
        REAL sums[MMA_ROWS][MMA_COLUMNS][4] = {};
        {
            Fragments fragments[2];  // double buffer: this step and the next
            const Lane lane;
            const REAL *const lane_a = ring + (lane.y + lane.g) * A_PITCH + lane.t;
            const REAL *const lane_b = ring + ROWS * A_PITCH + lane.t * B_PITCH + lane.x + lane.g;
            fragments[0].load(lane_a, lane_b, 0);
            int tile = 0;  // offset of the stage that is read
            auto multiply_tile = [&](bool whole) {  // mainloop: multiply a tile and load another, `whole` or not
#pragma unroll
                for (int p = 0; p < DEPTH; p += 8) {
                    if (p == DEPTH - 8) {
                        cp_async_wait_group<STAGES - 3>();
                        __syncthreads();  // the next tile has arrived, and all threads have read this one
                        loader.load(whole, ring, A, lda, ldb, n, current);
                        tile = loader.stage == (STAGES - 1) * STAGE ? 0 : loader.stage + STAGE;
                    }
                    fragments[(p / 8 + 1) % 2].load(lane_a + tile, lane_b + tile, (p + 8) % DEPTH);
                    multiply(sums, fragments[p / 8 % 2]);
                }
            };
            while (loader.whole())
                multiply_tile(true);
            if (reads)
                prefetch_tile(C, ldc, m, n, current.row, current.column, ROWS, threadIdx.x, BLOCK);
            while (loader.terms > -(STAGES - 1) * DEPTH)
                multiply_tile(false);
        }
        const Current now = current;
        more = advance(false);
        if (now.piece.to - now.piece.from == division().steps || fix_up(sums, now.piece, division())) {
            const Lane lane;
            const int y = now.row + lane.y, x = now.column + lane.x;
            const bool inside = now.row + ROWS <= m && now.column + COLUMNS <= n;
            if (inside && ldc % 2 == 0 && (size_t)C % sizeof(Pair) == 0)
                epilogue<true>(sums, m, n, alpha, beta, reads, C, ldc, y, x, lane.g, lane.t);
            else
                epilogue<false>(sums, m, n, alpha, beta, reads, C, ldc, y, x, lane.g, lane.t);
        }
    }
}
