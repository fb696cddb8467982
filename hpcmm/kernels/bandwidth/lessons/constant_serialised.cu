// Memory bandwidth, GPU rung: constant memory, each lane of a warp at a different address.
//
// As constant, but each lane starts its pass at a different element. Constant memory serves one address at a time, so a
// read of the warp is split into 32. Limit: the number of different addresses in a warp; shared memory, with 32 banks,
// serves them at once.
//
// hpcmm:
//   operation: bandwidth
//   shelf: lesson
//   change: 'constant memory, an address for each lane: one after the other'
//   counterpart: constant
//   source: '004'
//   capacity: 16384
//   constant_memory: true
#include "bandwidth/total.cuh"

__constant__ int elements[CAPACITY];

extern "C" __global__ void __launch_bounds__(BLOCK) bandwidth(const int *x, unsigned n, unsigned k, int *result)
{
    unsigned sum = 0, i = threadIdx.x % n;
    for (unsigned pass = blockIdx.x * BLOCK + threadIdx.x; pass < k; pass += gridDim.x * BLOCK)
#pragma unroll 8
        for (unsigned step = 0; step < n; ++step) {
            sum += elements[i];
            i = i + 1 < n ? i + 1 : 0;
        }
    add_to_total(sum, result);
}
