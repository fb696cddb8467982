// Memory bandwidth, GPU rung: constant memory, all lanes of a warp at the same address.
//
// The passes are divided among the threads, so the lanes of a warp read the same element at the same time: one read
// serves all of them (a broadcast). The rate counts the bytes that the threads receive. Limit: one address per warp and
// read.
//
// hpcmm:
//   operation: bandwidth
//   shelf: lesson
//   change: 'constant memory, one address for all lanes: broadcast'
//   source: '004'
//   capacity: 16384
//   constant_memory: true
#include "bandwidth/total.cuh"

__constant__ int elements[CAPACITY];

extern "C" __global__ void __launch_bounds__(BLOCK) bandwidth(const int *x, unsigned n, unsigned k, int *result)
{
    unsigned sum = 0;
    for (unsigned pass = blockIdx.x * BLOCK + threadIdx.x; pass < k; pass += gridDim.x * BLOCK)
#pragma unroll 8
        for (unsigned i = 0; i < n; ++i)
            sum += elements[i];
    add_to_total(sum, result);
}
