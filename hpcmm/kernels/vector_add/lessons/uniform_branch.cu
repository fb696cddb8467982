// Vector sum, GPU rung: a branch that divides a block between warps.
//
// As divergent_branch, with `if (threadIdx.x / 32 > 2)`: all threads of a warp take the same path, and the four warps
// of a block issue four paths instead of five. Different paths in different warps cost nothing; different paths within
// a warp cost time. Limit: the instructions of the paths.
// Source: 004 unit 5.
//
// hpcmm:
//   operation: vector_add
//   shelf: lesson
//   change: 'the same work in a branch between warps: each warp takes one path'
//   counterpart: divergent_branch
//   source: 004 unit 5
//   block: 128

extern "C" __global__ void __launch_bounds__(BLOCK) vector_add(const REAL *x, const REAL *y, REAL *z, size_t n)
{
    constexpr int STEPS = 4 * 32;
    const size_t i = (size_t)blockIdx.x * BLOCK + threadIdx.x;
    if (i >= n)
        return;
    union {
        REAL value;
        unsigned words[sizeof(REAL) / 4];
    } sum;
    sum.value = x[i] + y[i];
    if (threadIdx.x / 32 > 2) {
#pragma unroll 1  // unrolled, the compiler would see that the last step restores the bits
        for (int step = 0; step < STEPS; ++step)
            for (unsigned &word : sum.words)
                word = word << 1 | word >> 31;
    } else {
#pragma unroll 1
        for (int step = 0; step < STEPS; ++step)
            for (unsigned &word : sum.words)
                word = word >> 1 | word << 31;
    }
    z[i] = sum.value;
}
