// Memory bandwidth, GPU rung: shared memory, 16 bytes per load.
//
// Each block copies the elements to shared memory and reads them in every pass. Neighbouring threads read neighbouring
// vectors: a warp reads 512 bytes in four wavefronts, and each wavefront accesses all 32 banks once. Limit: 128 bytes
// per clock and SM, four bytes from each bank.
//
// hpcmm:
//   operation: bandwidth
//   shelf: lesson
//   change: shared memory, 16 bytes per load
//   source: '004'
//   capacity: 12288
#include "bandwidth/total.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) bandwidth(const int *x, unsigned n, unsigned k, int *result)
{
    __shared__ uint4 elements[CAPACITY / 4];
    const unsigned t = threadIdx.x, vectors = (n + 3) / 4;
    for (unsigned i = t; i < 4 * vectors; i += BLOCK)
        ((unsigned *)elements)[i] = i < n ? x[i] : 0;
    __syncthreads();
    unsigned sum = 0;
    const unsigned end = first_pass(blockIdx.x + 1, k);
    for (unsigned pass = first_pass(blockIdx.x, k); pass < end; ++pass)
#pragma unroll 4
        for (unsigned i = t; i < vectors; i += BLOCK) {
            const uint4 v = elements[i];
            sum += v.x + v.y + v.z + v.w;
        }
    add_to_total(sum, result);
}
