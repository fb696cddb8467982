// Vector sum, GPU rung: a branch that divides the first warp of each block.
//
// Threads 0, 1 and 2 take one path and all others the other one: `if (threadIdx.x > 2)`. Each path rotates the bits of
// the sum, to the left or to the right, which takes longer than the memory accesses. The first of the four warps of a
// block has threads on both paths and runs the paths one after the other, so the block issues five paths instead of
// four. Limit: the instructions of the paths.
// Source: 004 unit 5.
//
// hpcmm:
//   operation: vector_add
//   shelf: lesson
//   change: 'more work in a branch that divides a warp: both paths, one after the other'
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
    if (threadIdx.x > 2) {
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
