// Reduction, GPU rung: the lanes of a warp exchange registers.
//
// As several_per_thread, but a warp's 32 values are combined by __shfl_down_sync, which reads another
// lane's register: no shared memory and no barrier within a warp. Shared memory holds one value per warp,
// and one barrier is left. Limit: each load still fetches one element.
// Source: CUDA C++ Programming Guide, warp shuffle functions.
//
// hpcmm:
//   operation: sum
//   shelf: lesson
//   change: the lanes of a warp exchange registers
//   counterpart: several_per_thread
//   per_thread: 8
//   per_sm: 16

__device__ REAL warp_reduction(REAL value)
{
#pragma unroll
    for (int s = 16; s > 0; s /= 2) {
        const REAL other = __shfl_down_sync(0xffffffffu, value, s);
        value = COMBINE(value, other);
    }
    return value;
}

extern "C" __global__ void reduction(const REAL *x, size_t n, REAL *partial, REAL identity)
{
    static_assert(BLOCK % 32 == 0 && BLOCK <= 1024, "whole warps, at most 32 of them");
    __shared__ REAL values[32];
    const int t = threadIdx.x;
    const size_t stride = (size_t)gridDim.x * BLOCK;
    REAL value = identity;
    for (size_t i = (size_t)blockIdx.x * BLOCK + t; i < n; i += stride)
        value = COMBINE(value, x[i]);
    value = warp_reduction(value);
    if (t % 32 == 0)
        values[t / 32] = value;
    __syncthreads();
    if (t < 32) {
        value = warp_reduction(t < BLOCK / 32 ? values[t] : identity);
        if (t == 0)
            partial[blockIdx.x] = value;
    }
}
