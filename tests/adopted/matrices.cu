__global__ void add(float *A, float *B, float *C, int N)
{
    int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i < N && j < N) { float s = 0; C[i * N + j] = A[i * N + j] + B[i * N + j]; }
}
__global__ void subtract(float *A, float *B, float *C, int N)
{
    int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i < N && j < N) { float s = 0; C[i * N + j] = A[i * N + j] - B[i * N + j]; }
}
__global__ void multiply(float *A, float *B, float *C, int N)
{
    int j = blockIdx.x * blockDim.x + threadIdx.x, i = blockIdx.y * blockDim.y + threadIdx.y;
    if (i < N && j < N) { float s = 0; for (int k = 0; k < N; ++k) s += A[i * N + k] * B[k * N + j]; C[i * N + j] = s; }
}
