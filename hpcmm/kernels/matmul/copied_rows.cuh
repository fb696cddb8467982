// A launch before a product that copies A and B to rows of whole chunks, which TMA takes.
#ifndef COPIED_ROWS_CUH
#define COPIED_ROWS_CUH

#include "matmul/any_rows.cuh"

// Copy chunk i of a matrix to rows of whole chunks, at multiples of 16 bytes.
__device__ inline void copy_chunk(const Matrix &from, Element *to, unsigned i)
{
    const unsigned per_row = (from.columns + 7) / 8;
    const ShiftedChunk chunk(from, i / per_row, i % per_row * 8);
    ((Chunk *)to)[i] = chunk.shifted();
}

// Copy A (rows_a x columns_a) and B to rows of whole chunks; no rows: the matrix needs no copy.
extern "C" __global__ void __launch_bounds__(COPY_BLOCK)
    copy(int rows_a, int columns_a, const Element *A, int lda, Element *copy_a, int rows_b, int columns_b,
         const Element *B, int ldb, Element *copy_b)
{
    griddepcontrol_launch_dependents();
    const unsigned chunks_a = rows_a * ((columns_a + 7u) / 8), chunks_b = rows_b * ((columns_b + 7u) / 8);
    const unsigned i = blockIdx.x * COPY_BLOCK + threadIdx.x;
    if (i < chunks_a)
        copy_chunk({A, lda, rows_a, columns_a}, copy_a, i);
    else if (i - chunks_a < chunks_b)
        copy_chunk({B, ldb, rows_b, columns_b}, copy_b, i - chunks_a);
}

#endif
