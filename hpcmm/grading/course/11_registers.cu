// 11. Register tiles.
//
// Task: each thread computes PER_THREAD elements of one column of C in registers.
// Hints: a thread loads an element of B from shared memory once for PER_THREAD multiply-adds. Unrolled loops with
// constant bounds keep the sums in registers; an index that is only known at run time would put them into local memory.
// hpcmm bench shows registers and spills. The block has 512 threads, so each thread loads one element of either tile.
//
// hpcmm:
//   operation: matmul
//   block: 512
//   rows: 64
//   columns: 64
//   constants: {DEPTH: 8}

extern "C" __global__ void __launch_bounds__(BLOCK)
    matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    constexpr int PER_THREAD = ROWS * COLUMNS / BLOCK;
    __shared__ REAL tile_a[ROWS][DEPTH], tile_b[DEPTH][COLUMNS];
    const int t = threadIdx.x;
    const int x = t % COLUMNS, y = t / COLUMNS * PER_THREAD;  // this thread's first element in the block's tile of C
    const int first_row = blockIdx.y * ROWS, first_column = blockIdx.x * COLUMNS;
    REAL sums[PER_THREAD] = {};
    for (int start = 0; start < k; start += DEPTH) {
        {
            const int row = first_row + t / DEPTH, p = start + t % DEPTH;
            tile_a[t / DEPTH][t % DEPTH] = row < m && p < k ? A[(size_t)row * lda + p] : REAL(0);
        }
        {
            const int p = start + t / COLUMNS, column = first_column + t % COLUMNS;
            tile_b[t / COLUMNS][t % COLUMNS] = p < k && column < n ? B[(size_t)p * ldb + column] : REAL(0);
        }
        __syncthreads();
        for (int p = 0; p < DEPTH; ++p) {
            const REAL b = tile_b[p][x];
            sums[0] += tile_a[y][p] * b;  // TODO: all PER_THREAD sums, of rows y to y + PER_THREAD - 1 of tile_a
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < PER_THREAD; ++i) {
        const int row = first_row + y + i, column = first_column + x;
        if (row < m && column < n) {
            REAL &c = C[(size_t)row * ldc + column];
            c = beta == 0 ? alpha * sums[i] : alpha * sums[i] + beta * c;
        }
    }
}
