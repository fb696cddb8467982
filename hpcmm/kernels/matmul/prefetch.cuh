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

// Prefetch the rows of a tile that belong to step `step` of `steps`, by one thread that copies with TMA. One instruction
// prefetches a row.
template <class T>
__device__ inline void prefetch_rows(const T *C, int ldc, int m, int n, int row, int column, int step, int steps)
{
    const int at_once = (ROWS + steps - 1) / steps, first = row + step * at_once;
    const int end = min(min(first + at_once, row + ROWS), m);
#pragma unroll 1
    for (int y = first; y < end; ++y) {
        const T *const from = C + (size_t)y * ldc + column;
        const size_t start = (size_t)from / 16 * 16, stop = (size_t)(from + min(COLUMNS, n - column)) / 16 * 16;
        if (stop > start)
            cp_async_bulk_prefetch_L2((const void *)start, stop - start);
    }
}

#endif
