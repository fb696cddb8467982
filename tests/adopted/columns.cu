__global__ void gemm(int m, int n, int k, float *A, int lda, float *B, int ldb, float *C, int ldc)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
    if (i < m && j < n) {
        float sum = 0;
        for (int p = 0; p < k; ++p) sum += A[i + p * lda] * B[p + j * ldb];
        C[i + j * ldc] = sum;
    }
}
int main() { gemm<<<dim3((m + 15) / 16, (n + 15) / 16), dim3(16, 16)>>>(m, n, k, a, m, b, k, c, m); }
