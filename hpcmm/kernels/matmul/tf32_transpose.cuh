// Copies of A and of the transpose of B for TF32: neighbours along k side by side, in rows of a multiple of 16 bytes.
#ifndef TF32_TRANSPOSE_CUH
#define TF32_TRANSPOSE_CUH

// Round to the nearest TF32 number, ties away from zero.
__device__ inline float rounded(float x)
{
    const unsigned bits = __float_as_uint(x);
    return (bits & 0x7f800000) == 0x7f800000 ? x : __uint_as_float((bits + 0x1000) & 0xffffe000);
}

// Copy a row of A per block, with zeros past the end.
extern "C" __global__ void __launch_bounds__(TRANSPOSE_BLOCK)
    copy_a(int k, const float *A, int lda, float *copy)
{
    const int pitch = (k + 3) / 4 * 4;
    for (int p = threadIdx.x; p < pitch; p += TRANSPOSE_BLOCK)
        copy[(size_t)blockIdx.x * pitch + p] = p < k ? rounded(A[(size_t)blockIdx.x * lda + p]) : 0;
}

// Write the transpose of B, with rows of k elements, rounded up to 4, and zeros past the end. A tile per block.
extern "C" __global__ void __launch_bounds__(TRANSPOSE_BLOCK)
    transpose_b(int n, int k, const float *B, int ldb, float *transpose)
{
    constexpr int GROUPS = TRANSPOSED / 4, ROWS_AT_ONCE = TRANSPOSE_BLOCK / GROUPS;  // 4 neighbours per thread
    __shared__ float tile[TRANSPOSED][TRANSPOSED + 1];
    const int x = threadIdx.x % GROUPS * 4, y = threadIdx.x / GROUPS, pitch = (k + 3) / 4 * 4;
    const int first_row = blockIdx.y * TRANSPOSED, first_column = blockIdx.x * TRANSPOSED;
    const bool aligned = ldb % 4 == 0 && (size_t)B % 16 == 0;
    float4 part[TRANSPOSED / ROWS_AT_ONCE];
#pragma unroll
    for (int i = 0; i < TRANSPOSED / ROWS_AT_ONCE; ++i) {
        const int row = first_row + y + i * ROWS_AT_ONCE, column = first_column + x;
        const float *const from = B + (size_t)row * ldb + column;
        if (row < k && column + 3 < n && aligned)
            part[i] = *(const float4 *)from;
        else {
            part[i].x = row < k && column < n ? from[0] : 0;
            part[i].y = row < k && column + 1 < n ? from[1] : 0;
            part[i].z = row < k && column + 2 < n ? from[2] : 0;
            part[i].w = row < k && column + 3 < n ? from[3] : 0;
        }
    }
#pragma unroll
    for (int i = 0; i < TRANSPOSED / ROWS_AT_ONCE; ++i) {
        float *const to = &tile[y + i * ROWS_AT_ONCE][x];
        to[0] = rounded(part[i].x);
        to[1] = rounded(part[i].y);
        to[2] = rounded(part[i].z);
        to[3] = rounded(part[i].w);
    }
    __syncthreads();
#pragma unroll
    for (int i = y; i < TRANSPOSED; i += ROWS_AT_ONCE) {
        const int row = first_column + i, column = first_row + x;
        if (row < n && column < pitch)
            *(float4 *)(transpose + (size_t)row * pitch + column) =
                make_float4(tile[x][i], tile[x + 1][i], tile[x + 2][i], tile[x + 3][i]);
    }
}

#endif
