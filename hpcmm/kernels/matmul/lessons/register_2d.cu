// Matrix product, GPU rung: each thread computes a square of elements in registers.
//
// Each step of p loads a column of SIDE elements of A and a row of SIDE elements of B into registers and
// adds their outer product: SIDE * SIDE multiply-adds from 2 SIDE loads, four per load for SIDE = 8. That
// can keep the arithmetic units busy. Limit: elements are loaded singly, and a thread's elements of B are
// adjacent, so the loads of a warp have bank conflicts.
//
// hpcmm:
//   operation: matmul
//   shelf: lesson
//   change: each thread computes 8 x 8 elements in registers
//   counterpart: register_1d
//   rows: 128
//   columns: 128
//   depth: 8
//   block: 256

extern "C" __global__ void __launch_bounds__(BLOCK)
    matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    constexpr int SIDE = 8;
    static_assert(ROWS * COLUMNS == BLOCK * SIDE * SIDE, "a block's threads cover its part of C");
    __shared__ REAL tile_a[ROWS][DEPTH], tile_b[DEPTH][COLUMNS];
    const int t = threadIdx.x;
    const int x = t % (COLUMNS / SIDE) * SIDE, y = t / (COLUMNS / SIDE) * SIDE;
    const int first_row = blockIdx.y * ROWS, first_column = blockIdx.x * COLUMNS;
    REAL sums[SIDE][SIDE] = {};
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
#pragma unroll
        for (int p = 0; p < DEPTH; ++p) {
            REAL a[SIDE], b[SIDE];
#pragma unroll
            for (int i = 0; i < SIDE; ++i) {
                a[i] = tile_a[y + i][p];
                b[i] = tile_b[p][x + i];
            }
#pragma unroll
            for (int i = 0; i < SIDE; ++i)
#pragma unroll
                for (int j = 0; j < SIDE; ++j)
                    sums[i][j] += a[i] * b[j];
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
