// Sum, GPU rung: sequential addressing.
//
// In each step the lower half of the threads adds the upper half. The working threads are
// contiguous, so whole warps retire instead of diverging, and a warp reads consecutive words of
// shared memory, each from a bank of its own. Limit: half of the threads only load.
// Source: 004 unit 5, kernel 3.

extern "C" __global__ void reduction(const REAL *x, size_t n, REAL *partial)
{
    __shared__ REAL sums[BLOCK];
    const int t = threadIdx.x;
    const size_t i = (size_t)blockIdx.x * BLOCK + t;
    sums[t] = i < n ? x[i] : REAL(0);
    __syncthreads();
    for (int s = BLOCK / 2; s > 0; s /= 2) {
        if (t < s)
            sums[t] += sums[t + s];
        __syncthreads();
    }
    if (t == 0)
        partial[blockIdx.x] = sums[0];
}
