// Matrix product, GPU rung: a warp always takes 32 neighbouring columns of one row.
//
// Whatever the width of the tile of C, threads are dealt out by warps: lane 0 to 31 read 32
// consecutive elements of B in one transaction of 128 bytes (float32) and write 32 of C, and the
// element of A is one for the whole warp. A square block of 8 or 16 covers only parts of such
// transactions. Limit: as the naive rung, two loads for each multiply-add.
// Source: 000, 004 unit 4.

extern "C" __global__ void matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb,
                                  REAL beta, REAL *C, int ldc)
{
    const int column = blockIdx.x * COLUMNS + threadIdx.x % COLUMNS;
    const int row = blockIdx.y * ROWS + threadIdx.x / COLUMNS;
    if (row >= m || column >= n)
        return;
    REAL sum = 0;
    for (int p = 0; p < k; ++p)
        sum += A[(size_t)row * lda + p] * B[(size_t)p * ldb + column];
    REAL &c = C[(size_t)row * ldc + column];
    c = beta == 0 ? alpha * sum : alpha * sum + beta * c;  // beta = 0: C is not read
}
