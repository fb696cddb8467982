// Reduction, GPU rung: all steps unrolled for a block size known at compile time.
//
// Compared with last_warp, the block size is a compile-time constant: the loop over the larger steps is
// unrolled too, and the compiler removes the branches on BLOCK. Limit: two elements per thread are too few
// to hide the latency of their loads.
// Source: M. Harris, Optimizing Parallel Reduction in CUDA, kernel 6.
//
// hpcmm:
//   operation: sum
//   shelf: lesson
//   change: all steps unrolled
//   counterpart: last_warp
//   source: Harris kernel 6
//   per_thread: 2

__device__ void step(volatile REAL *values, int t, int s)
{
    const REAL value = COMBINE(values[t], values[t + s]);
    __syncwarp();
    values[t] = value;
    __syncwarp();
}

extern "C" __global__ void reduction(const REAL *x, size_t n, REAL *partial, REAL identity)
{
    static_assert(BLOCK >= 64 && BLOCK <= 1024 && (BLOCK & (BLOCK - 1)) == 0, "a power of two");
    __shared__ REAL values[BLOCK];
    const int t = threadIdx.x;
    const size_t i = (size_t)blockIdx.x * (2 * BLOCK) + t;
    const REAL first = i < n ? x[i] : identity, second = i + BLOCK < n ? x[i + BLOCK] : identity;
    values[t] = COMBINE(first, second);
    __syncthreads();
#pragma unroll
    for (int s = 512; s > 32; s /= 2)
        if (BLOCK >= 2 * s) {
            if (t < s)
                values[t] = COMBINE(values[t], values[t + s]);
            __syncthreads();
        }
    if (t < 32) {
#pragma unroll
        for (int s = 32; s > 0; s /= 2)
            step(values, t, s);
    }
    if (t == 0)
        partial[blockIdx.x] = values[0];
}
