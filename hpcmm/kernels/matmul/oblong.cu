// Matrix product, GPU rung: each thread computes an oblong part of C, which takes fewer loads.
//
// As swizzled, but in float32 a thread computes 16 x 8 elements, not 8 x 8: for 128 products it loads 24
// elements from shared memory, not 32. That fills its registers, so that one block an SM must do, and a block
// is twice as high: its 8 warps cover for each other at its barriers, with a tile more in the ring. In float64
// registers suffice for 8 x 8 only. Needs compute capability 8.0.

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

extern "C" __global__ void __launch_bounds__(BLOCK, 1)
    matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    constexpr int HIGH = 64 / sizeof(REAL), WIDE = 8, WIDTH = 16 / sizeof(REAL);
    constexpr int LANE_ROWS = 4, LANE_COLUMNS = 8;
    constexpr int WARP_ROWS = LANE_ROWS * HIGH, WARP_COLUMNS = LANE_COLUMNS * WIDE;
    constexpr int PITCH = ROWS + WIDTH;  // of a column of A in shared memory: no two copies of a warp in one bank
    constexpr int STAGE = DEPTH * PITCH + DEPTH * COLUMNS;
    constexpr int A_STEP = BLOCK / DEPTH, B_STEP = BLOCK * WIDTH / COLUMNS;  // rows that the block copies at once
    static_assert(ROWS * COLUMNS == BLOCK * HIGH * WIDE, "a block's threads cover its part of C");
    extern __shared__ __align__(16) unsigned char shared[];
    REAL *const ring = (REAL *)shared;
    const int t = threadIdx.x, lane = t % 32, warp = t / 32;
    // Neighbouring lanes read the same words of A, or those two apart the same of B: then a half of the
    // warp takes one pass through shared memory for its 16 bytes a lane, not two.
    const int lane_row = lane / 16 * 2 + lane % 2, lane_column = lane / 2 % 8;
    const int y = warp / (COLUMNS / WARP_COLUMNS) * WARP_ROWS + lane_row * WIDTH;
    const int x = warp % (COLUMNS / WARP_COLUMNS) * WARP_COLUMNS + lane_column * WIDTH;
    const int block = blockIdx.y * gridDim.x + blockIdx.x, of_group = GROUP * gridDim.x;
    const int group_row = block / of_group * GROUP, group_rows = min(GROUP, gridDim.y - group_row);
    const int first_row = (group_row + block % of_group % group_rows) * ROWS;
    const int first_column = block % of_group / group_rows * COLUMNS;
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

    REAL sums[HIGH][WIDE] = {};
    Vector part_a[2][HIGH / WIDTH], part_b[2][WIDE / WIDTH];  // of this step and of the next
    const REAL *tile_a = ring + y, *tile_b = ring + DEPTH * PITCH + x;
    auto load = [&](int p) {
#pragma unroll
        for (int i = 0; i < HIGH / WIDTH; ++i)
            part_a[p % 2][i] = *(const Vector *)&tile_a[p * PITCH + i * LANE_ROWS * WIDTH];
#pragma unroll
        for (int j = 0; j < WIDE / WIDTH; ++j)
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
            for (int i = 0; i < HIGH; ++i)
#pragma unroll
                for (int j = 0; j < WIDE; ++j) {
                    const int c = i % 2 ? WIDE - 1 - j : j;  // to and fro: an operand is used twice in a row
                    sums[i][c] += part_a[p % 2][i / WIDTH].of[i % WIDTH] * part_b[p % 2][c / WIDTH].of[c % WIDTH];
                }
        }
    }
#pragma unroll
    for (int i = 0; i < HIGH; ++i)
#pragma unroll
        for (int j = 0; j < WIDE; ++j) {
            const int row = first_row + y + i / WIDTH * LANE_ROWS * WIDTH + i % WIDTH;
            const int column = first_column + x + j / WIDTH * LANE_COLUMNS * WIDTH + j % WIDTH;
            if (row < m && column < n) {
                REAL &c = C[(size_t)row * ldc + column];
                c = beta == 0 ? alpha * sums[i][j] : alpha * sums[i][j] + beta * c;  // beta = 0: C is not read
            }
        }
}
