// The sums of the warps of a block that divide k, in shared memory, and the elements of C that each thread makes of them.
#ifndef SLICES_OF_C_CUH
#define SLICES_OF_C_CUH

#include "ptx.cuh"

// Of the elements of C of a thread, ACROSS are in a row, and the rows are DOWN apart: a warp has neighbours.
constexpr int PER_THREAD = ROWS * COLUMNS / BLOCK, ACROSS = (COLUMNS + BLOCK - 1) / BLOCK;
constexpr int DOWN = BLOCK * ACROSS / COLUMNS;
constexpr int PITCH = COLUMNS + 4;  // of rows of sums; avoids bank conflicts

template <class Sum> using Slices = Sum (*)[ROWS][PITCH];

// Call what(element of C, y, x, e) for the thread's elements inside C; y and x are in the tile.
template <class Element, class What>
__device__ inline void for_each_element(Element *C, int ldc, int m, int n, int first_row, int first_column, const What &what)
{
#pragma unroll
    for (int e = 0; e < PER_THREAD; ++e) {
        const int y = threadIdx.x / COLUMNS + e / ACROSS * DOWN, x = threadIdx.x % COLUMNS + e % ACROSS * BLOCK;
        if (first_row + y < m && first_column + x < n)
            what(C[(size_t)(first_row + y) * ldc + first_column + x], y, x, e);
    }
}

template <class Sum> __device__ inline Sum sum_of_slices(Slices<Sum> slices, int y, int x)
{
    Sum sum = 0;
#pragma unroll
    for (int s = 0; s < SLICES; ++s)
        sum += slices[s][y][x];
    return sum;
}

#endif
