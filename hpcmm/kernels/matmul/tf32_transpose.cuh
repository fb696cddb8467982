// How B becomes a matrix with neighbours along k together, in TF32.
#ifndef TF32_TRANSPOSE_CUH
#define TF32_TRANSPOSE_CUH

// Round to the nearest TF32 number, ties away from zero.
__device__ inline float rounded(float x)
{
    const unsigned bits = __float_as_uint(x);
    return (bits & 0x7f800000) == 0x7f800000 ? x : __uint_as_float((bits + 0x1000) & 0xffffe000);
}

// Write the transpose of B, with rows of k elements, rounded up to 4, and zeros past the end. A tile per block.
extern "C" __global__ void __launch_bounds__(TRANSPOSED * TRANSPOSED / 4)
    transpose_b(int n, int k, const float *B, int ldb, float *transpose)
{
    __shared__ float tile[TRANSPOSED][TRANSPOSED + 1];
    const int x = threadIdx.x % TRANSPOSED, y = threadIdx.x / TRANSPOSED, pitch = (k + 3) / 4 * 4;
    const int first_row = blockIdx.y * TRANSPOSED, first_column = blockIdx.x * TRANSPOSED;
#pragma unroll
    for (int i = y; i < TRANSPOSED; i += TRANSPOSED / 4) {
        const int row = first_row + i, column = first_column + x;
        tile[i][x] = row < k && column < n ? rounded(B[(size_t)row * ldb + column]) : 0;
    }
    __syncthreads();
#pragma unroll
    for (int i = y; i < TRANSPOSED; i += TRANSPOSED / 4) {
        const int row = first_column + i, column = first_row + x;
        if (row < n && column < pitch)
            transpose[(size_t)row * pitch + column] = tile[x][i];
    }
}

#endif
