// Matrix product, GPU rung: tiles arrive in a ring of stages while the warps compute.
//
// As warp_tiled, but global memory is copied straight into shared memory by cp.async, without a detour
// through registers, and STAGES tiles are in the ring: while one is multiplied the next ones arrive, and
// one barrier a tile is enough. A is transposed on the way, element by element, as 4 or 8 bytes are the
// least that cp.async copies. Registers are filled ahead too: the operands of step p + 1 are loaded while
// step p multiplies. Addresses are kept running instead of computed anew, as most of what remains is
// arithmetic: rows of A past the end are copied from the last one, since what they add to is never stored,
// and what lies past the ends of n and k is filled with zeros by the copy. Needs compute capability 8.0.

struct alignas(16) Vector {
    REAL of[16 / sizeof(REAL)];
};

// Start a copy of BYTES from global to shared memory; only the first `valid` are read, the rest is zero.
template <int BYTES> __device__ void copy_async(void *target, const void *source, int valid)
{
    const unsigned address = __cvta_generic_to_shared(target);
    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(source), "r"(valid));
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address), "l"(source), "n"(BYTES),
                     "r"(valid));
}

// The copies that this thread started since the last call are one group from now on.
__device__ void end_group()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Wait until no more than PENDING of this thread's groups are under way.
template <int PENDING> __device__ void wait_for_groups()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// Two blocks an SM keep it busy while one waits at its barrier. In float64, and in the code for sm_80,
// the registers do not suffice for two.
#if __CUDA_ARCH__ >= 900
constexpr int RESIDENT = sizeof(REAL) == 4 ? 2 : 1;
#else
constexpr int RESIDENT = 1;
#endif

extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT)
    matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    constexpr int SIDE = 8, WIDTH = 16 / sizeof(REAL);
    constexpr int LANE_ROWS = 8, LANE_COLUMNS = 4;
    constexpr int WARP_ROWS = LANE_ROWS * SIDE, WARP_COLUMNS = LANE_COLUMNS * SIDE;
    constexpr int PITCH = ROWS + WIDTH;  // of a column of A in shared memory: no two copies of a warp in one bank
    constexpr int STAGE = DEPTH * PITCH + DEPTH * COLUMNS;
    constexpr int A_STEP = BLOCK / DEPTH, B_STEP = BLOCK * WIDTH / COLUMNS;  // rows that the block copies at once
    static_assert(ROWS * COLUMNS == BLOCK * SIDE * SIDE, "a block's threads cover its part of C");
    extern __shared__ __align__(16) unsigned char shared[];
    REAL *const ring = (REAL *)shared;
    const int t = threadIdx.x, lane = t % 32, warp = t / 32;
    // Neighbouring lanes read the same words of A, or those two apart the same of B: then a half of the
    // warp takes one pass through shared memory for its 16 bytes a lane, not two.
    const int lane_row = lane / 8 * 2 + lane % 2, lane_column = lane / 2 % 4;
    const int y = warp / (COLUMNS / WARP_COLUMNS) * WARP_ROWS + lane_row * WIDTH;
    const int x = warp % (COLUMNS / WARP_COLUMNS) * WARP_COLUMNS + lane_column * WIDTH;
    const int first_row = blockIdx.y * ROWS, first_column = blockIdx.x * COLUMNS;
    const bool aligned = ldb % WIDTH == 0 && (size_t)B % 16 == 0;

    // what this thread copies of each tile: column a_column of A in rows a_row, a_row + A_STEP, ...
    const int a_row = t / DEPTH, a_column = t % DEPTH;
    size_t a_offset[ROWS / A_STEP];
#pragma unroll
    for (int i = 0; i < ROWS / A_STEP; ++i)
        a_offset[i] = (size_t)min(first_row + a_row + i * A_STEP, m - 1) * lda;
    const REAL *a = A + a_column;
    // and WIDTH columns of B in rows b_row, b_row + B_STEP, ...
    const int b_row = t * WIDTH / COLUMNS, b_column = t * WIDTH % COLUMNS;
    const int b_valid = max(0, min(WIDTH, n - first_column - b_column));
    const REAL *b = B + (size_t)b_row * ldb + min(first_column + b_column, n - 1);

    // start the copy of the next tile into the next stage; past the end of k it is all zeros
    REAL *const target_a = ring + a_column * PITCH + a_row, *const target_b = ring + DEPTH * PITCH + t * WIDTH;
    int next = 0, filled = 0;
    auto fetch_tiles = [&] {
        const int bytes = next + a_column < k ? sizeof(REAL) : 0;
#pragma unroll
        for (int i = 0; i < ROWS / A_STEP; ++i)
            copy_async<sizeof(REAL)>(target_a + filled + i * A_STEP, a + a_offset[i], bytes);
#pragma unroll
        for (int p = 0; p < DEPTH; p += B_STEP) {
            const int valid = next + b_row + p < k ? b_valid : 0;
            const REAL *const source = b + (size_t)p * ldb;
            if (aligned)
                copy_async<16>(target_b + filled + p * COLUMNS, source, valid * sizeof(REAL));
            else
#pragma unroll
                for (int i = 0; i < WIDTH; ++i)
                    copy_async<sizeof(REAL)>(target_b + filled + p * COLUMNS + i, source + i,
                                             i < valid ? sizeof(REAL) : 0);
        }
        a += DEPTH;
        b += (size_t)DEPTH * ldb;
        next += DEPTH;
        filled = filled == (STAGES - 1) * STAGE ? 0 : filled + STAGE;
        end_group();
    };
    for (int stage = 0; stage < STAGES - 1; ++stage)
        fetch_tiles();

    REAL sums[SIDE][SIDE] = {};
    Vector part_a[2][SIDE / WIDTH], part_b[2][SIDE / WIDTH];  // of this step and of the next
    const REAL *tile_a = ring + y, *tile_b = ring + DEPTH * PITCH + x;
    auto load = [&](int p) {
#pragma unroll
        for (int i = 0; i < SIDE / WIDTH; ++i)
            part_a[p % 2][i] = *(const Vector *)&tile_a[p * PITCH + i * LANE_ROWS * WIDTH];
#pragma unroll
        for (int j = 0; j < SIDE / WIDTH; ++j)
            part_b[p % 2][j] = *(const Vector *)&tile_b[p * COLUMNS + j * LANE_COLUMNS * WIDTH];
    };
    wait_for_groups<STAGES - 2>();
    __syncthreads();
    load(0);
    int stage = 0;
    for (int start = 0; start < k; start += DEPTH) {
        fetch_tiles();
#pragma unroll
        for (int p = 0; p < DEPTH; ++p) {
            if (p < DEPTH - 1)
                load(p + 1);
            else {
                wait_for_groups<STAGES - 2>();
                __syncthreads();  // the next tile is there for all, and all are done with this one
                const int step = stage == STAGES - 1 ? -(STAGES - 1) * STAGE : STAGE;
                stage = stage == STAGES - 1 ? 0 : stage + 1;
                tile_a += step;
                tile_b += step;
                load(0);
            }
#pragma unroll
            for (int i = 0; i < SIDE; ++i)
#pragma unroll
                for (int j = 0; j < SIDE; ++j) {
                    const int c = i % 2 ? SIDE - 1 - j : j;  // to and fro: an operand is used twice in a row
                    sums[i][c] += part_a[p % 2][i / WIDTH].of[i % WIDTH] * part_b[p % 2][c / WIDTH].of[c % WIDTH];
                }
        }
    }
#pragma unroll
    for (int i = 0; i < SIDE; ++i)
#pragma unroll
        for (int j = 0; j < SIDE; ++j) {
            const int row = first_row + y + i / WIDTH * LANE_ROWS * WIDTH + i % WIDTH;
            const int column = first_column + x + j / WIDTH * LANE_COLUMNS * WIDTH + j % WIDTH;
            if (row < m && column < n) {
                REAL &c = C[(size_t)row * ldc + column];
                c = beta == 0 ? alpha * sums[i][j] : alpha * sums[i][j] + beta * c;  // beta = 0: C is not read
            }
        }
}
