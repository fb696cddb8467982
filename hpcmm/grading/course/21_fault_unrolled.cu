// 21. Find the fault: the unrolled loop of 001.
//
// Task: this loop is as 001 prints it, with a stride of 4. It adds terms that it should not. Mend it; keep four steps a turn.
// Hints: write down the values of i for k = 8 and for k = 6. When does the first loop end, and where does the second begin?
//
// hpcmm:
//   operation: matmul
//   tiles: [16]

extern "C" __global__ void
matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    const int col = blockIdx.x * TILE + threadIdx.x;
    const int row = blockIdx.y * TILE + threadIdx.y;
    if (row >= m || col >= n)
        return;
    const size_t row_off = (size_t)row * lda, step = ldb;
    REAL tmp = 0;
    int i = 0;
    for (; i < k; i += 4) {  // TODO: find the fault
        tmp += A[row_off + i] * B[col + i * step];
        tmp += A[row_off + i + 1] * B[col + (i + 1) * step];
        tmp += A[row_off + i + 2] * B[col + (i + 2) * step];
        tmp += A[row_off + i + 3] * B[col + (i + 3) * step];
    }
    i -= 4;
    for (; i < k; i++)
        tmp += A[row_off + i] * B[col + i * step];
    REAL &c = C[(size_t)row * ldc + col];
    c = beta == 0 ? alpha * tmp : alpha * tmp + beta * c;
}
