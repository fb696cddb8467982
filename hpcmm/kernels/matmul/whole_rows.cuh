// A launch before a product that copies A and B to rows of whole lines, so that the product can load 16 bytes at a time.
#ifndef WHOLE_ROWS_CUH
#define WHOLE_ROWS_CUH

#include "ptx.cuh"

constexpr int LINE = 32;   // elements
constexpr int LINES = 8;   // that a warp copies, an element of each per lane
constexpr int BLOCK_LINES = COPY_BLOCK / 32 * LINES;

// Copy a matrix to rows of whole lines, with zeros behind each row; `block` counts the blocks that copy it.
__device__ inline void copy_rows(int rows, int columns, const REAL *from, int ld, REAL *to, unsigned block)
{
    const unsigned lane = threadIdx.x % 32, per_row = (columns + LINE - 1) / LINE, lines = rows * per_row;
    const unsigned first = block * BLOCK_LINES + threadIdx.x / 32 * LINES;
    REAL elements[LINES];
#pragma unroll
    for (int i = 0; i < LINES; ++i) {
        const unsigned row = (first + i) / per_row, column = (first + i) % per_row * LINE + lane;
        const bool inside = first + i < lines && column < columns;
        elements[i] = inside ? from[(size_t)row * ld + column] : 0;
    }
#pragma unroll
    for (int i = 0; i < LINES; ++i)
        if (first + i < lines)
            to[(size_t)(first + i) * LINE + lane] = elements[i];
}

// Copy A (rows_a x columns_a) and B to rows of whole lines; no rows: the matrix needs no copy.
extern "C" __global__ void __launch_bounds__(COPY_BLOCK)
    copy(int rows_a, int columns_a, const REAL *A, int lda, REAL *copy_a, int rows_b, int columns_b, const REAL *B,
         int ldb, REAL *copy_b)
{
    griddepcontrol_launch_dependents();
    const unsigned lines_a = rows_a * ((columns_a + LINE - 1u) / LINE);
    const unsigned blocks_a = (lines_a + BLOCK_LINES - 1) / BLOCK_LINES;
    if (blockIdx.x < blocks_a)
        copy_rows(rows_a, columns_a, A, lda, copy_a, blockIdx.x);
    else
        copy_rows(rows_b, columns_b, B, ldb, copy_b, blockIdx.x - blocks_a);
}

#endif
