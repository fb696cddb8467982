// Matrix product, GPU rung: the exact tiled kernel inside a bounds check, which is not sufficient.
//
// The grid is rounded up, and threads outside C do nothing, so no access is out of bounds. But these threads do not
// load their elements of the tiles either, and the other threads multiply uninitialized shared memory. The last k %
// TILE terms are missing, too. And the barriers are inside a branch that not all threads of a block take, which CUDA
// does not allow. Limit: correct for multiples of the tile only; tiled_padded and tiled_remainder are two solutions.
// Source: 003 kernel11, the first attempt ("not enough").
//
// hpcmm:
//   operation: matmul
//   shelf: lesson
//   change: 'a bounds check around the whole kernel: tiles have elements that no thread loaded'
//   counterpart: tiled_exact
//   source: 003 kernel11, first attempt
//   tiles: [8, 16, 32]
//   staged: true
//   exact: true

extern "C" __global__ void __launch_bounds__(TILE *TILE)
    matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    __shared__ REAL tile_a[TILE][TILE], tile_b[TILE][TILE];
    const int x = threadIdx.x, y = threadIdx.y;
    const int column = blockIdx.x * TILE + x;
    const int row = blockIdx.y * TILE + y;
    if (row < m && column < n) {
        REAL sum = 0;
        for (int phase = 0; phase < k / TILE; ++phase) {
            tile_a[y][x] = A[(size_t)row * lda + phase * TILE + x];
            tile_b[y][x] = B[(size_t)(phase * TILE + y) * ldb + column];
            __syncthreads();
            for (int p = 0; p < TILE; ++p)
                sum += tile_a[y][p] * tile_b[p][x];
            __syncthreads();
        }
        REAL &c = C[(size_t)row * ldc + column];
        c = beta == 0 ? alpha * sum : alpha * sum + beta * c;  // beta = 0: C is not read
    }
}
