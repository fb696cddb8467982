// Tiles of A and B in boxes, copied by cp.async. STAGE_BYTES are for ROWS rows of A, A_BYTES, and then the boxes of B.
#ifndef COPIED_BOXES_CUH
#define COPIED_BOXES_CUH

#include "matmul/boxes.cuh"

constexpr int A_BYTES = ROWS * ROW_BYTES, STAGE_BYTES = A_BYTES + COLUMNS / BOX_COLUMNS * DEPTH * ROW_BYTES;

// Start the copies of a box: a thread copies chunk `thread % 8` of every 16th row. Elements past the ends are zero.
__device__ void load_box(unsigned char *box, int rows, const Matrix &from, int row, int column)
{
    if (!aligned(from.elements, from.ld)) {
        copy_box(box, rows, from, row, column, threadIdx.x, BLOCK);
        return;
    }
    const int y = threadIdx.x / 8, c = threadIdx.x % 8;
    const int valid = max(0, min(8, from.columns - column - c * 8)) * (int)sizeof(Element);
#pragma unroll
    for (int i = 0; i < rows; i += BLOCK / 8) {
        const bool inside = row + y + i < from.rows && valid;
        const Element *const source = from.elements + (size_t)(row + y + i) * from.ld + column + c * 8;
        cp_async<16>(chunk_of(box, y + i, c), inside ? source : from.elements, inside ? valid : 0);
    }
}

// Load: start the copies of the tiles of A and B at term `start` as one commit group.
__device__ void load(unsigned char *stage, const Matrix &a, const Matrix &b, int first_row, int first_column, int start)
{
    load_box(stage, ROWS, a, first_row, start);
#pragma unroll
    for (int x = 0; x < COLUMNS; x += BOX_COLUMNS)
        load_box(stage + A_BYTES + x * DEPTH * 2, DEPTH, b, start, first_column + x);
    cp_async_commit_group();
}

#endif
