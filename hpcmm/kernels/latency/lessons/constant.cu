// Memory latency, GPU rung: pointer chasing in constant memory.
//
// Constant memory is cached on the SM, in a small first level and a larger second one; the length of the chain
// determines the level that holds it. All lanes read the same address, the access pattern that constant memory is made
// for. Limit: 64 KB of constant memory; a warp whose lanes read different addresses needs one read for each
// (bandwidth/constant_serialised).
//
// hpcmm:
//   operation: latency
//   shelf: lesson
//   change: constant memory, one address for all lanes
//   source: '004'
//   capacity: 16384
//   constant_memory: true

__constant__ int elements[CAPACITY];

extern "C" __global__ void __launch_bounds__(BLOCK) latency(const int *x, unsigned n, unsigned k, int *result)
{
    int found = 0;
    for (unsigned i = 0; i < n; i += 16)  // one of each 64 bytes, which fills the caches
        found |= elements[i];
    unsigned at = found < 0;  // no element is negative
#pragma unroll 16
    for (unsigned step = 0; step < k; ++step)
        at = *(const int *)((const char *)elements + at);
    if (threadIdx.x == 0)
        *result = at;
}
