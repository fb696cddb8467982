// Matrix product, GPU rung: a warp always takes 32 neighbouring columns of one row.
//
// For any width of the tile of C, lanes 0 to 31 of a warp read 32 consecutive elements of B in one
// transaction of 128 bytes (float32) and write 32 elements of C; all lanes read the same element of A. A square
// block of width 8 or 16 uses only parts of such transactions. Limit: as in the naive rung, two loads
// per multiply-add.
// Source: 000, 004 unit 4.
//
// hpcmm:
//   operation: matmul
//   shelf: lesson
//   change: a warp takes 32 neighbouring columns
//   counterpart: uncoalesced
//   source: 000, 004 unit 4
//   rows: 8
//   columns: 32
//   block: 256

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
