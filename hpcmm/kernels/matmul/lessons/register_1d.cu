// Matrix product, GPU rung: each thread computes a column of elements in registers.
//
// A block computes ROWS x COLUMNS elements of C from tiles of depth DEPTH. A thread computes PER_THREAD
// elements of one column, with the sums in registers. An element of B is loaded from shared memory once
// for PER_THREAD multiply-adds, so a multiply-add needs little more than one load instead of two.
// Limit: still one load of A per multiply-add.
//
// hpcmm:
//   operation: matmul
//   shelf: lesson
//   change: each thread computes a column of 8 elements in registers
//   counterpart: tiled_padded
//   rows: 64
//   columns: 64
//   depth: 8
//   block: 512

extern "C" __global__ void __launch_bounds__(BLOCK)
    matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    constexpr int PER_THREAD = ROWS * COLUMNS / BLOCK;
    __shared__ REAL tile_a[ROWS][DEPTH], tile_b[DEPTH][COLUMNS];
    const int t = threadIdx.x;
    const int x = t % COLUMNS, y = t / COLUMNS * PER_THREAD;
    const int first_row = blockIdx.y * ROWS, first_column = blockIdx.x * COLUMNS;
    REAL sums[PER_THREAD] = {};
    for (int start = 0; start < k; start += DEPTH) {
        for (int i = t; i < ROWS * DEPTH; i += BLOCK) {
            const int row = first_row + i / DEPTH, p = start + i % DEPTH;
            tile_a[i / DEPTH][i % DEPTH] = row < m && p < k ? A[(size_t)row * lda + p] : REAL(0);
        }
        for (int i = t; i < DEPTH * COLUMNS; i += BLOCK) {
            const int p = start + i / COLUMNS, column = first_column + i % COLUMNS;
            tile_b[i / COLUMNS][i % COLUMNS] = p < k && column < n ? B[(size_t)p * ldb + column] : REAL(0);
        }
        __syncthreads();
#pragma unroll 4  // all 8 steps would need more registers than three blocks per SM have
        for (int p = 0; p < DEPTH; ++p) {
            const REAL b = tile_b[p][x];
#pragma unroll
            for (int i = 0; i < PER_THREAD; ++i)
                sums[i] += tile_a[y + i][p] * b;
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < PER_THREAD; ++i) {
        const int row = first_row + y + i, column = first_column + x;
        if (row < m && column < n) {
            REAL &c = C[(size_t)row * ldc + column];
            c = beta == 0 ? alpha * sums[i] : alpha * sums[i] + beta * c;  // beta = 0: C is not read
        }
    }
}
