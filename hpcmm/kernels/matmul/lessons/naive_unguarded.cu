// Matrix product, GPU rung: one thread computes one element of C, without bounds checks.
//
// The grid is N / block, rounded down, so sizes that are not multiples of the block lose their last
// rows and columns: at N = 641 with blocks of 32 the element (0, 640) is never written. Most first kernels are written
// this way. Limit: correct for multiples of the block only.
// Source: 000 initial code, 003 kernel00.
//
// hpcmm:
//   operation: matmul
//   shelf: lesson
//   change: 'one thread computes one element of C, grid = n / block: multiples of the block only'
//   source: 000, 003 kernel00
//   tiles: [8, 16, 32]
//   grid: [n / TILE, m / TILE]
//   exact: true

extern "C" __global__ void __launch_bounds__(TILE *TILE)
    matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    const int column = blockIdx.x * TILE + threadIdx.x;
    const int row = blockIdx.y * TILE + threadIdx.y;
    REAL sum = 0;
    for (int p = 0; p < k; ++p)
        sum += A[(size_t)row * lda + p] * B[(size_t)p * ldb + column];
    REAL &c = C[(size_t)row * ldc + column];
    c = beta == 0 ? alpha * sum : alpha * sum + beta * c;  // beta = 0: C is not read
}
