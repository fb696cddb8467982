// The steps of asynchronous: cp.async copies tiles into a ring of pipeline stages while the warps multiply.
#ifndef COPIED_TILES_CUH
#define COPIED_TILES_CUH

#include "ptx.cuh"

constexpr int WIDTH = 16 / sizeof(REAL);        // elements in 16 bytes
constexpr int SIDE = 8, THREAD_ROWS = SIDE, THREAD_COLUMNS = SIDE;  // a thread computes SIDE x SIDE elements of C
constexpr int LANE_ROWS = 8, LANE_COLUMNS = 4;  // how the lanes of a warp cover its tile
constexpr int WARP_ROWS = LANE_ROWS * SIDE, WARP_COLUMNS = LANE_COLUMNS * SIDE;
constexpr int PITCH = ROWS + WIDTH;  // of A's columns in shared memory, padded against bank conflicts of copies
constexpr int STAGE = DEPTH * (PITCH + COLUMNS);  // elements of a stage: a tile of A by columns, then one of B by rows
constexpr int A_STEP = BLOCK / DEPTH, B_STEP = BLOCK * WIDTH / COLUMNS;  // rows that the block copies at once
static_assert(ROWS * COLUMNS == BLOCK * SIDE * SIDE, "a block's threads cover its tile of C");

// With two blocks on an SM, one multiplies while the other waits at its barrier. In float64, and in the code for sm_80,
// the registers do not suffice for two.
#if __CUDA_ARCH__ >= 900
constexpr int RESIDENT = sizeof(REAL) == 4 ? 2 : 1;
#else
constexpr int RESIDENT = 1;
#endif

#include "matmul/thread_tile.cuh"

// Load: copy tiles from global to shared memory. A thread copies column a_column of A, in rows a_row, a_row + A_STEP,
// ..., and WIDTH columns of B, in rows b_row, b_row + B_STEP, ...
struct Loader {
    int k, ldb, a_row, a_column, b_row, b_valid;
    bool aligned;
    REAL *ring_a, *ring_b;
    const REAL *a, *b;         // this thread's first elements of the next tile
    int start = 0, stage = 0;  // first term of that tile; offset of the stage that it goes to

    __device__ Loader(int n, int k, const REAL *A, const REAL *B, int ldb, bool aligned, int first_column, REAL *ring_a,
                      REAL *ring_b)
        : k(k), ldb(ldb), aligned(aligned)
    {
        const int t = threadIdx.x;
        a_row = t / DEPTH, a_column = t % DEPTH;
        a = A + a_column;
        b_row = t * WIDTH / COLUMNS;
        const int b_column = t * WIDTH % COLUMNS;
        b_valid = max(0, min(WIDTH, n - first_column - b_column));
        b = B + (size_t)b_row * ldb + min(first_column + b_column, n - 1);
        this->ring_a = ring_a + a_column * PITCH + a_row;
        this->ring_b = ring_b + t * WIDTH;
    }

    // Start the copies of the next tile as one commit group; past the end of k the tile is zero. `rows` has the offsets
    // of this thread's rows of A. As a member, the array would delay the promotion of the other members to registers.
    __device__ void load(const size_t (&rows)[ROWS / A_STEP])
    {
        const int bytes = start + a_column < k ? sizeof(REAL) : 0;
#pragma unroll
        for (int i = 0; i < ROWS / A_STEP; ++i)
            cp_async<sizeof(REAL)>(ring_a + stage + i * A_STEP, a + rows[i], bytes);
#pragma unroll
        for (int p = 0; p < DEPTH; p += B_STEP) {
            const int valid = start + b_row + p < k ? b_valid : 0;
            const REAL *const source = b + (size_t)p * ldb;
            if (aligned)
                cp_async<16>(ring_b + stage + p * COLUMNS, source, valid * sizeof(REAL));
            else
#pragma unroll
                for (int e = 0; e < WIDTH; ++e)
                    cp_async<sizeof(REAL)>(ring_b + stage + p * COLUMNS + e, source + e,
                                           e < valid ? sizeof(REAL) : 0);
        }
        a += DEPTH;
        b += (size_t)DEPTH * ldb;
        start += DEPTH;
        stage = stage == (STAGES - 1) * STAGE ? 0 : stage + STAGE;
        cp_async_commit_group();
    }
};

// Epilogue: C = alpha sums + beta C. `top` and `left` are the row and the column of this thread's first element.
__device__ void epilogue(const REAL (&sums)[SIDE][SIDE], int m, int n, REAL alpha, REAL beta, REAL *C, int ldc, int top,
                         int left)
{
#pragma unroll
    for (int i = 0; i < SIDE; ++i)
#pragma unroll
        for (int j = 0; j < SIDE; ++j) {
            const int row = top + i / WIDTH * LANE_ROWS * WIDTH + i % WIDTH;
            const int column = left + j / WIDTH * LANE_COLUMNS * WIDTH + j % WIDTH;
            if (row < m && column < n) {
                REAL &c = C[(size_t)row * ldc + column];
                c = beta == 0 ? alpha * sums[i][j] : alpha * sums[i][j] + beta * c;  // beta = 0: C is not read
            }
        }
}

// Compute the tile of C from row first_row and column first_column on. `shared` has the STAGES stages.
__device__ void compute_tile(unsigned char *shared, int first_row, int first_column, int m, int n, int k, REAL alpha,
                             const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    REAL *const ring_a = (REAL *)shared, *const ring_b = ring_a + DEPTH * PITCH;
    const int t = threadIdx.x, lane = t % 32, warp = t / 32;
    // Neighbouring lanes read the same words of A, and lanes two apart the same words of B: half a warp then loads its
    // 16 bytes per lane in one wavefront of shared memory, not two.
    const int lane_row = lane / 8 * 2 + lane % 2, lane_column = lane / 2 % 4;
    const int y = warp / (COLUMNS / WARP_COLUMNS) * WARP_ROWS + lane_row * WIDTH;
    const int x = warp % (COLUMNS / WARP_COLUMNS) * WARP_COLUMNS + lane_column * WIDTH;

    const bool aligned = ldb % WIDTH == 0 && (size_t)B % 16 == 0;
    size_t rows[ROWS / A_STEP];
#pragma unroll
    for (int i = 0; i < ROWS / A_STEP; ++i)
        rows[i] = (size_t)min(first_row + t / DEPTH + i * A_STEP, m - 1) * lda;
    Loader loader(n, k, A, B, ldb, aligned, first_column, ring_a, ring_b);
    for (int stage = 0; stage < STAGES - 1; ++stage)  // prologue: all stages but one
        loader.load(rows);

    REAL sums[SIDE][SIDE] = {};
    Fragments fragments[2];  // double buffer: this step and the next
    const REAL *tile_a = ring_a + y, *tile_b = ring_b + x;
    cp_async_wait_group<STAGES - 2>();
    __syncthreads();
    fragments[0].load(tile_a, tile_b, 0);
    int stage = 0;
    for (int start = 0; start < k; start += DEPTH) {  // mainloop: load another tile, and multiply this one
        loader.load(rows);
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
    }
    epilogue(sums, m, n, alpha, beta, C, ldc, first_row + y, first_column + x);
}

#endif
