// Matrix product, GPU rung: tiles staged in shared memory, with B alone loaded by columns.
//
// As tiled_padded, but neighbouring threads of a warp load neighbouring rows of B: each element is in a different
// sector of memory, so a load of B accesses 32 sectors and one of A still 4. The rows of the tile of B are padded by
// one element, so its stores have no bank conflicts at TILE = 32 and only the loads differ. Limit: a sector of B is
// fetched again for each of its elements, unless L1 holds it.
// Source: 000, the step "Tiling" before "Memory Coalescing".
//
// hpcmm:
//   operation: matmul
//   shelf: lesson
//   change: tiles of B loaded by columns
//   counterpart: tiled_padded
//   source: '000'
//   tiles: [8, 16, 32]
//   staged: true

extern "C" __global__ void __launch_bounds__(TILE *TILE)
    matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    __shared__ REAL tile_a[TILE][TILE], tile_b[TILE][TILE + 1];
    const int x = threadIdx.x, y = threadIdx.y;
    const int column = blockIdx.x * TILE + x;
    const int row = blockIdx.y * TILE + y;
    const int loaded_column = blockIdx.x * TILE + y;
    REAL sum = 0;
    for (int start = 0; start < k; start += TILE) {
        tile_a[y][x] = row < m && start + x < k ? A[(size_t)row * lda + start + x] : REAL(0);
        tile_b[x][y] = start + x < k && loaded_column < n ? B[(size_t)(start + x) * ldb + loaded_column] : REAL(0);
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
