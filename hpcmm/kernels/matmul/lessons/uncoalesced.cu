// Matrix product, GPU rung: the naive kernel with the thread indices exchanged.
//
// Neighbouring threads of a warp take neighbouring rows. A warp's reads of A and its writes of C then
// have a stride of a whole row: every element needs its own memory transaction, while the coalesced rung needs one per
// warp. Limit: the number of memory transactions.
// Source: 000, 004 unit 4.
//
// hpcmm:
//   operation: matmul
//   shelf: lesson
//   change: a warp's threads take different rows
//   counterpart: naive
//   source: 000, 004 unit 4
//   tiles: [8, 16, 32]

extern "C" __global__ void __launch_bounds__(TILE *TILE)
    matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    const int column = blockIdx.x * TILE + threadIdx.y;
    const int row = blockIdx.y * TILE + threadIdx.x;
    if (row >= m || column >= n)
        return;
    REAL sum = 0;
    for (int p = 0; p < k; ++p)
        sum += A[(size_t)row * lda + p] * B[(size_t)p * ldb + column];
    REAL &c = C[(size_t)row * ldc + column];
    c = beta == 0 ? alpha * sum : alpha * sum + beta * c;  // beta = 0: C is not read
}
