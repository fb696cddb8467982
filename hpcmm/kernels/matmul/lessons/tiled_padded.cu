// Matrix product, GPU rung: tiles staged in shared memory and padded with zeros, any shape.
//
// As tiled_exact, but the grid is rounded up and elements outside the matrices are stored as zeros,
// which add nothing to the sums: the last tile needs no special case. Threads outside C still load and
// take part in the barriers, but do not write. Limit: the last phase multiplies zeros, and each
// multiply-add still costs two loads from shared memory.
// Source: 001.
//
// hpcmm:
//   operation: matmul
//   shelf: lesson
//   change: 'tiles loaded by rows, the last one padded with zeros: any size'
//   counterpart: naive
//   source: '001'
//   tiles: [8, 16, 32]
//   staged: true

extern "C" __global__ void __launch_bounds__(TILE *TILE)
    matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    __shared__ REAL tile_a[TILE][TILE], tile_b[TILE][TILE];
    const int x = threadIdx.x, y = threadIdx.y;
    const int column = blockIdx.x * TILE + x;
    const int row = blockIdx.y * TILE + y;
    REAL sum = 0;
    for (int start = 0; start < k; start += TILE) {
        tile_a[y][x] = row < m && start + x < k ? A[(size_t)row * lda + start + x] : REAL(0);
        tile_b[y][x] = start + y < k && column < n ? B[(size_t)(start + y) * ldb + column] : REAL(0);
        __syncthreads();
        for (int p = 0; p < TILE; ++p)
            sum += tile_a[y][p] * tile_b[p][x];
        __syncthreads();
    }
    if (row < m && column < n) {
        REAL &c = C[(size_t)row * ldc + column];
        c = beta == 0 ? alpha * sum : alpha * sum + beta * c;  // beta = 0: C is not read
    }
}
