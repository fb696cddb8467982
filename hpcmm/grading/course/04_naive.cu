// 4. One thread per element of C.
//
// Task: each thread computes one element.
// Hints: the grid is rounded up, so some threads are outside C and must do nothing. Let neighbouring threads of a warp
// (threadIdx.x) take neighbouring columns: their reads of B are then coalesced.
//
// hpcmm:
//   operation: matmul
//   tiles: [16]

extern "C" __global__ void
matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    const int column = blockIdx.x * TILE + threadIdx.x;
    const int row = blockIdx.y * TILE + threadIdx.y;
    // TODO: threads outside C return
    REAL sum = 0;
    // TODO: sum of A(row, p) B(p, column) over p
    if (row < m && column < n)
        C[(size_t)row * ldc + column] = alpha * sum;  // TODO: beta
}
