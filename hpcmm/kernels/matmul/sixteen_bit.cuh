// Shared by the rungs for float16 and bfloat16: elements, matrices and the epilogue.
//
// One source serves both types: BFLOAT16 is 1 or 0, and the types differ only in the suffix of an instruction. Products
// and sums are float32.
#ifndef SIXTEEN_BIT_CUH
#define SIXTEEN_BIT_CUH

#include "ptx.cuh"

struct Element {
    unsigned short bits;
};

struct alignas(16) Chunk {  // 8 neighbours
    unsigned short of[8];
};

__device__ inline float to_float(unsigned short bits)
{
    return BFLOAT16 ? __uint_as_float((unsigned)bits << 16) : cvt_f32_f16(bits);
}

__device__ inline unsigned to_pair(float first, float second)
{
    return BFLOAT16 ? cvt_rn_bf16x2(first, second) : cvt_rn_f16x2(first, second);
}

// Multiply a warp's fragments on tensor cores.
__device__ inline void mma(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
    if (BFLOAT16)
        mma_m16n8k16_bf16(c, a, b);
    else
        mma_m16n8k16_f16(c, a, b);
}

// Return whether the chunks of a matrix are at multiples of 16 bytes, as cp.async and TMA require.
__device__ inline bool aligned(const Element *matrix, int ld)
{
    return ld % 8 == 0 && (size_t)matrix % sizeof(Chunk) == 0;
}

// A or B, row-major.
struct Matrix {
    const Element *elements;
    int ld, rows, columns;

    // Load the elements (row, column) to (row, column + 7); elements outside the matrix are zero.
    __device__ Chunk load(int row, int column) const
    {
        Chunk chunk = {};
        const Element *const from = elements + (size_t)row * ld + column;
#pragma unroll
        for (int e = 0; e < 8; ++e)
            if (row < rows && column + e < columns)
                chunk.of[e] = from[e].bits;
        return chunk;
    }
};

// Epilogue: C = alpha sums + beta C in a lane's J x 2 pairs: rows `row` and `row + 8`, columns `column` + 8 j and the
// next one. beta = 0: C is not read.
template <int J>
__device__ void update(const float (&sums)[J][4], int m, int n, float alpha, float beta, Element *C, int ldc, int row,
                       int column)
{
    const bool pairs = ldc % 2 == 0 && (size_t)C % 4 == 0;
#pragma unroll
    for (int j = 0; j < J; ++j)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int y = row + 8 * h, x = column + 8 * j;
            Element *const c = C + (size_t)y * ldc + x;
            const float first = alpha * sums[j][2 * h], second = alpha * sums[j][2 * h + 1];
            if (y < m && x + 1 < n && pairs) {
                const unsigned old = beta != 0 ? *(const unsigned *)c : 0;
                *(unsigned *)c = to_pair(first + beta * to_float(old & 0xffff), second + beta * to_float(old >> 16));
            } else {
                if (y < m && x < n)
                    c[0].bits = to_pair(first + (beta != 0 ? beta * to_float(c[0].bits) : 0), 0);
                if (y < m && x + 1 < n)
                    c[1].bits = to_pair(second + (beta != 0 ? beta * to_float(c[1].bits) : 0), 0);
            }
        }
}

#endif
