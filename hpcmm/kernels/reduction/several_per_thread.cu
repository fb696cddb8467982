// Sum, GPU rung: a grid of limited size strides over the input, several elements a thread.
//
// Each thread first adds up every (grid size)-th pair of elements in a register; only then does the
// tree begin. The tree's cost is paid once for many elements instead of two, fewer partial sums are
// left for the next pass, and the loads of a warp stay coalesced. Limit: each load brings one element.
// Source: M. Harris, Optimizing Parallel Reduction in CUDA, kernel 7.

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
    const size_t stride = (size_t)gridDim.x * (2 * BLOCK);
    REAL sum = 0;
    size_t i = (size_t)blockIdx.x * (2 * BLOCK) + t;
    for (; i + BLOCK < n; i += stride)
        sum += x[i] + x[i + BLOCK];
    if (i < n)
        sum += x[i];
    sums[t] = sum;
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
