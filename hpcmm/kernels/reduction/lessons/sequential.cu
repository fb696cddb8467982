// Reduction, GPU rung: sequential addressing.
//
// In each step the lower half of the elements is combined with the upper half. The active threads are
// contiguous, so whole warps retire instead of diverging, and a warp reads consecutive words of shared
// memory, without bank conflicts. Limit: half of the threads only load.
// Source: 004 unit 5, kernel 3.
//
// hpcmm:
//   operation: sum
//   shelf: lesson
//   change: 'sequential addressing: whole warps retire, no bank conflicts'
//   counterpart: strided
//   source: 004 kernel 3
//   block: 128
//   shared_bytes: BLOCK * ITEMSIZE

extern "C" __global__ void reduction(const REAL *x, size_t n, REAL *partial, REAL identity)
{
    extern __shared__ REAL values[];  // blockDim.x elements
    const unsigned t = threadIdx.x;
    const size_t i = (size_t)blockIdx.x * blockDim.x + t;
    values[t] = i < n ? x[i] : identity;
    __syncthreads();
    for (unsigned s = blockDim.x / 2; s > 0; s /= 2) {
        if (t < s)
            values[t] = COMBINE(values[t], values[t + s]);
        __syncthreads();
    }
    if (t == 0)
        partial[blockIdx.x] = values[0];
}
