// hpcmm:
//   block: 32
//   rows: 1
//   columns: 1

extern "C" __global__ void matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B,
                                  int ldb, REAL beta, REAL *C, int ldc)
{
    __shared__ REAL sum;
    REAL &c = C[(size_t)blockIdx.y * ldc + blockIdx.x], part = 0;
    if (threadIdx.x == 0)
        sum = beta == 0 ? 0 : beta * c;
    for (int p = threadIdx.x; p < k; p += 32)
        part += A[(size_t)blockIdx.y * lda + p] * B[(size_t)p * ldb + blockIdx.x];
    __syncthreads();
    atomicAdd(&sum, alpha * part);
    __syncthreads();
    if (threadIdx.x == 0)
        c = sum;
}
