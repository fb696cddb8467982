// Sum, GPU rung: the first addition is done while loading.
//
// With one element a thread, half of the threads never add anything. Here each thread loads two
// elements and adds them on the way into shared memory: half the blocks do the same work, and two
// loads are in flight at a time. Limit: loop and address instructions, and a barrier in each step.
// Source: 004 unit 5, kernel 4.

extern "C" __global__ void reduction(const REAL *x, size_t n, REAL *partial)
{
    __shared__ REAL sums[BLOCK];
    const int t = threadIdx.x;
    const size_t i = (size_t)blockIdx.x * (2 * BLOCK) + t;
    sums[t] = (i < n ? x[i] : REAL(0)) + (i + BLOCK < n ? x[i + BLOCK] : REAL(0));
    __syncthreads();
    for (int s = BLOCK / 2; s > 0; s /= 2) {
        if (t < s)
            sums[t] += sums[t + s];
        __syncthreads();
    }
    if (t == 0)
        partial[blockIdx.x] = sums[0];
}
