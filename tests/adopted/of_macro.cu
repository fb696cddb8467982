#define N 1024
#define AT(i, j) ((i) * N + (j))
template <typename T> __device__ T term(const T *a, const T *b, int i, int j, int k) { return a[AT(i, k)] * b[AT(k, j)]; }
__global__ void product(const float *A, const float *B, float *C)
{
    int i = blockIdx.y * blockDim.y + threadIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= N || j >= N) return;
    float sum = 0;
    for (int k = 0; k < N; ++k) sum += term<float>(A, B, i, j, k);
    C[AT(i, j)] = sum;
}
