// Memory latency, GPU rung: pointer chasing in registers, one instruction per step.
//
// The successors of up to 8 elements are the 8 bytes of two registers. A byte permutation (PRMT) selects the byte of
// the current element, so each step is one instruction that depends on the previous one. Only the lowest digit of the
// selector is used: the bytes above it select bytes that are never read. Limit: registers cannot be addressed, so this
// is the latency of an arithmetic instruction whose operands and result are registers.
//
// hpcmm:
//   operation: latency
//   shelf: lesson
//   change: bytes of two registers, selected by a byte permutation
//   capacity: 8
#include "ptx.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK) latency(const int *x, unsigned n, unsigned k, int *result)
{
    unsigned low = 0, high = 0;
    for (unsigned i = 0; i < n && i < 4; ++i)
        low |= (unsigned)x[i] / 4 << 8 * i;
    for (unsigned i = 4; i < n && i < 8; ++i)
        high |= (unsigned)x[i] / 4 << 8 * (i - 4);
    unsigned at = 0;
#pragma unroll 16
    for (unsigned step = 0; step < k; ++step)
        at = prmt_b32(low, high, at);
    if (threadIdx.x == 0)
        *result = at % 8 * 4;
}
