// Memory bandwidth, GPU rung: global memory by way of the L1 cache, 16 bytes per load.
//
// The blocks divide the passes over the elements, end to end, and each reads its part in order. The number of elements
// decides which level answers: L1 if they fit there, as every SM then keeps all of them, else L2, else DRAM. Limit: the
// bandwidth of that level.
#include "bandwidth/total.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) bandwidth(const int *x, unsigned n, unsigned k, int *result)
{
    typedef unsigned long long Index;
    constexpr int IN_FLIGHT = 4;
    const unsigned width = n % 4 || (size_t)x % 16 ? 1 : 4, count = n / width;
    const Index reads = (Index)count * k;
    Index first = reads / gridDim.x * blockIdx.x + reads % gridDim.x * blockIdx.x / gridDim.x;
    const Index next = blockIdx.x + 1;
    const Index end = reads / gridDim.x * next + reads % gridDim.x * next / gridDim.x;
    const uint4 *const vectors = (const uint4 *)x;
    unsigned sum = 0;
    while (first < end) {  // to the end of a pass, or of this block's part
        const unsigned begin = first % count;
        const unsigned stop = end - first < count - begin ? begin + (unsigned)(end - first) : count;
        unsigned i = begin + threadIdx.x;
        if (width == 4) {
            for (; i + (IN_FLIGHT - 1) * BLOCK < stop; i += IN_FLIGHT * BLOCK) {
                uint4 v[IN_FLIGHT];
#pragma unroll
                for (int j = 0; j < IN_FLIGHT; ++j)
                    v[j] = vectors[i + j * BLOCK];
#pragma unroll
                for (int j = 0; j < IN_FLIGHT; ++j)
                    sum += v[j].x + v[j].y + v[j].z + v[j].w;
            }
            for (; i < stop; i += BLOCK) {
                const uint4 v = vectors[i];
                sum += v.x + v.y + v.z + v.w;
            }
        } else {
            for (; i < stop; i += BLOCK)
                sum += x[i];
        }
        first += stop - begin;
    }
    add_to_total(sum, result);
}
