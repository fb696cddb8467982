// Matrix product, GPU rung: 16 bytes per load, from global and from shared memory.
//
// As register_2d, with two changes. Tiles are read from global memory 16 bytes at a time if rows are
// aligned, with a quarter of the load instructions (half in float64). The tile of A is stored transposed,
// so that a thread's column of A is contiguous in shared memory and is read 16 bytes at a time, like its
// row of B. Limit: few lanes of a warp read the same words of A and B, so each load fetches many distinct words.
//
// hpcmm:
//   operation: matmul
//   shelf: lesson
//   change: 16 bytes per load, A transposed in shared memory
//   counterpart: register_2d
//   rows: 128
//   columns: 128
//   depth: 8
//   block: 256

struct alignas(16) Vector {
    REAL of[16 / sizeof(REAL)];
};

extern "C" __global__ void __launch_bounds__(BLOCK)
    matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    constexpr int SIDE = 8, WIDTH = 16 / sizeof(REAL);
    static_assert(ROWS * COLUMNS == BLOCK * SIDE * SIDE, "a block's threads cover its part of C");
    __shared__ alignas(16) REAL tile_a[DEPTH][ROWS];  // transposed
    __shared__ alignas(16) REAL tile_b[DEPTH][COLUMNS];
    const int t = threadIdx.x;
    const int x = t % (COLUMNS / SIDE) * SIDE, y = t / (COLUMNS / SIDE) * SIDE;
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
                a[i] = *(const Vector *)&tile_a[p][y + i * WIDTH];
                b[i] = *(const Vector *)&tile_b[p][x + i * WIDTH];
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
            const int row = first_row + y + i, column = first_column + x + j;
            if (row < m && column < n) {
                REAL &c = C[(size_t)row * ldc + column];
                c = beta == 0 ? alpha * sums[i][j] : alpha * sums[i][j] + beta * c;  // beta = 0: C is not read
            }
        }
}
