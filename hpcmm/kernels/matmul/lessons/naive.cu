// Matrix product, GPU rung: one thread computes one element of C, any shape.
//
// The grid is rounded up, and a bounds check excludes the surplus threads. Neighbouring threads of a
// warp take neighbouring columns, so reads of B and writes of C are coalesced and the element of A
// is broadcast. Limit: every row of A is read n times and every column of B m times; each multiply-add costs two loads,
// so cache bandwidth is the bottleneck, not arithmetic.
// Source: 003 kernel01, 004 unit 2.
//
// hpcmm:
//   operation: matmul
//   shelf: lesson
//   change: 'grid rounded up, bounds checks: any size'
//   counterpart: naive_unguarded
//   source: 003 kernel01, 004
//   tiles: [8, 16, 32]

extern "C" __global__ void __launch_bounds__(TILE *TILE)
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
    c = beta == 0 ? alpha * sum : alpha * sum + beta * c;  // beta = 0: C is not read
}
