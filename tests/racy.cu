// The product of tiled.cu without its second barrier: a thread may overwrite a tile that another one still reads.
//
// hpcmm:
//   operation: matmul
//   tiles: [16]
//   description: a barrier is missing

extern "C" __global__ void matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb,
                                  REAL beta, REAL *C, int ldc)
{
    __shared__ REAL a[TILE][TILE], b[TILE][TILE];
    const int x = threadIdx.x, y = threadIdx.y;
    const int column = blockIdx.x * TILE + x, row = blockIdx.y * TILE + y;
    REAL sum = 0;
    for (int start = 0; start < k; start += TILE) {
        a[y][x] = row < m && start + x < k ? A[(size_t)row * lda + start + x] : 0;
        b[y][x] = start + y < k && column < n ? B[(size_t)(start + y) * ldb + column] : 0;
        __syncthreads();
        for (int p = 0; p < TILE; ++p)
            sum += a[y][p] * b[p][x];
    }
    if (row < m && column < n) {
        REAL &c = C[(size_t)row * ldc + column];
        c = beta == 0 ? alpha * sum : alpha * sum + beta * c;
    }
}
