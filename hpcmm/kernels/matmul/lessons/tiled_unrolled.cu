// Matrix product, GPU rung: the loop over a tile is fully unrolled.
//
// As tiled_rolled, but the loop over p is unrolled: its length is known at compile time. It then has no branch, no
// increment and no address computation, because each offset is a constant in the instruction. Today's compilers unroll
// it without the pragma, so tiled_padded compiles to the same code (001 measured no gain). Limit: the loads from shared
// memory remain.
// Source: 000, 001.
//
// hpcmm:
//   operation: matmul
//   shelf: lesson
//   change: the loop over a tile unrolled
//   counterpart: tiled_rolled
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
#pragma unroll
        for (int p = 0; p < TILE; ++p)
            sum += tile_a[y][p] * tile_b[p][x];
        __syncthreads();
    }
    if (row < m && column < n) {
        REAL &c = C[(size_t)row * ldc + column];
        c = beta == 0 ? alpha * sum : alpha * sum + beta * c;  // beta = 0: C is not read
    }
}
