// expected: calls system|Unresolved extern function 'system'
extern "C" int system(const char *);

extern "C" __global__ void
matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    system("true");
    const int column = blockIdx.x * TILE + threadIdx.x, row = blockIdx.y * TILE + threadIdx.y;
    if (row >= m || column >= n)
        return;
    REAL sum = 0;
    for (int p = 0; p < k; ++p)
        sum += A[(size_t)row * lda + p] * B[(size_t)p * ldb + column];
    REAL &c = C[(size_t)row * ldc + column];
    c = beta == 0 ? alpha * sum : alpha * sum + beta * c;
}
