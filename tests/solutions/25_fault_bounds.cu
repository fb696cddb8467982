// 25. Find the fault: the first kernel11 of 003.
//
// Task: a bounds check around the whole kernel is not enough. Mend it.
// Hints: threads outside C do nothing here. Who loads their elements of the tiles? Do they reach the barriers, which all
// threads of a block must reach? And which terms are missing if TILE does not divide k?
//
// hpcmm:
//   operation: matmul
//   tiles: [16]

extern "C" __global__ void
matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    __shared__ REAL sA[TILE][TILE], sB[TILE][TILE];
    const int tx = threadIdx.x, ty = threadIdx.y;
    const int row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    REAL tmp = 0;
    for (int s = 0; s < (k + TILE - 1) / TILE; s++) {
        sA[ty][tx] = row < m && s * TILE + tx < k ? A[(size_t)row * lda + s * TILE + tx] : REAL(0);
        sB[ty][tx] = s * TILE + ty < k && col < n ? B[(size_t)(s * TILE + ty) * ldb + col] : REAL(0);
        __syncthreads();
        for (int p = 0; p < TILE; p++)
            tmp += sA[ty][p] * sB[p][tx];
        __syncthreads();
    }
    if (row < m && col < n) {
        REAL &c = C[(size_t)row * ldc + col];
        c = beta == 0 ? alpha * tmp : alpha * tmp + beta * c;
    }
}
