// Matrix product, GPU rung: tiles of A and B staged in shared memory, for multiples of the tile only.
//
// A block of TILE x TILE threads computes a TILE x TILE tile of C in k / TILE phases. In each phase
// every thread loads one element of A and one of B; after a barrier TILE threads use each loaded
// element, so global memory is read TILE times less often than by the naive rung. A second barrier
// keeps the next phase from overwriting a tile that a slower warp still reads. Limit: no bounds
// checks; a size that is not a multiple of the tile loses its remainder.
// Source: 000, 002, 003 kernel10, 004 unit 3.
//
// hpcmm:
//   operation: matmul
//   shelf: lesson
//   change: tiles of A and B staged in shared memory, multiples of the tile only
//   counterpart: naive_unguarded
//   source: 000, 002, 003 kernel10, 004 unit 3
//   tiles: [8, 16, 32]
//   staged: true
//   grid: [n / TILE, m / TILE]
//   exact: true

extern "C" __global__ void __launch_bounds__(TILE *TILE)
    matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    __shared__ REAL tile_a[TILE][TILE], tile_b[TILE][TILE];
    const int x = threadIdx.x, y = threadIdx.y;
    const int column = blockIdx.x * TILE + x;
    const int row = blockIdx.y * TILE + y;
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
