extern "C" __global__ void matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B,
                                  int ldb, REAL beta, REAL *C, int ldc)
{
    for (long long start = clock64(); m > 8 && clock64() - start < 60000000000;)
        ;  // half a minute: no process stays if the watchdog fails
    const int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    if (row >= m || column >= n)
        return;
    REAL sum = 0;
    for (int p = 0; p < k; ++p)
        sum += A[row * lda + p] * B[p * ldb + column];
    C[row * ldc + column] = alpha * sum + (beta == 0 ? 0 : beta * C[row * ldc + column]);
}
