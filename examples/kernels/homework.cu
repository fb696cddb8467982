#include <iostream>
#include "helper_cuda.h"
#define BLOCK_SIZE 16

__global__ void matrixMulShared(float *C, float *A, float *B, int wA, int wB)
{
    __shared__ float As[BLOCK_SIZE][BLOCK_SIZE], Bs[BLOCK_SIZE][BLOCK_SIZE];
    int row = blockIdx.y * BLOCK_SIZE + threadIdx.y, col = blockIdx.x * BLOCK_SIZE + threadIdx.x;
    float sum = 0;
    for (int s = 0; s < wA; s += BLOCK_SIZE) {
        As[threadIdx.y][threadIdx.x] = A[row * wA + s + threadIdx.x];
        Bs[threadIdx.y][threadIdx.x] = B[(s + threadIdx.y) * wB + col];
        __syncthreads();
        for (int p = 0; p < BLOCK_SIZE; ++p)
            sum += As[threadIdx.y][p] * Bs[p][threadIdx.x];
        __syncthreads();
    }
    C[row * wB + col] = sum;
}

int main()
{
    dim3 threads(BLOCK_SIZE, BLOCK_SIZE), grid(64, 64);
    matrixMulShared<<<grid, threads>>>(d_C, d_A, d_B, 1024, 1024);
    checkCudaErrors(cudaDeviceSynchronize());
}
