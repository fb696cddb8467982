// Matrix product, GPU rung: corner turning, coalesced loads for an access by columns.
//
// Threads take rows and columns of C as in uncoalesced: neighbouring threads of a warp need neighbouring rows of A, and
// write neighbouring rows of C. The block loads its tiles along the rows of memory, so each load is coalesced. The
// threads then read shared memory by columns, where coalescing does not matter. The tile of C is written through shared
// memory in the same way. Rows of a tile are padded by one element, so accesses by columns have no bank conflicts.
// Limit: each multiply-add still costs two loads from shared memory.
// Source: 004 unit 4 (corner turning), 000.
//
// hpcmm:
//   operation: matmul
//   shelf: lesson
//   change: threads by columns as in uncoalesced; shared memory turns each access into one by rows
//   counterpart: uncoalesced
//   source: 000, 004 unit 4
//   tiles: [8, 16, 32]
//   staged: true

extern "C" __global__ void __launch_bounds__(TILE *TILE)
    matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    __shared__ REAL tile_a[TILE][TILE + 1], tile_b[TILE][TILE + 1];
    const int x = threadIdx.x, y = threadIdx.y;
    const int first_row = blockIdx.y * TILE, first_column = blockIdx.x * TILE;
    REAL sum = 0;  // of row x and column y of the tile
    for (int start = 0; start < k; start += TILE) {
        tile_a[y][x] = first_row + y < m && start + x < k ? A[(size_t)(first_row + y) * lda + start + x] : REAL(0);
        tile_b[y][x] = start + y < k && first_column + x < n ? B[(size_t)(start + y) * ldb + first_column + x] : REAL(0);
        __syncthreads();
        for (int p = 0; p < TILE; ++p)
            sum += tile_a[x][p] * tile_b[p][y];
        __syncthreads();
    }
    tile_a[x][y] = sum;
    __syncthreads();
    const int row = first_row + y, column = first_column + x;
    if (row < m && column < n) {
        REAL &c = C[(size_t)row * ldc + column];
        c = beta == 0 ? alpha * tile_a[y][x] : alpha * tile_a[y][x] + beta * c;  // beta = 0: C is not read
    }
}
