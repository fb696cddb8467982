// The end of every rung: the sum over all threads of all blocks.
//
// Sums are modulo 2^32, so their order does not matter. The block that draws the last ticket writes the result and
// resets the counters for the next launch.

__device__ unsigned total, tickets;

__device__ void add_to_total(unsigned sum, int *result)
{
#pragma unroll
    for (int s = 16; s > 0; s /= 2)
        sum += __shfl_down_sync(0xffffffffu, sum, s);
    if (threadIdx.x % 32 == 0)
        atomicAdd(&total, sum);
    __threadfence();  // the sums of the block are in the total before its ticket is drawn
    __syncthreads();
    if (threadIdx.x == 0 && atomicAdd(&tickets, 1u) == gridDim.x - 1) {
        __threadfence();
        *result = atomicAdd(&total, 0u);
        total = 0;
        tickets = 0;
    }
}

// Return the first pass of a block; the blocks divide k passes. For `block` = gridDim.x it is k.
__device__ unsigned first_pass(unsigned block, unsigned k)
{
    return (unsigned long long)k * block / gridDim.x;
}
