// Reduction, GPU rung: interleaved addressing with a strided index.
//
// As divergent, but in step s thread t combines element 2 s t, instead of every 2 s-th thread its own:
// the active threads are contiguous, whole warps retire, and there is no modulo. Limit: the stride grows
// with each step, so a warp's accesses to shared memory fall into fewer and fewer banks.
// Source: 004 unit 5, kernel 2.
//
// hpcmm:
//   operation: sum
//   shelf: lesson
//   change: 'interleaved addressing by a stride: bank conflicts'
//   counterpart: divergent
//   source: 004 kernel 2
//   block: 128
//   shared_bytes: BLOCK * ITEMSIZE

extern "C" __global__ void reduction(const REAL *x, size_t n, REAL *partial, REAL identity)
{
    extern __shared__ REAL values[];  // blockDim.x elements
    const unsigned t = threadIdx.x;
    const size_t i = (size_t)blockIdx.x * blockDim.x + t;
    values[t] = i < n ? x[i] : identity;
    __syncthreads();
    for (unsigned s = 1; s < blockDim.x; s *= 2) {
        const unsigned index = 2 * s * t;
        if (index < blockDim.x)
            values[index] = COMBINE(values[index], values[index + s]);
        __syncthreads();
    }
    if (t == 0)
        partial[blockIdx.x] = values[0];
}
