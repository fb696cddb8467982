// 6. Ragged sizes.
//
// Task: this kernel is right where TILE divides m, n and k. Make it right for all sizes. The last tile along k has only
// k % TILE columns of A and rows of B: let the threads take that many steps there, not TILE.
// Hints: as 003's last kernel: a loop over the whole tiles, and the remainder after it. Threads outside C load, too, or
// other threads multiply what nobody loaded; but no thread may read outside A and B. Only threads inside C write.
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
    for (int start = 0; start + TILE <= k; start += TILE) {
        tile_a[y][x] = A[(size_t)row * lda + start + x];
        tile_b[y][x] = B[(size_t)(start + y) * ldb + column];
        __syncthreads();
        for (int p = 0; p < TILE; ++p)
            sum += tile_a[y][p] * tile_b[p][x];
        __syncthreads();
    }
    // TODO: the remainder, and sizes that TILE does not divide
    REAL &c = C[(size_t)row * ldc + column];
    c = beta == 0 ? alpha * sum : alpha * sum + beta * c;
}
