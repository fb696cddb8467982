// Matrix product, GPU rung: the lanes of a warp share one tile of C.
//
// As vectorized, but the block's tile of C is divided among warps, 64 x 32 each, and a warp's tile among
// 8 x 4 lanes. A lane's 8 x 8 elements are groups of 16 bytes spread over the warp's tile, so that in
// each load the lanes of a warp read contiguous or identical words of shared memory: no bank conflicts,
// and half the distinct words of the previous layout. Limit: between two barriers a block either loads or
// computes, but never both.
//
// hpcmm:
//   operation: matmul
//   shelf: lesson
//   change: the lanes of a warp share one tile of C
//   counterpart: vectorized
//   rows: 128
//   columns: 128
//   depth: 16
//   block: 256

struct alignas(16) Vector {
    REAL of[16 / sizeof(REAL)];
};

extern "C" __global__ void __launch_bounds__(BLOCK)
    matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    constexpr int SIDE = 8, WIDTH = 16 / sizeof(REAL);
    constexpr int LANE_ROWS = 8, LANE_COLUMNS = 4;
    constexpr int WARP_ROWS = LANE_ROWS * SIDE, WARP_COLUMNS = LANE_COLUMNS * SIDE;
    static_assert(ROWS * COLUMNS == BLOCK * SIDE * SIDE, "a block's threads cover its part of C");
    __shared__ alignas(16) REAL tile_a[DEPTH][ROWS];  // transposed
    __shared__ alignas(16) REAL tile_b[DEPTH][COLUMNS];
    const int t = threadIdx.x, lane = t % 32, warp = t / 32;
    const int y = warp / (COLUMNS / WARP_COLUMNS) * WARP_ROWS + lane / LANE_COLUMNS * WIDTH;
    const int x = warp % (COLUMNS / WARP_COLUMNS) * WARP_COLUMNS + lane % LANE_COLUMNS * WIDTH;
    const int first_row = blockIdx.y * ROWS, first_column = blockIdx.x * COLUMNS;
    const bool aligned = lda % WIDTH == 0 && ldb % WIDTH == 0 && (size_t)A % 16 == 0 && (size_t)B % 16 == 0;

    // Return WIDTH elements of row `row` from column `column` on; elements outside rows x columns are zero.
    auto load = [aligned](const REAL *X, int ld, int row, int column, int rows, int columns) {
        Vector v = {};
        if (row >= rows)
            return v;
        const REAL *x = X + (size_t)row * ld + column;
        if (aligned && column + WIDTH <= columns)
            return *(const Vector *)x;
        for (int i = 0; i < WIDTH; ++i)
            if (column + i < columns)
                v.of[i] = x[i];
        return v;
    };

    REAL sums[SIDE][SIDE] = {};
    for (int start = 0; start < k; start += DEPTH) {
        for (int i = t * WIDTH; i < ROWS * DEPTH; i += BLOCK * WIDTH) {
            const Vector v = load(A, lda, first_row + i / DEPTH, start + i % DEPTH, m, k);
#pragma unroll
            for (int j = 0; j < WIDTH; ++j)
                tile_a[i % DEPTH + j][i / DEPTH] = v.of[j];
        }
        for (int i = t * WIDTH; i < DEPTH * COLUMNS; i += BLOCK * WIDTH)
            *(Vector *)&tile_b[i / COLUMNS][i % COLUMNS] =
                load(B, ldb, start + i / COLUMNS, first_column + i % COLUMNS, k, n);
        __syncthreads();
#pragma unroll
        for (int p = 0; p < DEPTH; ++p) {
            Vector a[SIDE / WIDTH], b[SIDE / WIDTH];
#pragma unroll
            for (int i = 0; i < SIDE / WIDTH; ++i) {
                a[i] = *(const Vector *)&tile_a[p][y + i * LANE_ROWS * WIDTH];
                b[i] = *(const Vector *)&tile_b[p][x + i * LANE_COLUMNS * WIDTH];
            }
#pragma unroll
            for (int i = 0; i < SIDE; ++i)
#pragma unroll
                for (int j = 0; j < SIDE; ++j)
                    sums[i][j] += a[i / WIDTH].of[i % WIDTH] * b[j / WIDTH].of[j % WIDTH];
        }
        __syncthreads();
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
