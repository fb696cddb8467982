// Reduction, GPU rung: 16 bytes per load and a single launch.
//
// Each thread keeps several loads of 16 bytes in flight, to saturate the memory bandwidth. The blocks write
// their results to global memory, and the block that draws the last ticket combines them in the order of
// their index: no second launch, and the same rounding in every run, because neither the number of blocks
// nor any order depends on which block finishes first. That block resets the ticket counter for the next
// launch. The first block also combines the elements before the first 16-byte boundary and after the last. Limit:
// memory bandwidth, and for few elements the latency of the launch.
//
// hpcmm:
//   operation: sum
//   shelf: lesson
//   change: 16 bytes per load; the last block combines the results of all, in fixed order
//   counterpart: shuffle
//   per_thread: 16
//   per_sm: 8
//   block: 256
//   one_launch: true

struct alignas(16) Vector {
    REAL of[16 / sizeof(REAL)];
};

__device__ REAL block_results[MAX_BLOCKS];
__device__ unsigned int tickets;

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

extern "C" __global__ void __launch_bounds__(BLOCK) reduction(const REAL *x, size_t n, REAL *result, REAL identity)
{
    constexpr int WIDTH = 16 / sizeof(REAL), IN_FLIGHT = 4;
    static_assert(BLOCK % 32 == 0 && BLOCK <= 1024, "whole warps, at most 32 of them");
    const int t = threadIdx.x;
    size_t head = (16 - (size_t)x % 16) % 16 / sizeof(REAL);
    head = head < n ? head : n;
    const Vector *const vectors = (const Vector *)(x + head);
    const size_t count = (n - head) / WIDTH, tail = head + count * WIDTH;
    const size_t stride = (size_t)gridDim.x * BLOCK;

    REAL value = identity;
    size_t i = (size_t)blockIdx.x * BLOCK + t;
    for (; i + (IN_FLIGHT - 1) * stride < count; i += IN_FLIGHT * stride) {
        Vector v[IN_FLIGHT];
#pragma unroll
        for (int j = 0; j < IN_FLIGHT; ++j)
            v[j] = vectors[i + j * stride];
#pragma unroll
        for (int j = 0; j < IN_FLIGHT; ++j)
#pragma unroll
            for (int w = 0; w < WIDTH; ++w)
                value = COMBINE(value, v[j].of[w]);
    }
    for (; i < count; i += stride) {
        const Vector v = vectors[i];
#pragma unroll
        for (int w = 0; w < WIDTH; ++w)
            value = COMBINE(value, v.of[w]);
    }
    if (blockIdx.x == 0) {
        if (t < head)
            value = COMBINE(value, x[t]);
        if (tail + t < n)
            value = COMBINE(value, x[tail + t]);
    }

    __shared__ bool last;
    value = block_reduction(value, identity);
    if (t == 0) {
        block_results[blockIdx.x] = value;
        __threadfence();  // the result is visible before the ticket is drawn
        last = atomicAdd(&tickets, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (last) {
        __threadfence();
        value = identity;
        for (int b = t; b < gridDim.x; b += BLOCK)
            value = COMBINE(value, ((volatile REAL *)block_results)[b]);
        value = block_reduction(value, identity);
        if (t == 0) {
            *result = value;
            tickets = 0;
        }
    }
}
