// The products of a thread with THREAD_ROWS x THREAD_COLUMNS elements of C, from operands in vectors of 16 bytes.
#ifndef THREAD_TILE_CUH
#define THREAD_TILE_CUH

struct alignas(16) Vector {
    REAL of[16 / sizeof(REAL)];
};

// A thread's operands of one step.
struct Fragments {
    Vector a[THREAD_ROWS / WIDTH], b[THREAD_COLUMNS / WIDTH];

    // Load the operands of step p from shared memory; tile_a and tile_b are this thread's first elements of the tiles.
    __device__ void load(const REAL *tile_a, const REAL *tile_b, int p)
    {
#pragma unroll
        for (int i = 0; i < THREAD_ROWS / WIDTH; ++i)
            a[i] = *(const Vector *)&tile_a[p * PITCH + i * LANE_ROWS * WIDTH];
#pragma unroll
        for (int j = 0; j < THREAD_COLUMNS / WIDTH; ++j)
            b[j] = *(const Vector *)&tile_b[p * COLUMNS + j * LANE_COLUMNS * WIDTH];
    }
};

// Multiply: add the products of one step, in serpentine order: each operand is used twice in a row.
__device__ void multiply(REAL (&sums)[THREAD_ROWS][THREAD_COLUMNS], const Fragments &f)
{
#pragma unroll
    for (int i = 0; i < THREAD_ROWS; ++i)
#pragma unroll
        for (int j = 0; j < THREAD_COLUMNS; ++j) {
            const int c = i % 2 ? THREAD_COLUMNS - 1 - j : j;
            sums[i][c] += f.a[i / WIDTH].of[i % WIDTH] * f.b[c / WIDTH].of[c % WIDTH];
        }
}

#endif
