// Matrix product, GPU rung: tiles arrive in a ring of stages while the warps compute.
//
// As warp_tiled, but global memory is copied straight into shared memory by cp.async, without a detour
// through registers, and STAGES tiles are under way at once: while one is multiplied the next ones
// arrive, and one barrier a tile is enough. cp.async cannot transpose, so A keeps its row order, padded
// by 16 bytes against bank conflicts, and a thread reads WIDTH steps of p of a row of A in one load.
// What lies outside the matrices is filled with zeros by the copy itself. Needs compute capability 8.0.

struct alignas(16) Vector {
    REAL of[16 / sizeof(REAL)];
};

// Copy BYTES from global to shared memory; only the first `valid` bytes are read, the rest is zero.
template <int BYTES> __device__ void copy_async(void *target, const void *source, int valid)
{
    const unsigned address = __cvta_generic_to_shared(target);
    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(source), "r"(valid));
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address), "l"(source), "n"(BYTES),
                     "r"(valid));
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
    constexpr int PITCH = DEPTH + WIDTH;  // of a row of A in shared memory
    constexpr int STAGE = ROWS * PITCH + DEPTH * COLUMNS;
    static_assert(ROWS * COLUMNS == BLOCK * SIDE * SIDE, "a block's threads cover its part of C");
    extern __shared__ __align__(16) unsigned char shared[];
    REAL *const ring = (REAL *)shared;
    const int t = threadIdx.x, lane = t % 32, warp = t / 32;
    const int y = warp / (COLUMNS / WARP_COLUMNS) * WARP_ROWS + lane / LANE_COLUMNS;
    const int x = warp % (COLUMNS / WARP_COLUMNS) * WARP_COLUMNS + lane % LANE_COLUMNS * WIDTH;
    const int first_row = blockIdx.y * ROWS, first_column = blockIdx.x * COLUMNS;
    const bool aligned = lda % WIDTH == 0 && ldb % WIDTH == 0 && (size_t)A % 16 == 0 && (size_t)B % 16 == 0;

    // start the copy of WIDTH elements of row `row` from column `column` on
    auto fetch = [aligned](REAL *target, const REAL *X, int ld, int row, int column, int rows, int columns) {
        const int valid = row < rows ? max(0, min(WIDTH, columns - column)) : 0;
        const REAL *source = valid > 0 ? X + (size_t)row * ld + column : X;  // an address that may be formed
        if (aligned)
            copy_async<16>(target, source, valid * sizeof(REAL));
        else
#pragma unroll
            for (int i = 0; i < WIDTH; ++i)
                copy_async<sizeof(REAL)>(target + i, i < valid ? source + i : X, i < valid ? sizeof(REAL) : 0);
    };
    auto fetch_tiles = [&](int tile) {
        REAL *const tile_a = ring + tile % STAGES * STAGE, *const tile_b = tile_a + ROWS * PITCH;
        const int start = tile * DEPTH;
        if (start < k) {
#pragma unroll
            for (int i = t * WIDTH; i < ROWS * DEPTH; i += BLOCK * WIDTH)
                fetch(tile_a + i / DEPTH * PITCH + i % DEPTH, A, lda, first_row + i / DEPTH, start + i % DEPTH, m, k);
#pragma unroll
            for (int i = t * WIDTH; i < DEPTH * COLUMNS; i += BLOCK * WIDTH)
                fetch(tile_b + i, B, ldb, start + i / COLUMNS, first_column + i % COLUMNS, k, n);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");  // empty past the end, to keep the count
    };

    REAL sums[SIDE][SIDE] = {};
    for (int tile = 0; tile < STAGES - 1; ++tile)
        fetch_tiles(tile);
    for (int tile = 0; tile * DEPTH < k; ++tile) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        __syncthreads();  // this tile is there for all, and all are done with the one before
        fetch_tiles(tile + STAGES - 1);
        const REAL *const tile_a = ring + tile % STAGES * STAGE, *const tile_b = tile_a + ROWS * PITCH;
#pragma unroll
        for (int p = 0; p < DEPTH; p += WIDTH) {
            Vector a[SIDE];
#pragma unroll
            for (int i = 0; i < SIDE; ++i)
                a[i] = *(const Vector *)&tile_a[(y + i * LANE_ROWS) * PITCH + p];
#pragma unroll
            for (int q = 0; q < WIDTH; ++q) {
                Vector b[SIDE / WIDTH];
#pragma unroll
                for (int j = 0; j < SIDE / WIDTH; ++j)
                    b[j] = *(const Vector *)&tile_b[(p + q) * COLUMNS + x + j * LANE_COLUMNS * WIDTH];
#pragma unroll
                for (int i = 0; i < SIDE; ++i)
#pragma unroll
                    for (int j = 0; j < SIDE; ++j)
                        sums[i][j] += a[i].of[q] * b[j / WIDTH].of[j % WIDTH];
            }
        }
    }
#pragma unroll
    for (int i = 0; i < SIDE; ++i)
#pragma unroll
        for (int j = 0; j < SIDE; ++j) {
            const int row = first_row + y + i * LANE_ROWS;
            const int column = first_column + x + j / WIDTH * LANE_COLUMNS * WIDTH + j % WIDTH;
            if (row < m && column < n) {
                REAL &c = C[(size_t)row * ldc + column];
                c = beta == 0 ? alpha * sums[i][j] : alpha * sums[i][j] + beta * c;  // beta = 0: C is not read
            }
        }
}
