// Memory latency, GPU rung: pointer chasing in global memory without the L1 cache.
//
// As cached, but the loads are cached in L2 only (ld.global.cg). The L1 caches of two SMs are not coherent, so a
// program that waits for a flag of another block pays at least this latency. The difference from cached is what L1
// saves. Limit: the path across the chip to the L2 cache.
//
// hpcmm:
//   operation: latency
//   shelf: lesson
//   change: 'global memory past L1: L2 or DRAM, by length'
//   counterpart: cached
//   block: 1024
//   pointers: true

extern "C" __global__ void __launch_bounds__(BLOCK)
    latency(const int *x, unsigned n, unsigned k, int *result, const char **pointers)
{
    const unsigned t = threadIdx.x;
    if (gridDim.x > 1) {  // the launch that writes the pointers
        for (unsigned i = blockIdx.x * BLOCK + t; i < n; i += gridDim.x * BLOCK)
            pointers[i] = (const char *)pointers + 2 * (size_t)x[i];
        return;
    }
    if (t >= 32)
        return;
    unsigned offset = 0;
    if (n > L2_WARMED) {
#pragma unroll 16
        for (unsigned step = 0; step < k; ++step)
            offset = __ldcg((const int *)((const char *)x + offset));
    } else {
        const char *at = (const char *)pointers + offset;
#pragma unroll 16
        for (unsigned step = 0; step < k; ++step)
            at = (const char *)__ldcg((const unsigned long long *)at);
        offset = (at - (const char *)pointers) / 2;
    }
    if (t == 0)
        *result = offset;
}
