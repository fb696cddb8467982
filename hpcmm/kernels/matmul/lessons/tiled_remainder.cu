// Matrix product, GPU rung: tiles staged in shared memory, with a separate loop for the last tile.
//
// The alternative to padding, for a k that is not a multiple of TILE: full phases run without a bounds check on k, and
// a last phase adds only the k % TILE remaining products. The rest of its tiles is never read. Rows and columns are
// clamped to the last one instead of being checked: surplus threads load valid elements and do not write. Limit: each
// multiply-add still costs two loads from shared memory.
// Source: 003 kernel11.
//
// hpcmm:
//   operation: matmul
//   shelf: lesson
//   change: a separate loop for the last tile
//   counterpart: tiled_exact
//   source: 003 kernel11
//   tiles: [8, 16, 32]
//   staged: true

extern "C" __global__ void __launch_bounds__(TILE *TILE)
    matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    __shared__ REAL tile_a[TILE][TILE], tile_b[TILE][TILE];
    const int x = threadIdx.x, y = threadIdx.y;
    const int column = blockIdx.x * TILE + x;
    const int row = blockIdx.y * TILE + y;
    const REAL *a = A + (size_t)min(row, m - 1) * lda;
    const REAL *b = B + min(column, n - 1);
    REAL sum = 0;
    int start = 0;
    for (; start + TILE <= k; start += TILE) {
        tile_a[y][x] = a[start + x];
        tile_b[y][x] = b[(size_t)(start + y) * ldb];
        __syncthreads();
        for (int p = 0; p < TILE; ++p)
            sum += tile_a[y][p] * tile_b[p][x];
        __syncthreads();
    }
    if (start < k) {
        tile_a[y][x] = a[min(start + x, k - 1)];
        tile_b[y][x] = b[(size_t)min(start + y, k - 1) * ldb];
        __syncthreads();
        for (int p = 0; p < k - start; ++p)
            sum += tile_a[y][p] * tile_b[p][x];
    }
    if (row < m && column < n) {
        REAL &c = C[(size_t)row * ldc + column];
        c = beta == 0 ? alpha * sum : alpha * sum + beta * c;  // beta = 0: C is not read
    }
}
