// 16. Reduction, step 2: no divergence.
//
// Task: let contiguous threads combine, so that whole warps have nothing left to do.
// Hints: a warp takes part in a step if one of its lanes does. With every (2 s)-th thread, all four warps take part in five
// of the seven steps. Let thread t combine the value at 2 s t with the one at 2 s t + s, if there is one: 64, 32, 16, ...
// threads from the first one on. That is 8 warps in all instead of 23.
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
        const unsigned i = 2 * s * t;
        if (i < BLOCK)
            values[i] = COMBINE(values[i], values[i + s]);
        __syncthreads();
    }
    if (t == 0)
        partial[blockIdx.x] = values[0];
}
