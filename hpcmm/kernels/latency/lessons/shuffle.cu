// Memory latency, GPU rung: pointer chasing in the registers of a warp.
//
// Lane i holds the successor of element i, for up to 32 elements. Each shuffle reads the register of the lane that the
// previous shuffle returned. Shuffles can index the registers of other lanes, but their data pass through the memory
// pipeline. Limit: a warp has 32 lanes.
//
// hpcmm:
//   operation: latency
//   shelf: lesson
//   change: registers of the lanes of a warp
//   capacity: 32

extern "C" __global__ void __launch_bounds__(BLOCK) latency(const int *x, unsigned n, unsigned k, int *result)
{
    const int next = threadIdx.x < n ? x[threadIdx.x] / 4 : 0;
    int at = 0;
#pragma unroll 16
    for (unsigned step = 0; step < k; ++step)
        at = __shfl_sync(0xffffffffu, next, at);
    if (threadIdx.x == 0)
        *result = at * 4;
}
