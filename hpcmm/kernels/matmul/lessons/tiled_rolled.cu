// Matrix product, GPU rung: the loop over a tile is not unrolled.
//
// As tiled_padded, but a pragma keeps the compiler from unrolling the loop over p. Each multiply-add then also costs an
// increment, a comparison, a branch and the addresses of both loads. tiled_unrolled is the same kernel with the loop
// unrolled. Limit: the instructions of the loop.
// Source: 000, 001.
//
// hpcmm:
//   operation: matmul
//   shelf: lesson
//   change: tiled_padded without the unrolling that the compiler does by itself
//   counterpart: tiled_padded
//   source: 000, 001
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
#pragma unroll 1
        for (int p = 0; p < TILE; ++p)
            sum += tile_a[y][p] * tile_b[p][x];
        __syncthreads();
    }
    if (row < m && column < n) {
        REAL &c = C[(size_t)row * ldc + column];
        c = beta == 0 ? alpha * sum : alpha * sum + beta * c;  // beta = 0: C is not read
    }
}
