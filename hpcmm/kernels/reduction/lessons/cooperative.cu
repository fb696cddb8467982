// Reduction, GPU rung: a barrier over the whole grid, in a cooperative launch.
//
// CUDA has no barrier over the blocks of an ordinary launch: a block that waits for a block that has not started may
// wait forever, because it occupies the SM that the other block needs. A cooperative launch starts only if all blocks
// are resident at the same time, so they can wait for each other. Each block writes its result, the barrier counts the
// blocks until all have arrived, and the first block combines the results. The alternatives are to end the launch
// (shuffle), to let the block that finishes last combine the results (one_launch), where no block waits, and to let one
// block wait for all others (flagged), which can always run. Limit: the barrier, and a grid that is no larger than the
// GPU.
//
// hpcmm:
//   operation: sum
//   shelf: lesson
//   change: a barrier over all blocks in a cooperative launch; the first block combines the results
//   counterpart: one_launch
//   source: 004 unit 5
//   per_thread: 8
//   per_sm: 4
//   block: 256
//   one_launch: true
//   cooperative: true
//   architecture: sm_75

__device__ REAL block_results[MAX_BLOCKS];
__device__ unsigned int arrived;
__device__ volatile unsigned int generation;

__device__ REAL warp_reduction(REAL value)
{
#pragma unroll
    for (int s = 16; s > 0; s /= 2) {
        const REAL other = __shfl_down_sync(0xffffffffu, value, s);
        value = COMBINE(value, other);
    }
    return value;
}

// Return the block's result in thread 0. The caller needs a barrier between two calls.
__device__ REAL block_reduction(REAL value, REAL identity)
{
    __shared__ REAL values[32];
    const int t = threadIdx.x;
    value = warp_reduction(value);
    if (t % 32 == 0)
        values[t / 32] = value;
    __syncthreads();
    return t < 32 ? warp_reduction(t < BLOCK / 32 ? values[t] : identity) : identity;
}

// Wait until all threads of the grid have arrived. The last block resets the counter and starts the next generation.
__device__ void grid_barrier()
{
    __syncthreads();
    if (threadIdx.x == 0) {
        const unsigned int before = generation;
        __threadfence();  // makes the block's partial result visible before the block is counted
        if (atomicAdd(&arrived, 1u) == gridDim.x - 1) {
            arrived = 0;
            __threadfence();
            generation = before + 1;
        } else {
            while (generation == before)
                ;
        }
        __threadfence();
    }
    __syncthreads();
}

extern "C" __global__ void __launch_bounds__(BLOCK) reduction(const REAL *x, size_t n, REAL *result, REAL identity)
{
    constexpr int IN_FLIGHT = PER_THREAD;
    static_assert(BLOCK % 32 == 0 && BLOCK <= 1024, "whole warps, at most 32 of them");
    const size_t stride = (size_t)gridDim.x * BLOCK;
    REAL value = identity;
    size_t i = (size_t)blockIdx.x * BLOCK + threadIdx.x;
    for (; i + (IN_FLIGHT - 1) * stride < n; i += IN_FLIGHT * stride) {
        REAL v[IN_FLIGHT];
#pragma unroll
        for (int j = 0; j < IN_FLIGHT; ++j)
            v[j] = x[i + j * stride];
#pragma unroll
        for (int j = 0; j < IN_FLIGHT; ++j)
            value = COMBINE(value, v[j]);
    }
    for (; i < n; i += stride)
        value = COMBINE(value, x[i]);
    value = block_reduction(value, identity);
    if (threadIdx.x == 0)
        block_results[blockIdx.x] = value;
    grid_barrier();
    if (blockIdx.x != 0)
        return;
    value = identity;
    for (int b = threadIdx.x; b < gridDim.x; b += BLOCK)
        value = COMBINE(value, ((volatile REAL *)block_results)[b]);
    value = block_reduction(value, identity);
    if (threadIdx.x == 0)
        *result = value;
}
