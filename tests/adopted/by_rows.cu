#define WIDTH 8
__global__ void mine(float *out, const float *B, const float *A, int rows, int inner, int cols)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
    if (i < rows && j < cols) {
        float sum = 0;
        for (int p = 0; p < inner; ++p)
            sum += A[i * inner + p] * B[p * cols + j];
        out[i * cols + j] = sum;
    }
}
#include <iostream>
#include "helper_of_no_package.h"
#define CHECK(call) do { cudaError_t e = call; if (e != cudaSuccess) exit(1); } while (0)
int main() {
    const int n = 1 << 20;
    float *a;
    CHECK(cudaMalloc(&a, n * sizeof(float)));
    dim3 block(WIDTH, WIDTH), grid((n + WIDTH - 1) / WIDTH, (n + WIDTH - 1) / WIDTH);
    mine<<<grid, block>>>(a, a, a, n, n, n);
    std::cout << "done" << std::endl;
}
