// Shared by the rungs with 16-bit tiles in shared memory: boxes of 128-byte rows with a swizzle, and their products.
#ifndef BOXES_CUH
#define BOXES_CUH

#include "matmul/sixteen_bit.cuh"
#include "matmul/rasterize.cuh"
#include "matmul/swizzled_rows.cuh"

// A box in shared memory has rows of 64 elements.
constexpr int BOX_COLUMNS = 64;
static_assert(ROW_BYTES == BOX_COLUMNS * sizeof(Element) && CHUNK_BYTES == sizeof(Chunk), "as the swizzle has them");

// Copy a box with `threads` threads; elements outside the matrix are zero. Needed where rows are not a multiple of 16
// bytes, which neither copies of 16 bytes nor TMA support.
__device__ inline void copy_box(unsigned char *box, int box_rows, const Matrix &from, int row, int column, int thread,
                                int threads)
{
#pragma unroll 1
    for (int i = thread; i < box_rows * 8; i += threads)
        *(Chunk *)chunk_of(box, i / 8, i % 8) = from.load(row + i / 8, column + i % 8 * 8);
}

// Multiply by mma.sync: add the products of a tile to a warp's 16 I x 8 J elements of C. `a`: the box of A; `b`: the
// boxes of 64 columns of B, of DEPTH rows each.
template <int I, int J>
__device__ void multiply_warp(float (&sums)[I][J][4], unsigned char *a, unsigned char *b, int row, int column)
{
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int p = 0; p < DEPTH; p += 16) {
        unsigned fragments_a[I][4], fragments_b[J / 2][4];
#pragma unroll
        for (int i = 0; i < I; ++i)
            ldmatrix_x4(fragments_a[i], chunk_of(a, row + i * 16 + lane % 16, p / 8 + lane / 16));
#pragma unroll
        for (int j = 0; j < J / 2; ++j) {
            const int x = column + j * 16 + lane / 16 * 8;
            unsigned char *const box = b + x / BOX_COLUMNS * DEPTH * ROW_BYTES;
            ldmatrix_x4_trans(fragments_b[j], chunk_of(box, p + lane % 16, x % BOX_COLUMNS / 8));
        }
#pragma unroll
        for (int i = 0; i < I; ++i)
#pragma unroll
            for (int j = 0; j < J; ++j)
                mma(sums[i][j], fragments_a[i], {fragments_b[j / 2][j % 2 * 2], fragments_b[j / 2][j % 2 * 2 + 1]});
    }
}

// Start the products of 64 x DEPTH elements of A by DEPTH x 8 J of B, in boxes of DEPTH rows. The next descriptors are
// sums, in units of 16 bytes: to make each anew would take as long as the product of a narrow tile.
template <int J> __device__ void multiply(float (&c)[J][4], const unsigned char *a, const unsigned char *b)
{
    const unsigned long long first_a = descriptor(a), first_b = descriptor(b, DEPTH * ROW_BYTES);
#pragma unroll
    for (int p = 0; p < DEPTH; p += 16)
        wgmma_mma_async<BFLOAT16>(c, first_a + 2 * p / 16, first_b + p * ROW_BYTES / 16, true);
}

#endif
