// Reduction, GPU rung: interleaved addressing with divergent branches.
//
// A block combines its elements as a tree in shared memory: in step s each thread whose index is a
// multiple of 2 s combines its element with the one at distance s. Each block writes one partial result,
// and the host launches the kernel again over the partial results. In this rung and up to last_warp the
// block size is known at run time only, as in 004; a compiler that knows it removes the modulo and unrolls
// the loop. Limit: the active threads are scattered over all warps, so every warp stays active with fewer
// and fewer lanes, and the modulo is a slow integer operation.
// Source: 004 unit 5, kernel 1.
//
// hpcmm:
//   operation: sum
//   shelf: lesson
//   change: 'interleaved addressing by a modulo: warps diverge'
//   source: 004 kernel 1
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
        if (t % (2 * s) == 0)
            values[t] = COMBINE(values[t], values[t + s]);
        __syncthreads();
    }
    if (t == 0)
        partial[blockIdx.x] = values[0];
}
