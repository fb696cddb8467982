// Memory bandwidth, GPU rung: global memory through the L1 cache, 16 bytes per load.
//
// The blocks divide the passes over the elements into pieces and take the pieces in turn. The number of elements
// determines the level that serves the loads: L1 if they fit there, because every SM then caches all of them, otherwise
// L2 or DRAM. The blocks of an SM read different pieces at the same time; otherwise L1 would serve all of them from one
// load.
// Limit: the bandwidth of that level.
//
// hpcmm:
//   operation: bandwidth
//   shelf: lesson
//   change: 'global memory, 16 bytes per load: L1, L2 or DRAM, by length'
//   source: '004'
#include "bandwidth/total.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) bandwidth(const int *x, unsigned n, unsigned k, int *result)
{
    typedef unsigned long long Index;
    constexpr unsigned IN_FLIGHT = 8, PIECE = IN_FLIGHT * BLOCK;
    const unsigned width = n % 4 || (size_t)x % 16 ? 1 : 4, count = n / width;
    const Index reads = (Index)count * k, stride = (Index)gridDim.x * PIECE;
    const uint4 *const vectors = (const uint4 *)x;
    const unsigned t = threadIdx.x, step = stride % count;
    unsigned sum = 0, begin = (Index)blockIdx.x * PIECE % count;
    for (Index first = (Index)blockIdx.x * PIECE; first < reads; first += stride) {
        if (width == 4 && begin + PIECE <= count && first + PIECE <= reads) {
            uint4 v[IN_FLIGHT];
#pragma unroll
            for (int j = 0; j < IN_FLIGHT; ++j)
                v[j] = vectors[begin + j * BLOCK + t];
#pragma unroll
            for (int j = 0; j < IN_FLIGHT; ++j)
                sum += v[j].x + v[j].y + v[j].z + v[j].w;
        } else {
            for (unsigned i = t; i < PIECE && first + i < reads; i += BLOCK)
                for (unsigned w = 0; w < width; ++w)
                    sum += x[(begin + i) % count * width + w];
        }
        begin += step;  // where the next piece begins
        begin -= begin < count ? 0 : count;
    }
    add_to_total(sum, result);
}
