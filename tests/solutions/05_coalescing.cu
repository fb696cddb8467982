// 5. Coalescing.
//
// Task: this kernel is right and slow. Let a warp access whole sectors of B and C, without another number of loads.
// Hints: a warp is 32 threads with consecutive threadIdx.x. Global memory comes in sectors of 32 bytes. Here neighbouring
// threads take neighbouring rows: each element of B is one address for all, and each lane reads another row of A. Which of
// row and column should follow threadIdx.x? The grid has columns along x and rows along y, and must keep them.
//
// hpcmm:
//   operation: matmul
//   tiles: [32]

extern "C" __global__ void
matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    const int column = blockIdx.x * TILE + threadIdx.x;
    const int row = blockIdx.y * TILE + threadIdx.y;
    if (row >= m || column >= n)
        return;
    REAL sum = 0;
    for (int p = 0; p < k; ++p)
        sum += A[(size_t)row * lda + p] * B[(size_t)p * ldb + column];
    REAL &c = C[(size_t)row * ldc + column];
    c = beta == 0 ? alpha * sum : alpha * sum + beta * c;
}
