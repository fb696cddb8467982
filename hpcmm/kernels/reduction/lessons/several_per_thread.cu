// Reduction, GPU rung: a grid of limited size strides over the input, several elements per thread.
//
// Each thread first combines every (grid size)-th pair of elements in a register, before the tree begins.
// The cost of the tree is then shared by many elements instead of two, the next pass has fewer partial
// results, and the loads of a warp stay coalesced. Limit: each load fetches one element.
// Source: M. Harris, Optimizing Parallel Reduction in CUDA, kernel 7.
//
// hpcmm:
//   operation: sum
//   shelf: lesson
//   change: a limited grid strides over the input
//   counterpart: unrolled
//   source: Harris kernel 7
//   per_thread: 8
//   per_sm: 16

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
    const size_t stride = (size_t)gridDim.x * (2 * BLOCK);
    REAL value = identity;
    size_t i = (size_t)blockIdx.x * (2 * BLOCK) + t;
    for (; i + BLOCK < n; i += stride) {
        const REAL pair = COMBINE(x[i], x[i + BLOCK]);
        value = COMBINE(value, pair);
    }
    if (i < n)
        value = COMBINE(value, x[i]);
    values[t] = value;
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
