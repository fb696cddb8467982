// 10. No bank conflicts.
//
// Task: store the tile of A by columns, tile_a[x][y], without bank conflicts.
// Hints: shared memory has 32 banks of 4 bytes. In tile_a[x][y], neighbouring threads (x) write with a stride of a row.
// If the row is 32 elements long, all of a warp write to one bank, one after the other. What does another length of
// the row do? hpcmm bench shows the conflicts with --profile.
//
// hpcmm:
//   operation: matmul
//   tiles: [32]

extern "C" __global__ void
matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    __shared__ REAL tile_a[TILE][TILE + 1], tile_b[TILE][TILE];
    const int x = threadIdx.x, y = threadIdx.y;
    const int column = blockIdx.x * TILE + x;
    const int row = blockIdx.y * TILE + y;
    REAL sum = 0;
    for (int start = 0; start < k; start += TILE) {
        tile_a[x][y] = row < m && start + x < k ? A[(size_t)row * lda + start + x] : REAL(0);
        tile_b[y][x] = start + y < k && column < n ? B[(size_t)(start + y) * ldb + column] : REAL(0);
        __syncthreads();
        for (int p = 0; p < TILE; ++p)
            sum += tile_a[p][y] * tile_b[p][x];
        __syncthreads();
    }
    if (row < m && column < n) {
        REAL &c = C[(size_t)row * ldc + column];
        c = beta == 0 ? alpha * sum : alpha * sum + beta * c;
    }
}
