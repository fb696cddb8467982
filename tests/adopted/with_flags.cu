%%writefile mine.cu
__global__ void clean(float *x, float *y, int n) { for (int i = 0; i < n; ++i) y[i] = x[i]; }
__global__ void multiply(const float *A, const float *B, float *C, const float *bias, int n, bool add, int unused)
{
    int i = blockIdx.y * 16 + threadIdx.y, j = blockIdx.x * 16 + threadIdx.x;
    if (i >= n || j >= n) return;
    float sum = 0;
    for (int p = 0; p < n; ++p) sum += A[i * n + p] * B[p * n + j];
    if (add) C[i * n + j] += sum;
    else C[i * n + j] = sum;
}
