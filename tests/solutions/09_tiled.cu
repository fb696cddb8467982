// 9. Tiles in shared memory.
//
// Task: a block loads a tile of A and one of B into shared memory, and all its threads compute with them.
// Hints: an element of a tile is loaded once per block, and read TILE times. Elements outside the matrices are zeros,
// which add nothing. Two barriers per tile: after loading, and before the next tile overwrites this one. Threads
// outside C load too, so none may return early.
//
// hpcmm:
//   operation: matmul
//   tiles: [16]

extern "C" __global__ void
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
        c = beta == 0 ? alpha * sum : alpha * sum + beta * c;
    }
}
