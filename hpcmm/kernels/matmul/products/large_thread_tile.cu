// Matrix product, GPU rung: each thread computes a larger tile of C, with fewer loads per product.
//
// Compared with swizzled:
//   - In float32 a thread computes 16 x 8 elements of C, not 8 x 8: it loads 24 elements from shared memory for 128
//     products, not 32. That fills the registers, so only one block fits on an SM. A block is therefore twice as high:
//     its 8 warps hide each other's waits at barriers, and the ring holds one more tile. In float64 the registers
//     suffice for 8 x 8 only.
//   - Tiles inside A and B take a fast path without bounds checks.
//   - C is read and written 16 bytes at a time. With few terms, a block first prefetches its tile of C into the L2
//     cache. With many, the tile would be evicted before it is read.
//
// Needs compute capability 8.0. Limit: a tile is computed by one block, so SMs are idle if C has few tiles, or few in
// the last wave.
//
// hpcmm:
//   operation: matmul
//   shelf: product
//   change: each thread computes 16 x 8 elements of float32, with fewer loads
//   counterpart: swizzled
//   rows: 1024 / ITEMSIZE
//   columns: 128
//   depth: 8
//   block: 256
//   constants: {STAGES: 4, GROUP_ROWS: 8}
//   shared_bytes: STAGES * DEPTH * (ROWS * ITEMSIZE + 16 + COLUMNS * ITEMSIZE)
//   architecture: sm_80

#include "matmul/fixed_parts.cuh"
#include "matmul/prefetch.cuh"
#include "matmul/rasterize.cuh"
#include "ptx.cuh"

constexpr int WIDTH = 16 / sizeof(REAL);                            // elements in 16 bytes
constexpr int THREAD_ROWS = 64 / sizeof(REAL), THREAD_COLUMNS = 8;  // elements of C that a thread computes
constexpr int LANE_ROWS = 4, LANE_COLUMNS = 8;                      // how the lanes of a warp cover its tile
constexpr int WARP_ROWS = LANE_ROWS * THREAD_ROWS, WARP_COLUMNS = LANE_COLUMNS * THREAD_COLUMNS;
constexpr int PITCH = ROWS + WIDTH;  // of A's columns in shared memory, padded against bank conflicts of copies
constexpr int STAGE = DEPTH * (PITCH + COLUMNS);  // elements of a stage: a tile of A by columns, then one of B by rows
constexpr int A_STEP = BLOCK / DEPTH, B_STEP = BLOCK * WIDTH / COLUMNS;  // rows that the block copies at once
constexpr int MOST_PREFETCHED_TERMS = 256;
static_assert(ROWS * COLUMNS == BLOCK * THREAD_ROWS * THREAD_COLUMNS, "a block's threads cover its tile of C");

#include "matmul/thread_tile.cuh"

// Load: copy tiles from global to shared memory. A thread copies column a_column of A, in rows a_row, a_row + A_STEP,
// ..., and WIDTH columns of B, in rows b_row, b_row + B_STEP, ...
struct Loader {
    int m, n, k, lda, ldb, a_row, a_column, b_row, b_column, first_row, first_column;
    const REAL *A, *B;
    bool fast;  // whether loads take the fast path as far as k allows
    REAL *ring_a, *ring_b;
    int stage = 0, start = 0;  // offset of the stage that the next tile goes to; its first term
    const REAL *b, *a;         // this thread's first elements of it

    __device__ Loader(int m, int n, int k, const REAL *A, int lda, const REAL *B, int ldb, int first_row,
                      int first_column, REAL *ring_a, REAL *ring_b)
        : m(m), n(n), k(k), lda(lda), ldb(ldb), first_row(first_row), first_column(first_column), A(A), B(B)
    {
        const int t = threadIdx.x;
        a_row = t / DEPTH, a_column = t % DEPTH;
        a = A + (size_t)(first_row + a_row) * lda + a_column;
        b_row = t * WIDTH / COLUMNS, b_column = t * WIDTH % COLUMNS;
        b = B + (size_t)b_row * ldb + first_column + b_column;
        fast = first_row + ROWS <= m && first_column + COLUMNS <= n && ldb % WIDTH == 0 && (size_t)B % 16 == 0;
        this->ring_a = ring_a + a_column * PITCH + a_row;
        this->ring_b = ring_b + t * WIDTH;
    }

    // Start the copies of the next tile as one commit group. A `whole` tile, inside A and B, takes the fast path,
    // because bounds checks would slow down the products. In other tiles elements past the ends are zero.
    __device__ void load(bool whole)
    {
#pragma unroll
        for (int i = 0; i < ROWS; i += A_STEP) {
            const bool valid = whole || (first_row + a_row + i < m && start + a_column < k);
            cp_async<sizeof(REAL)>(ring_a + stage + i, valid ? a + (long long)i * lda : A, valid ? sizeof(REAL) : 0);
        }
#pragma unroll
        for (int p = 0; p < DEPTH; p += B_STEP)
            if (whole)
                cp_async<16>(ring_b + stage + p * COLUMNS, b + (long long)p * ldb);
            else
#pragma unroll
                for (int e = 0; e < WIDTH; ++e) {
                    const bool valid = start + b_row + p < k && first_column + b_column + e < n;
                    cp_async<sizeof(REAL)>(ring_b + stage + p * COLUMNS + e, valid ? b + (long long)p * ldb + e : B,
                                           valid ? sizeof(REAL) : 0);
                }
        a += DEPTH;
        b += (size_t)DEPTH * ldb;
        start += DEPTH;
        stage = stage == (STAGES - 1) * STAGE ? 0 : stage + STAGE;
        cp_async_commit_group();
    }
};

// Epilogue: C = alpha sums + beta C, for this thread's elements from row y and column x of the block's tile on. C is
// read before it is written, PASS_ROWS rows at a time. The compiler cannot reorder the accesses itself, because a store
// might alias the next load. `vectors`: the tile is inside C and can be accessed 16 bytes at a time.
__device__ void epilogue(const REAL (&sums)[THREAD_ROWS][THREAD_COLUMNS], int m, int n, REAL alpha, REAL beta, REAL *C,
                         int ldc, int first_row, int first_column, int y, int x, bool vectors)
{
    constexpr int PASS_ROWS = 4;
    auto row_of = [&](int i) { return first_row + y + i / WIDTH * LANE_ROWS * WIDTH + i % WIDTH; };
    if (vectors) {
#pragma unroll
        for (int from = 0; from < THREAD_ROWS; from += PASS_ROWS) {
            Vector before[PASS_ROWS][THREAD_COLUMNS / WIDTH] = {};
            if (beta != 0)
#pragma unroll
                for (int i = from; i < from + PASS_ROWS; ++i)
#pragma unroll
                    for (int j = 0; j < THREAD_COLUMNS; j += WIDTH)
                        before[i - from][j / WIDTH] =
                            *(const Vector *)&C[(size_t)row_of(i) * ldc + first_column + x + j * LANE_COLUMNS];
#pragma unroll
            for (int i = from; i < from + PASS_ROWS; ++i)
#pragma unroll
                for (int j = 0; j < THREAD_COLUMNS; j += WIDTH) {
                    Vector sum;
#pragma unroll
                    for (int e = 0; e < WIDTH; ++e)
                        sum.of[e] = alpha * sums[i][j + e] + beta * before[i - from][j / WIDTH].of[e];
                    *(Vector *)&C[(size_t)row_of(i) * ldc + first_column + x + j * LANE_COLUMNS] = sum;
                }
        }
    } else {
#pragma unroll
        for (int from = 0; from < THREAD_ROWS; from += PASS_ROWS) {
            REAL before[PASS_ROWS][THREAD_COLUMNS];
#pragma unroll
            for (int i = from; i < from + PASS_ROWS; ++i)
#pragma unroll
                for (int j = 0; j < THREAD_COLUMNS; ++j) {
                    const int row = row_of(i), column = first_column + x + j / WIDTH * LANE_COLUMNS * WIDTH + j % WIDTH;
                    before[i - from][j] = beta != 0 && row < m && column < n ? C[(size_t)row * ldc + column] : 0;
                }
#pragma unroll
            for (int i = from; i < from + PASS_ROWS; ++i)
#pragma unroll
                for (int j = 0; j < THREAD_COLUMNS; ++j) {
                    const int row = row_of(i), column = first_column + x + j / WIDTH * LANE_COLUMNS * WIDTH + j % WIDTH;
                    if (row < m && column < n)
                        C[(size_t)row * ldc + column] =
                            alpha * sums[i][j] + (beta == 0 ? 0 : beta * before[i - from][j]);
                }
        }
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK, 1)
    matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    extern __shared__ __align__(16) unsigned char shared[];
    REAL *const ring_a = (REAL *)shared, *const ring_b = ring_a + DEPTH * PITCH;
    const int t = threadIdx.x, lane = t % 32, warp = t / 32;
    // Neighbouring lanes read the same words of A, and lanes two apart the same words of B: half a warp then loads its
    // 16 bytes per lane in one wavefront of shared memory, not two.
    const int lane_row = lane / 16 * 2 + lane % 2, lane_column = lane / 2 % 8;
    const int y = warp / (COLUMNS / WARP_COLUMNS) * WARP_ROWS + lane_row * WIDTH;
    const int x = warp % (COLUMNS / WARP_COLUMNS) * WARP_COLUMNS + lane_column * WIDTH;
    const int2 tile = rasterize(blockIdx.y * gridDim.x + blockIdx.x, gridDim.y, gridDim.x);
    const int first_row = tile.y * ROWS, first_column = tile.x * COLUMNS;

    Loader loader(m, n, k, A, lda, B, ldb, first_row, first_column, ring_a, ring_b);
    for (int stage = 0; stage < STAGES - 1; ++stage)  // prologue: all stages but one
        loader.load(loader.fast && loader.start + DEPTH <= k);

    if (beta != 0 && k <= MOST_PREFETCHED_TERMS)
        prefetch_tile(C, ldc, m, n, first_row, first_column, ROWS, t, BLOCK);

    REAL sums[THREAD_ROWS][THREAD_COLUMNS] = {};
    Fragments fragments[2];  // double buffer: this step and the next
    const REAL *tile_a = ring_a + y, *tile_b = ring_b + x;
    cp_async_wait_group<STAGES - 2>();
    __syncthreads();
    fragments[0].load(tile_a, tile_b, 0);
    int stage = 0;
    auto multiply_tile = [&](bool whole) {  // mainloop: load another tile, `whole` or not, and multiply this one
        loader.load(whole);
#pragma unroll
        for (int p = 0; p < DEPTH; ++p) {
            if (p == DEPTH - 1) {
                cp_async_wait_group<STAGES - 2>();
                __syncthreads();  // the next tile has arrived, and all threads have read this one
                const int step = stage == STAGES - 1 ? -(STAGES - 1) * STAGE : STAGE;
                stage = stage == STAGES - 1 ? 0 : stage + 1;
                tile_a += step;
                tile_b += step;
            }
            fragments[(p + 1) % 2].load(tile_a, tile_b, (p + 1) % DEPTH);
            multiply(sums, fragments[p % 2]);
        }
    };
    auto multiply_until = [&](int end) {
        const int last = end + (STAGES - 1) * DEPTH;
        while (loader.fast && loader.start + DEPTH <= k && (!FIXED_PARTS || loader.start < last))
            multiply_tile(true);
        while (loader.start < last)
            multiply_tile(false);
    };
#if FIXED_PARTS
    // Sums of the parts before, which only this thread accesses: [THREAD_ROWS][THREAD_COLUMNS][BLOCK]
    REAL *const totals = (REAL *)(shared + STAGES * STAGE * sizeof(REAL)) + t;
#pragma unroll 1
    for (int part = 0;; ++part) {
        multiply_until(min(k, (part + 1) * part_of(k)));
        if (part == FIXED_PARTS - 1)
            break;
#pragma unroll
        for (int i = 0; i < THREAD_ROWS; ++i)
#pragma unroll
            for (int j = 0; j < THREAD_COLUMNS; ++j) {
                REAL &total = totals[(i * THREAD_COLUMNS + j) * BLOCK];
                total = part > 0 ? total + sums[i][j] : sums[i][j];
                sums[i][j] = 0;
            }
    }
#pragma unroll
    for (int i = 0; i < THREAD_ROWS; ++i)
#pragma unroll
        for (int j = 0; j < THREAD_COLUMNS; ++j)
            sums[i][j] += totals[(i * THREAD_COLUMNS + j) * BLOCK];
#else
    multiply_until(k);
#endif
    epilogue(sums, m, n, alpha, beta, C, ldc, first_row, first_column, y, x,
             ldc % WIDTH == 0 && (size_t)C % 16 == 0 && first_row + ROWS <= m && first_column + COLUMNS <= n);
}
