// Matrix product, GPU rung: tiles stored by columns again, but each row padded by one element.
//
// As bank_conflict, but a row in shared memory has TILE + 1 words. The stride of a column then has no
// common factor with the 32 banks, so the 32 elements that a warp accesses are in 32 banks, and there are no conflicts.
// Tiles stored by rows, as in tiled_padded, need no padding. Limit: each multiply-add still costs two loads from shared
// memory.
// Source: 000, 001.
//
// hpcmm:
//   operation: matmul
//   shelf: lesson
//   change: the same with padded rows
//   counterpart: bank_conflict
//   source: 000, 001
//   tiles: [8, 16, 32]
//   staged: true

extern "C" __global__ void __launch_bounds__(TILE *TILE)
    matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    __shared__ REAL tile_a[TILE][TILE + 1], tile_b[TILE][TILE + 1];  // [column][row]
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
