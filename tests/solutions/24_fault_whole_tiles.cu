// 24. Find the fault: kernel10 of 003 at 641.
//
// Task: this kernel is right at 640 and wrong at 641. Mend it with zeros in the tiles.
// Hints: at 641 the grid has 21 x 21 blocks, so the last ones reach beyond the matrices: what do they read, and where do they
// write? And k / TILE is rounded down: which terms are missing?
//
// hpcmm:
//   operation: matmul
//   tiles: [16]

extern "C" __global__ void
matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    __shared__ REAL sA[TILE][TILE], sB[TILE][TILE];
    const int thx = threadIdx.x, thy = threadIdx.y;
    const int row = blockIdx.y * TILE + thy, col = blockIdx.x * TILE + thx;
    REAL tmp = 0;
    for (int s = 0; s < (k + TILE - 1) / TILE; s++) {
        sA[thy][thx] = row < m && s * TILE + thx < k ? A[(size_t)row * lda + s * TILE + thx] : REAL(0);
        sB[thy][thx] = s * TILE + thy < k && col < n ? B[(size_t)(s * TILE + thy) * ldb + col] : REAL(0);
        __syncthreads();
        for (int p = 0; p < TILE; p++)
            tmp += sA[thy][p] * sB[p][thx];
        __syncthreads();
    }
    if (row < m && col < n) {
        REAL &c = C[(size_t)row * ldc + col];
        c = beta == 0 ? alpha * tmp : alpha * tmp + beta * c;
    }
}
