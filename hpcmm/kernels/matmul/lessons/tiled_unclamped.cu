// Matrix product, GPU rung: a separate loop for the last tile, and loads without any bounds check.
//
// The kernel11 of 003 as printed. The last phase adds only the remaining products, and surplus threads do not write.
// So no element outside the matrices contributes to C, but the kernel still loads them: behind a row that is the next
// row, behind the last row it is memory of others. Whether that faults depends on what lies there, so correct results
// do not prove correct accesses; the emulation on the host reports them. Limit: it needs readable memory behind A and B;
// tiled_remainder clamps its indices instead.
// Source: 003 kernel11.
//
// hpcmm:
//   operation: matmul
//   shelf: lesson
//   change: 'the last tile is loaded without a bounds check: it reads memory outside the matrices'
//   counterpart: tiled_remainder
//   source: 003 kernel11
//   tiles: [8, 16, 32]
//   staged: true
//   guard_rows: 64

extern "C" __global__ void __launch_bounds__(TILE *TILE)
    matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    __shared__ REAL tile_a[TILE][TILE], tile_b[TILE][TILE];
    const int x = threadIdx.x, y = threadIdx.y;
    const int column = blockIdx.x * TILE + x;
    const int row = blockIdx.y * TILE + y;
    const REAL *a = A + (size_t)row * lda;
    const REAL *b = B + column;
    REAL sum = 0;
    int start = 0;
    for (; start < k - TILE; start += TILE) {
        tile_a[y][x] = a[start + x];
        tile_b[y][x] = b[(size_t)(start + y) * ldb];
        __syncthreads();
        for (int p = 0; p < TILE; ++p)
            sum += tile_a[y][p] * tile_b[p][x];
        __syncthreads();
    }
    if (start < k) {  // not in 003: k = 0 has no tile
        tile_a[y][x] = a[start + x];
        tile_b[y][x] = b[(size_t)(start + y) * ldb];
        __syncthreads();
        for (int p = 0; p < k - start; ++p)
            sum += tile_a[y][p] * tile_b[p][x];
    }
    if (row < m && column < n) {
        REAL &c = C[(size_t)row * ldc + column];
        c = beta == 0 ? alpha * sum : alpha * sum + beta * c;  // beta = 0: C is not read
    }
}
