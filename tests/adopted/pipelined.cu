// Copies by cuda::pipeline
#include <cuda/pipeline>
__global__ void product(const float *A, const float *B, float *C, int n)
{
    __shared__ float a[16][16], b[16][16];
    auto pipe = cuda::make_pipeline();
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 16 + y, col = blockIdx.x * 16 + x, tiles = n / 16;
    float sum = 0;
    for (int t = 0; t < tiles; ++t) {
        pipe.producer_acquire();
        cuda::memcpy_async(&a[y][x], &A[row * n + t * 16 + x], sizeof(float), pipe);
        cuda::memcpy_async(&b[y][x], &B[(t * 16 + y) * n + col], sizeof(float), pipe);
        pipe.producer_commit();
        pipe.consumer_wait();
        __syncthreads();
        for (int p = 0; p < 16; ++p) sum += a[y][p] * b[p][x];
        pipe.consumer_release();
        if (t + 1 < tiles) __syncthreads();
    }
    C[row * n + col] = sum;
}
