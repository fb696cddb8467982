// Sum, GPU rung: the last warp's steps are written out.
//
// From 32 working threads on, only one warp is left, and a barrier of the whole block is more than it
// needs. Its six steps are written out without loop and test. The original counts on the lanes of a
// warp running in step, which no GPU since Volta promises; here __syncwarp separates the reads of a
// step from its writes. Limit: the steps before it are still a loop with barriers.
// Source: 004 unit 5, kernel 5.

__device__ void step(volatile REAL *sums, int t, int s)
{
    const REAL sum = sums[t] + sums[t + s];
    __syncwarp();
    sums[t] = sum;
    __syncwarp();
}

extern "C" __global__ void reduction(const REAL *x, size_t n, REAL *partial)
{
    static_assert(BLOCK >= 64, "the last warp adds elements 32 to 63");
    __shared__ REAL sums[BLOCK];
    const int t = threadIdx.x;
    const size_t i = (size_t)blockIdx.x * (2 * BLOCK) + t;
    sums[t] = (i < n ? x[i] : REAL(0)) + (i + BLOCK < n ? x[i + BLOCK] : REAL(0));
    __syncthreads();
    for (int s = BLOCK / 2; s > 32; s /= 2) {
        if (t < s)
            sums[t] += sums[t + s];
        __syncthreads();
    }
    if (t < 32) {
        step(sums, t, 32);
        step(sums, t, 16);
        step(sums, t, 8);
        step(sums, t, 4);
        step(sums, t, 2);
        step(sums, t, 1);
    }
    if (t == 0)
        partial[blockIdx.x] = sums[0];
}
