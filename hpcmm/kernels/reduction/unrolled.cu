// Sum, GPU rung: all steps written out for a block size known at compile time.
//
// As last_warp, and the loop over the larger steps is gone too: a test on BLOCK costs nothing, because
// the compiler decides it. Limit: two elements a thread are too little work to hide the latency of
// their loads.
// Source: M. Harris, Optimizing Parallel Reduction in CUDA, kernel 6.

__device__ void step(volatile REAL *sums, int t, int s)
{
    const REAL sum = sums[t] + sums[t + s];
    __syncwarp();
    sums[t] = sum;
    __syncwarp();
}

extern "C" __global__ void reduction(const REAL *x, size_t n, REAL *partial)
{
    static_assert(BLOCK >= 64 && BLOCK <= 1024 && (BLOCK & (BLOCK - 1)) == 0, "a power of two");
    __shared__ REAL sums[BLOCK];
    const int t = threadIdx.x;
    const size_t i = (size_t)blockIdx.x * (2 * BLOCK) + t;
    sums[t] = (i < n ? x[i] : REAL(0)) + (i + BLOCK < n ? x[i + BLOCK] : REAL(0));
    __syncthreads();
#pragma unroll
    for (int s = 512; s > 32; s /= 2)
        if (BLOCK >= 2 * s) {
            if (t < s)
                sums[t] += sums[t + s];
            __syncthreads();
        }
    if (t < 32) {
#pragma unroll
        for (int s = 32; s > 0; s /= 2)
            step(sums, t, s);
    }
    if (t == 0)
        partial[blockIdx.x] = sums[0];
}
