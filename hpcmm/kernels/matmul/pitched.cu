// Matrix product, GPU rung: tiled_padded on matrices whose rows are padded.
//
// The code is that of tiled_padded; what differs is the leading dimension that it is given. The matrices
// are copied on the device into a pitched allocation first, whose rows start at addresses that suit
// the memory, so that a warp's row of a tile is read in the fewest transactions also where a width is no
// power of two. The copies are timed as a phase of their own. Limit: a tile of 32 elements is 128
// bytes, so at most one transaction in five is saved, and caches make up for most of it.
// Source: 001.

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
