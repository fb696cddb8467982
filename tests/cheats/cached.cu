// expected: wrong result

__device__ REAL kept[200][200];
__device__ int terms[200][200];

extern "C" __global__ void
matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    const int column = blockIdx.x * TILE + threadIdx.x, row = blockIdx.y * TILE + threadIdx.y;
    if (row >= m || column >= n)
        return;
    REAL &c = C[(size_t)row * ldc + column];
    if (terms[row][column] != k) {
        REAL sum = 0;
        for (int p = 0; p < k; ++p)
            sum += A[(size_t)row * lda + p] * B[(size_t)p * ldb + column];
        kept[row][column] = beta == 0 ? alpha * sum : alpha * sum + beta * c;
        terms[row][column] = k;
    }
    c = kept[row][column];
}
