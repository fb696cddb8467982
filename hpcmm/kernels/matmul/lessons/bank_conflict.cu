// Matrix product, GPU rung: tiles stored by columns in shared memory, with bank conflicts.
//
// Both tiles are stored transposed. A warp then writes its 32 elements with a stride of TILE words,
// and reads the elements of B with the same stride. For TILE = 32 all 32 words are in the same bank, and one access is
// split into 32 (into 8 at TILE = 16 in float32). Limit: bank conflicts, which conflict_free removes.
// Source: 000, 001.
//
// hpcmm:
//   operation: matmul
//   shelf: lesson
//   change: 'tiles stored by columns: bank conflicts'
//   counterpart: tiled_padded
//   source: 000, 001
//   tiles: [8, 16, 32]
//   staged: true

extern "C" __global__ void __launch_bounds__(TILE *TILE)
    matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    __shared__ REAL tile_a[TILE][TILE], tile_b[TILE][TILE];  // [column][row]
    const int x = threadIdx.x, y = threadIdx.y;
    const int column = blockIdx.x * TILE + x;
    const int row = blockIdx.y * TILE + y;
    REAL sum = 0;
    for (int start = 0; start < k; start += TILE) {
        tile_a[x][y] = row < m && start + x < k ? A[(size_t)row * lda + start + x] : REAL(0);
        tile_b[x][y] = start + y < k && column < n ? B[(size_t)(start + y) * ldb + column] : REAL(0);
        __syncthreads();
        for (int p = 0; p < TILE; ++p)
            sum += tile_a[p][y] * tile_b[x][p];
        __syncthreads();
    }
    if (row < m && column < n) {
        REAL &c = C[(size_t)row * ldc + column];
        c = beta == 0 ? alpha * sum : alpha * sum + beta * c;  // beta = 0: C is not read
    }
}
