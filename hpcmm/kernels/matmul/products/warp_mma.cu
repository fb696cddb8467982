// Matrix product, GPU rung for 16-bit types: one warp multiplies on tensor cores.
//
// mma.sync is an instruction of a whole warp: its 32 lanes hold fragments of a 16 x 16 matrix A, a 16 x 8 matrix B and
// a 16 x 8 matrix C in their registers, and one instruction computes C += A B, 2048 multiply-adds. The PTX ISA defines
// which lane holds which element. A register holds two 16-bit elements, neighbours in k. In A they are neighbours in
// memory, in B they are in different rows.
//
// A block is one warp and computes ROWS x COLUMNS elements of C. Each lane loads its elements from global memory, two
// bytes at a time. Needs compute capability 8.0. Limit: every element is loaded again by each block that needs it, two
// bytes at a time.
//
// hpcmm:
//   operation: matmul
//   shelf: product
//   change: '16-bit types: one warp multiplies on tensor cores, with fragments loaded from global memory'
//   dtypes: [float16, bfloat16]
//   rows: 32
//   columns: 32
//   block: 32
//   architecture: sm_80

#include "matmul/sixteen_bit.cuh"

constexpr int I = ROWS / 16, J = COLUMNS / 8;

// Return a register of two elements; elements outside the matrix are zero.
__device__ unsigned pair(const Matrix &from, int row, int column, int next_row, int next_column)
{
    const Element *const first = from.elements + (size_t)row * from.ld + column;
    const Element *const second = from.elements + (size_t)next_row * from.ld + next_column;
    const unsigned low = row < from.rows && column < from.columns ? first->bits : 0;
    const unsigned high = next_row < from.rows && next_column < from.columns ? second->bits : 0;
    return low | high << 16;
}

extern "C" __global__ void __launch_bounds__(BLOCK)
    matmul(int m, int n, int k, float alpha, const Element *A, int lda, const Element *B, int ldb, float beta,
           Element *C, int ldc)
{
    const int g = threadIdx.x / 4, t = threadIdx.x % 4;
    const int first_row = blockIdx.y * ROWS, first_column = blockIdx.x * COLUMNS;
    const Matrix from_a = {A, lda, m, k}, from_b = {B, ldb, k, n};
    float sums[I][J][4] = {};
    for (int start = 0; start < k; start += 16) {
        unsigned a[I][4], b[J][2];
#pragma unroll
        for (int i = 0; i < I; ++i)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int row = first_row + i * 16 + e % 2 * 8 + g, p = start + e / 2 * 8 + 2 * t;
                a[i][e] = pair(from_a, row, p, row, p + 1);
            }
#pragma unroll
        for (int j = 0; j < J; ++j)
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                const int p = start + e * 8 + 2 * t, column = first_column + j * 8 + g;
                b[j][e] = pair(from_b, p, column, p + 1, column);
            }
#pragma unroll
        for (int i = 0; i < I; ++i)
#pragma unroll
            for (int j = 0; j < J; ++j)
                mma(sums[i][j], a[i], b[j]);
    }
#pragma unroll
    for (int i = 0; i < I; ++i)
        update(sums[i], m, n, alpha, beta, C, ldc, first_row + i * 16 + g, first_column + 2 * t);
}
