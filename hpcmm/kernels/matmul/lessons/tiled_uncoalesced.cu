// Matrix product, GPU rung: tiles staged in shared memory, but loaded by columns.
//
// As tiled_padded, but neighbouring threads of a warp load neighbouring rows of A and of B: each element is in a
// different sector of memory, and a load of a warp accesses 32 sectors instead of 4. The rows of the tiles are padded
// by one element, so these stores have no bank conflicts. But rows of the tile of A are then not aligned to 16 bytes,
// so the compiler does not read four of their elements at once. Tiling makes loads rare, so the loss is smaller than in
// uncoalesced. Limit: a sector is fetched again for each of its elements, unless L1 holds it.
// Source: 000, 004 unit 4.
//
// hpcmm:
//   operation: matmul
//   shelf: lesson
//   change: tiles of A and of B loaded by columns
//   counterpart: tiled_padded
//   source: 000, 004 unit 4
//   tiles: [8, 16, 32]
//   staged: true

extern "C" __global__ void __launch_bounds__(TILE *TILE)
    matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    __shared__ REAL tile_a[TILE][TILE + 1], tile_b[TILE][TILE + 1];
    const int x = threadIdx.x, y = threadIdx.y;
    const int column = blockIdx.x * TILE + x;
    const int row = blockIdx.y * TILE + y;
    const int loaded_row = blockIdx.y * TILE + x, loaded_column = blockIdx.x * TILE + y;
    REAL sum = 0;
    for (int start = 0; start < k; start += TILE) {
        tile_a[x][y] = loaded_row < m && start + y < k ? A[(size_t)loaded_row * lda + start + y] : REAL(0);
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
