// Memory latency, GPU rung: a chase through global memory past the L1 cache.
//
// As cached, but the loads are cached in L2 only (ld.global.cg). The caches L1 of two SMs do not know of each other, so
// that a program that waits for a flag of another block pays at least this much. The difference to cached shows what L1
// saves. Limit: the way across the chip to the L2 cache.

extern "C" __global__ void __launch_bounds__(BLOCK)
    latency(const int *x, unsigned n, unsigned k, int *result, const char **pointers)
{
    const unsigned t = threadIdx.x;
    if (gridDim.x > 1) {  // the launch before the chase
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
