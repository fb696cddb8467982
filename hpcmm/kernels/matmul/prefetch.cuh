// Prefetches of C into the L2 cache: without them, an epilogue with beta != 0 waits for the memory.
#ifndef PREFETCH_CUH
#define PREFETCH_CUH

#include "ptx.cuh"

// Prefetch `rows` rows of a tile by `threads` threads. Nothing outside C is prefetched.
template <class T>
__device__ inline void prefetch_tile(const T *C, int ldc, int m, int n, int row, int column, int rows, int thread,
                                     int threads)
{
    constexpr int LINE = 128 / sizeof(T), LINES = (COLUMNS + LINE - 1) / LINE;
#pragma unroll 1
    for (int i = thread; i < rows * LINES; i += threads) {
        const int y = row + i / LINES, x = column + i % LINES * LINE;
        if (y < m && x < n)
            prefetch_global_L2(C + (size_t)y * ldc + x);
    }
}

#endif
