// Memory bandwidth, GPU rung: registers.
//
// Each thread holds PER_THREAD elements in registers and adds them up in every pass. The additions are volatile,
// because the compiler would otherwise multiply one sum by the number of passes. Limit: an addition of three operands
// reads two elements, and an SM starts 64 additions per clock; the register file itself has more bandwidth.
//
// hpcmm:
//   operation: bandwidth
//   shelf: lesson
//   change: each thread adds registers
//   per_thread: 16
//   capacity: 8192
#include "ptx.cuh"
#include "bandwidth/total.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) bandwidth(const int *x, unsigned n, unsigned k, int *result)
{
    unsigned elements[PER_THREAD], sum = 0;
#pragma unroll
    for (int j = 0; j < PER_THREAD; ++j) {
        const unsigned i = j * BLOCK + threadIdx.x;
        elements[j] = i < n ? x[i] : 0;
    }
    const unsigned end = first_pass(blockIdx.x + 1, k);
    for (unsigned pass = first_pass(blockIdx.x, k); pass < end; ++pass)
#pragma unroll
        for (int j = 0; j < PER_THREAD; ++j)
            add_u32(sum, elements[j]);
    add_to_total(sum, result);
}
