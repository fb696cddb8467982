// Memory latency, GPU rung: pointer chasing in global memory through the L1 cache.
//
// A first launch writes the elements as pointers, which leaves them in the L2 cache, and the block reads them into L1
// if they fit. The length of the chain determines the level that serves the loads. A step is one load, whose address is
// the pointer that the previous load returned. The order is random, so no prefetcher helps. Elements that do not fit
// into L2 are followed in place, as byte offsets, because writing the pointers would leave a part of them in L2; a step
// then includes an addition. Limit: the latency of the level. A GPU hides it with other warps, and this kernel has
// none.
//
// hpcmm:
//   operation: latency
//   shelf: lesson
//   change: 'global memory: L1, L2 or DRAM, by length'
//   source: '004'
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
    size_t found = 1;
    if (n <= L1_WARMED)
        for (unsigned i = t; i < n; i += BLOCK)
            found |= (size_t)pointers[i];
    __syncthreads();
    if (t >= 32)
        return;
    unsigned offset = found == 0;  // never
    if (n > L2_WARMED) {
#pragma unroll 16
        for (unsigned step = 0; step < k; ++step)
            offset = *(const int *)((const char *)x + offset);
    } else {
        const char *at = (const char *)pointers + offset;
#pragma unroll 16
        for (unsigned step = 0; step < k; ++step)
            at = (const char *)__ldca((const unsigned long long *)at);
        offset = (at - (const char *)pointers) / 2;
    }
    if (t == 0)
        *result = offset;
}
