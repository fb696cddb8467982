// Vector copy, GPU rung: 16 bytes per load and store, four vectors in flight per thread.
//
// A quarter of the instructions (half in float64) move the same bytes, and four loads are in flight before the first
// store. Unless x and y both start at a multiple of 16 bytes, the elements are copied one by one. Limit: DRAM
// bandwidth, which reads and writes share.
//
// hpcmm:
//   operation: copy
//   shelf: lesson
//   change: 16 bytes per load, four loads in flight
//   counterpart: one_per_thread
//   per_thread: 16

struct alignas(16) Vector {
    REAL of[16 / sizeof(REAL)];
};

extern "C" __global__ void __launch_bounds__(BLOCK) copy(const REAL *x, REAL *y, size_t n, REAL scale)
{
    constexpr int WIDTH = 16 / sizeof(REAL), IN_FLIGHT = PER_THREAD / WIDTH;
    const size_t first = (size_t)blockIdx.x * BLOCK * PER_THREAD, t = threadIdx.x;
    if (((size_t)x | (size_t)y) % 16 == 0 && first + BLOCK * PER_THREAD <= n) {
        const Vector *const from = (const Vector *)(x + first);
        Vector *const to = (Vector *)(y + first);
        Vector v[IN_FLIGHT];
#pragma unroll
        for (int j = 0; j < IN_FLIGHT; ++j)
            v[j] = from[j * BLOCK + t];
#pragma unroll
        for (int j = 0; j < IN_FLIGHT; ++j) {
#pragma unroll
            for (int w = 0; w < WIDTH; ++w)
                v[j].of[w] = APPLY(v[j].of[w]);
            to[j * BLOCK + t] = v[j];
        }
        return;
    }
    for (size_t i = first + t; i < n && i < first + BLOCK * PER_THREAD; i += BLOCK)
        y[i] = APPLY(x[i]);
}
