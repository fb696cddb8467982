// Vector sum, GPU rung: a branch that divides a block between warps.
//
// As divergent_branch, with `if (threadIdx.x / warpSize > 2)`: all threads of a warp take the same path, and the four
// warps of a block issue four paths instead of five. Threads of a block may take different paths for free; threads of a
// warp may not. Limit: the instructions of the paths.
// Source: 004 unit 5.

extern "C" __global__ void __launch_bounds__(BLOCK) vector_add(const REAL *x, const REAL *y, REAL *z, size_t n)
{
    const size_t i = (size_t)blockIdx.x * BLOCK + threadIdx.x;
    if (i >= n)
        return;
    union {
        REAL value;
        unsigned long long bits;
    } sum = {};
    sum.value = x[i] + y[i];
    unsigned long long bits = sum.bits;
    if (threadIdx.x / warpSize > 2) {
#pragma unroll 1  // the compiler must not see that the last step restores the bits
        for (int step = 0; step < 64; ++step)
            bits = bits << 1 | bits >> 63;
    } else {
#pragma unroll 1
        for (int step = 0; step < 64; ++step)
            bits = bits >> 1 | bits << 63;
    }
    sum.bits = bits;
    z[i] = sum.value;
}
