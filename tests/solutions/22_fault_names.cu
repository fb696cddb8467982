// 22. Find the fault: the names of 002.
//
// Task: this kernel mixes its names as the slide of 002 does, and does not compile. Mend all of them; the message of the
// compiler names one after the other.
// Hints: a tile has one name where it is loaded and where it is used. Which index counts the phases? Two functions of CUDA
// begin with __sync: one waits for the block, one for the warp.
//
// hpcmm:
//   operation: matmul
//   tiles: [16]

extern "C" __global__ void
matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    __shared__ REAL ds_A[TILE][TILE], ds_B[TILE][TILE];
    const int tx = threadIdx.x, ty = threadIdx.y;
    const int Row = blockIdx.y * TILE + ty, Col = blockIdx.x * TILE + tx;
    REAL Pvalue = 0;
    for (int p = 0; p < (k + TILE - 1) / TILE; ++p) {
        ds_A[ty][tx] = Row < m && p * TILE + tx < k ? A[(size_t)Row * lda + p * TILE + tx] : REAL(0);
        ds_B[ty][tx] = p * TILE + ty < k && Col < n ? B[(size_t)(p * TILE + ty) * ldb + Col] : REAL(0);
        __syncthreads();
        for (int i = 0; i < TILE; ++i)
            Pvalue += ds_A[ty][i] * ds_B[i][tx];
        __syncthreads();
    }
    if (Row < m && Col < n) {
        REAL &c = C[(size_t)Row * ldc + Col];
        c = beta == 0 ? alpha * Pvalue : alpha * Pvalue + beta * c;
    }
}
