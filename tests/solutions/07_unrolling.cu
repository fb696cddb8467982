// 7. Unrolling.
//
// Task: let a turn of the loop over p do four steps, written one after the other. k need not be a multiple of four.
// Hints: a turn costs a comparison, a branch and an increment besides its multiply-adds. The loop runs while four steps are
// left (p + 4 <= k); a second loop has the remainder. Compilers do it, too (#pragma unroll); here it is counted as written.
//
// hpcmm:
//   operation: matmul
//   tiles: [16]

extern "C" __global__ void
matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    const int column = blockIdx.x * TILE + threadIdx.x;
    const int row = blockIdx.y * TILE + threadIdx.y;
    if (row >= m || column >= n)
        return;
    const REAL *a = A + (size_t)row * lda, *b = B + column;
    REAL sum = 0;
    int p = 0;
    for (; p + 4 <= k; p += 4) {
        sum += a[p] * b[(size_t)p * ldb];
        sum += a[p + 1] * b[(size_t)(p + 1) * ldb];
        sum += a[p + 2] * b[(size_t)(p + 2) * ldb];
        sum += a[p + 3] * b[(size_t)(p + 3) * ldb];
    }
    for (; p < k; ++p)
        sum += a[p] * b[(size_t)p * ldb];
    REAL &c = C[(size_t)row * ldc + column];
    c = beta == 0 ? alpha * sum : alpha * sum + beta * c;
}
