// Matrix product, GPU rung: the naive kernel with its k loop unrolled by a stride of 4.
//
// Four steps share one branch and one increment of the loop, and a second loop computes the remainder.
// Limit: the naive kernel waits for loads, not for loop instructions, and compilers unroll such a loop
// themselves, so the gain is small.
// Source: 001.
//
// hpcmm:
//   operation: matmul
//   shelf: lesson
//   change: k loop unrolled by a stride, with a remainder
//   counterpart: naive
//   source: '001'
//   tiles: [8, 16, 32]

extern "C" __global__ void __launch_bounds__(TILE *TILE)
    matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    constexpr int STRIDE = 4;
    const int column = blockIdx.x * TILE + threadIdx.x;
    const int row = blockIdx.y * TILE + threadIdx.y;
    if (row >= m || column >= n)
        return;
    const REAL *a = A + (size_t)row * lda;
    const REAL *b = B + column;
    REAL sum = 0;
    int p = 0;
    for (; p + STRIDE <= k; p += STRIDE) {
        sum += a[p] * b[(size_t)p * ldb];
        sum += a[p + 1] * b[(size_t)(p + 1) * ldb];
        sum += a[p + 2] * b[(size_t)(p + 2) * ldb];
        sum += a[p + 3] * b[(size_t)(p + 3) * ldb];
    }
    for (; p < k; ++p)
        sum += a[p] * b[(size_t)p * ldb];
    REAL &c = C[(size_t)row * ldc + column];
    c = beta == 0 ? alpha * sum : alpha * sum + beta * c;  // beta = 0: C is not read
}
