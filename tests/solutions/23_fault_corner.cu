// 23. Find the fault: the corner-turned kernel of 004.
//
// Task: 004 loads tiles of M and N and turns them in shared memory. The product that it computes is another one. Mend the
// line in the loop over i; the loads stay as they are.
// Hints: Mds[tx][ty] = M(Row, ...) makes Mds[i][j] the element of row j and column i of the tile. Write the sum for tiles of
// 2 x 2: which element of N stands beside which of M? A B and B A differ.
//
// hpcmm:
//   operation: matmul
//   tiles: [32]

extern "C" __global__ void
matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    __shared__ REAL Mds[TILE][TILE + 1], Nds[TILE][TILE + 1];
    const int tx = threadIdx.x, ty = threadIdx.y;
    const int Row = blockIdx.y * TILE + ty, Col = blockIdx.x * TILE + tx;
    REAL Pvalue = 0;
    for (int p = 0; p < k; p += TILE) {
        Mds[tx][ty] = Row < m && p + tx < k ? A[(size_t)Row * lda + p + tx] : REAL(0);
        Nds[tx][ty] = p + ty < k && Col < n ? B[(size_t)(p + ty) * ldb + Col] : REAL(0);
        __syncthreads();
        for (int i = 0; i < TILE; ++i)
            Pvalue += Mds[i][ty] * Nds[tx][i];
        __syncthreads();
    }
    if (Row < m && Col < n) {
        REAL &c = C[(size_t)Row * ldc + Col];
        c = beta == 0 ? alpha * Pvalue : alpha * Pvalue + beta * c;
    }
}
