// Matrix product, GPU rung: each thread computes an oblong part of C, which takes fewer loads.
//
// As swizzled, but in float32 a thread computes 16 x 8 elements, not 8 x 8: for 128 products it loads 24
// elements from shared memory, not 32. That fills its registers, so that one block an SM must do, and a block
// is twice as high: its 8 warps cover for each other at its barriers, with a tile more in the ring. In float64
// registers suffice for 8 x 8 only. Tiles that lie within A and B have a loop of their own, without any question
// about the ends, and C is read and written 16 bytes at a time. Needs compute capability 8.0.

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

    // what this thread copies of each tile: column a_column of A in rows a_row, a_row + A_STEP, ...
    const int a_row = t / DEPTH, a_column = t % DEPTH;
    const REAL *a = A + (size_t)(first_row + a_row) * lda + a_column;
    // and WIDTH columns of B in rows b_row, b_row + B_STEP, ...
    const int b_row = t * WIDTH / COLUMNS, b_column = t * WIDTH % COLUMNS;
    const REAL *b = B + (size_t)b_row * ldb + first_column + b_column;

    // Start the copy of the next tile into the next stage. One that lies within A and B comes without any question:
    // what is asked here takes time from the products. Of any other, what is past the ends is zero.
    const bool within =
        first_row + ROWS <= m && first_column + COLUMNS <= n && ldb % WIDTH == 0 && (size_t)B % 16 == 0;
    REAL *const target_a = ring + a_column * PITCH + a_row, *const target_b = ring + DEPTH * PITCH + t * WIDTH;
    int next = 0, filled = 0;
    auto fetch_tiles = [&](bool whole) {
#pragma unroll
        for (int i = 0; i < ROWS; i += A_STEP) {
            const bool valid = whole || (first_row + a_row + i < m && next + a_column < k);
            copy_async<sizeof(REAL)>(target_a + filled + i, valid ? a + (long long)i * lda : A,
                                     valid ? sizeof(REAL) : 0);
        }
#pragma unroll
        for (int p = 0; p < DEPTH; p += B_STEP)
            if (whole)
                copy_async<16>(target_b + filled + p * COLUMNS, b + (long long)p * ldb, 16);
            else
#pragma unroll
                for (int e = 0; e < WIDTH; ++e) {
                    const bool valid = next + b_row + p < k && first_column + b_column + e < n;
                    copy_async<sizeof(REAL)>(target_b + filled + p * COLUMNS + e,
                                             valid ? b + (long long)p * ldb + e : B, valid ? sizeof(REAL) : 0);
                }
        a += DEPTH;
        b += (size_t)DEPTH * ldb;
        next += DEPTH;
        filled = filled == (STAGES - 1) * STAGE ? 0 : filled + STAGE;
        end_group();
    };
    for (int stage = 0; stage < STAGES - 1; ++stage)
        fetch_tiles(within && next + DEPTH <= k);

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
    auto multiply = [&](bool whole) {  // this tile, and fetch another
        fetch_tiles(whole);
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
    };
    while (within && next + DEPTH <= k)
        multiply(true);
    while (next < k + (STAGES - 1) * DEPTH)
        multiply(false);

    // C is read before it is written, some rows at a time: for all that the compiler knows, an element that is
    // written could be the next one that is read.
    constexpr int AT_ONCE = 4;
    auto row_of = [&](int i) { return first_row + y + i / WIDTH * LANE_ROWS * WIDTH + i % WIDTH; };
    const bool vectors =
        ldc % WIDTH == 0 && (size_t)C % 16 == 0 && first_row + ROWS <= m && first_column + COLUMNS <= n;
    if (vectors) {
#pragma unroll
        for (int from = 0; from < HIGH; from += AT_ONCE) {
            Vector before[AT_ONCE][WIDE / WIDTH] = {};
            if (beta != 0)
#pragma unroll
                for (int i = from; i < from + AT_ONCE; ++i)
#pragma unroll
                    for (int j = 0; j < WIDE; j += WIDTH)
                        before[i - from][j / WIDTH] =
                            *(const Vector *)&C[(size_t)row_of(i) * ldc + first_column + x + j * LANE_COLUMNS];
#pragma unroll
            for (int i = from; i < from + AT_ONCE; ++i)
#pragma unroll
                for (int j = 0; j < WIDE; j += WIDTH) {
                    Vector sum;
#pragma unroll
                    for (int e = 0; e < WIDTH; ++e)
                        sum.of[e] = alpha * sums[i][j + e] + beta * before[i - from][j / WIDTH].of[e];
                    *(Vector *)&C[(size_t)row_of(i) * ldc + first_column + x + j * LANE_COLUMNS] = sum;
                }
        }
    } else {
#pragma unroll
        for (int from = 0; from < HIGH; from += AT_ONCE) {
            REAL before[AT_ONCE][WIDE];
#pragma unroll
            for (int i = from; i < from + AT_ONCE; ++i)
#pragma unroll
                for (int j = 0; j < WIDE; ++j) {
                    const int row = row_of(i), column = first_column + x + j / WIDTH * LANE_COLUMNS * WIDTH + j % WIDTH;
                    before[i - from][j] = beta != 0 && row < m && column < n ? C[(size_t)row * ldc + column] : 0;
                }
#pragma unroll
            for (int i = from; i < from + AT_ONCE; ++i)
#pragma unroll
                for (int j = 0; j < WIDE; ++j) {
                    const int row = row_of(i), column = first_column + x + j / WIDTH * LANE_COLUMNS * WIDTH + j % WIDTH;
                    if (row < m && column < n)
                        C[(size_t)row * ldc + column] = alpha * sums[i][j] + (beta == 0 ? 0 : beta * before[i - from][j]);
                }
        }
    }
}
