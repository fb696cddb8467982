// Vector sum, GPU rung: 16 bytes per load and store.
//
// A quarter of the instructions (half in float64) move the same bytes, and more bytes are in flight. If x, y and z have
// the same offset from a 16-byte boundary, the first block adds the elements before the first boundary and after the
// last one, one at a time. Otherwise the accesses cannot be aligned in all three vectors, and every element is added as
// in grid_stride. Limit: memory bandwidth.
//
// hpcmm:
//   operation: vector_add
//   shelf: lesson
//   change: 16 bytes per load
//   counterpart: one_per_thread
//   per_thread: 4

struct alignas(16) Vector {
    REAL of[16 / sizeof(REAL)];
};

extern "C" __global__ void __launch_bounds__(BLOCK) vector_add(const REAL *x, const REAL *y, REAL *z, size_t n)
{
    constexpr int WIDTH = 16 / sizeof(REAL);
    const size_t t = threadIdx.x;
    const size_t first = (size_t)blockIdx.x * BLOCK + t, stride = (size_t)gridDim.x * BLOCK;
    if ((size_t)x % 16 != (size_t)z % 16 || (size_t)y % 16 != (size_t)z % 16) {
        for (size_t i = first; i < n; i += stride)
            z[i] = x[i] + y[i];
        return;
    }

    size_t head = (16 - (size_t)z % 16) % 16 / sizeof(REAL);
    head = head < n ? head : n;
    const size_t count = (n - head) / WIDTH, tail = head + count * WIDTH;
    for (size_t i = first; i < count; i += stride) {
        const Vector a = ((const Vector *)(x + head))[i], b = ((const Vector *)(y + head))[i];
        Vector sum;
#pragma unroll
        for (int w = 0; w < WIDTH; ++w)
            sum.of[w] = a.of[w] + b.of[w];
        ((Vector *)(z + head))[i] = sum;
    }
    if (blockIdx.x == 0) {
        if (t < head)
            z[t] = x[t] + y[t];
        if (tail + t < n)
            z[tail + t] = x[tail + t] + y[tail + t];
    }
}
