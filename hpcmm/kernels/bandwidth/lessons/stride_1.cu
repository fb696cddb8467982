// Memory bandwidth, GPU rung: global memory with a stride, 4 bytes per load.
//
// Neighbouring threads read elements STRIDE apart. The elements between them are read after a pass over the whole
// array. DRAM delivers bursts, and caches hold sectors of 32 bytes. A warp that uses a part of each burst fetches all
// of it. The rate of used elements therefore falls in proportion to the stride, until each burst holds one used
// element. Limit: the bandwidth of DRAM, of which 1 / STRIDE is used.
//
// hpcmm:
//   operation: bandwidth
//   shelf: lesson
//   change: 4 bytes per load
//   source: '004'
//   stride: 1
#include "bandwidth/total.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) bandwidth(const int *x, unsigned n, unsigned k, int *result)
{
    constexpr int IN_FLIGHT = 8;
    const unsigned threads = gridDim.x * BLOCK;
    unsigned sum = 0;
    for (unsigned pass = 0; pass < k; ++pass)
        for (unsigned row = 0; row < STRIDE && row < n; ++row) {
            const unsigned length = (n - row + STRIDE - 1) / STRIDE;  // elements row, row + STRIDE, ... below n
            const int *const elements = x + row;
            unsigned i = blockIdx.x * BLOCK + threadIdx.x;
            for (; i + (IN_FLIGHT - 1) * threads < length; i += IN_FLIGHT * threads) {
                int values[IN_FLIGHT];
#pragma unroll
                for (int j = 0; j < IN_FLIGHT; ++j)
                    values[j] = elements[(size_t)(i + j * threads) * STRIDE];
#pragma unroll
                for (int j = 0; j < IN_FLIGHT; ++j)
                    sum += values[j];
            }
            for (; i < length; i += threads)
                sum += elements[(size_t)i * STRIDE];
        }
    add_to_total(sum, result);
}
