// 7. The sum of a vector.
//
// Task: each block writes the sum of its BLOCK elements to partial[blockIdx.x]. The kernel is launched again on the
// partial sums, until one is left.
// Hints: in each step half of the threads add the element of a thread of the other half, with a barrier after it. Let
// the active threads be contiguous (t < s), so that whole warps retire. The barrier must be reached by all threads.
// `identity` is 0 here; use it where there is no element. COMBINE(a, b) is a + b here; with it, the same kernel finds the
// minimum and the maximum.
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
    for (unsigned s = BLOCK / 2; s > 0; s /= 2) {
        if (t < s)
            values[t] = COMBINE(values[t], values[t + s]);
        __syncthreads();
    }
    if (t == 0)
        partial[blockIdx.x] = values[0];
}
