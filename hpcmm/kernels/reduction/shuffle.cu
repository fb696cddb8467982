// Sum, GPU rung: warps add up by exchanging registers.
//
// As several_per_thread, but a warp's 32 sums are added by __shfl_down_sync, which reads another lane's
// register: no shared memory and no barrier within a warp. Shared memory only carries one sum a warp,
// and one barrier is left. Limit: each load still brings one element.
// Source: CUDA C++ Programming Guide, warp shuffle functions.

__device__ REAL warp_sum(REAL sum)
{
#pragma unroll
    for (int s = 16; s > 0; s /= 2)
        sum += __shfl_down_sync(0xffffffffu, sum, s);
    return sum;
}

extern "C" __global__ void reduction(const REAL *x, size_t n, REAL *partial)
{
    static_assert(BLOCK % 32 == 0 && BLOCK <= 1024, "whole warps, at most 32 of them");
    __shared__ REAL sums[32];
    const int t = threadIdx.x;
    const size_t stride = (size_t)gridDim.x * BLOCK;
    REAL sum = 0;
    for (size_t i = (size_t)blockIdx.x * BLOCK + t; i < n; i += stride)
        sum += x[i];
    sum = warp_sum(sum);
    if (t % 32 == 0)
        sums[t / 32] = sum;
    __syncthreads();
    if (t < 32) {
        sum = warp_sum(t < BLOCK / 32 ? sums[t] : REAL(0));
        if (t == 0)
            partial[blockIdx.x] = sum;
    }
}
