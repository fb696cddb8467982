// 15. Reduction, step 1: a tree.
//
// Task: each block writes the sum of its BLOCK elements to partial[blockIdx.x]. The kernel is launched again on the partial
// sums, until one is left.
// Hints: in step s = 1, 2, 4, ... every (2 s)-th thread adds the value that is s places after its own. A barrier follows each
// step, and all threads must reach it. `identity` is 0 here; use it where there is no element. COMBINE(a, b) is a + b here;
// with it, the same kernel finds the minimum and the maximum.
//
// hpcmm:
//   operation: sum
//   block: 128

extern "C" __global__ void reduction(const REAL *x, size_t n, REAL *partial, REAL identity)
{
    __shared__ REAL values[BLOCK];
    const unsigned t = threadIdx.x;
    const size_t i = (size_t)blockIdx.x * BLOCK + t;
    values[t] = i < n ? x[i] : identity;
    __syncthreads();
    for (unsigned s = 1; s < BLOCK; s *= 2) {
        if (t % (2 * s) == 0)
            values[t] = COMBINE(values[t], values[t + s]);
        __syncthreads();
    }
    if (t == 0)
        partial[blockIdx.x] = values[0];
}
