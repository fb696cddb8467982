// Reduction, GPU rung: a result and its flag, the number of the launch, are one word.
//
// In one_launch, a block's store, fence, ticket, second fence and read depend on each other. For few elements this chain
// takes longer than the loads. Here a word of 8 bytes holds 4 bytes of a block's result and the number of the launch. A
// word cannot be read in part, so the number shows that the result has arrived, without a fence and without a ticket.
// The last block loads the words of the others until all have this launch's number, and combines the results in the
// order of their index. Only this block waits, so the others can always end. Each block loads the number with its first
// elements, and the last block advances it when all others have used it. A grid of one block needs none of this.
// Also, the loads of an incomplete round do not wait for each other, and a round is combined as a tree. Limit: memory
// bandwidth, and for few elements the latency of the launch, of a load and of an exchange through the L2 cache. As in
// one_launch, launches must not overlap. Numbers repeat after 2^32 launches.
//
// hpcmm:
//   operation: sum
//   shelf: product
//   change: 'each result is stored with the number of the launch: no fence, no ticket'
//   counterpart: one_launch
//   per_thread: 16
//   per_sm: 4
//   long: 33554432
//   block: 256
//   one_launch: true
#include "ptx.cuh"

constexpr int WIDTH = 16 / sizeof(REAL), IN_FLIGHT = 4, PARTS = sizeof(REAL) / 4;

struct alignas(16) Vector {
    REAL of[16 / sizeof(REAL)];
};

__device__ unsigned long long words[PARTS][MAX_BLOCKS];  // number of the launch, 4 bytes of the block's result
__device__ unsigned int next_launch = 1;                 // number of the next launch; words begin as 0

// Combine a value of each of LANES lanes, a power of two; the result is in lane 0.
template <int LANES> __device__ REAL group_reduction(REAL value)
{
#pragma unroll
    for (int s = LANES / 2; s > 0; s /= 2) {
        const REAL other = __shfl_down_sync(0xffffffffu, value, s);
        value = COMBINE(value, other);
    }
    return value;
}

// Return the block's result in thread 0. A second call needs another array, or a barrier before it.
__device__ REAL block_reduction(REAL value, REAL (&values)[BLOCK / 32])
{
    const unsigned t = threadIdx.x;
    value = group_reduction<32>(value);
    if (t % 32 == 0)
        values[t / 32] = value;
    __syncthreads();
    return t < 32 ? group_reduction<BLOCK / 32>(values[t % (BLOCK / 32)]) : value;
}

// Combine the elements of a round as a tree: the chain of dependent instructions is shorter than in a loop.
__device__ REAL round_reduction(Vector (&v)[IN_FLIGHT])
{
#pragma unroll
    for (int s = IN_FLIGHT / 2; s > 0; s /= 2)
#pragma unroll
        for (int j = 0; j < s; ++j)
#pragma unroll
            for (int w = 0; w < WIDTH; ++w)
                v[j].of[w] = COMBINE(v[j].of[w], v[j + s].of[w]);
#pragma unroll
    for (int s = WIDTH / 2; s > 0; s /= 2)
#pragma unroll
        for (int w = 0; w < s; ++w)
            v[0].of[w] = COMBINE(v[0].of[w], v[0].of[w + s]);
    return v[0].of[0];
}

// Store a block's result, with the number of the launch in each word.
__device__ void publish(REAL value, unsigned number)
{
    unsigned parts[PARTS];
    memcpy(parts, &value, sizeof value);
#pragma unroll
    for (int p = 0; p < PARTS; ++p)
        st_relaxed_gpu_global(&words[p][blockIdx.x], (unsigned long long)number << 32 | parts[p]);
}

// Wait for the results of `others` blocks and return those of blocks t, t + BLOCK, ... combined with the thread's value.
__device__ REAL collect(REAL value, int others, unsigned number)
{
    constexpr int RESULTS = (MAX_BLOCKS + BLOCK - 1) / BLOCK;
    const int t = threadIdx.x;
    unsigned long long word[RESULTS][PARTS];
    bool missing;
    do {  // loads of all words before the first check, so that their latencies overlap
        missing = false;
#pragma unroll
        for (int r = 0; r < RESULTS; ++r)
#pragma unroll
            for (int p = 0; p < PARTS; ++p)
                if (r * BLOCK + t < others)
                    word[r][p] = ld_relaxed_gpu_global(words[p] + t + r * BLOCK);
#pragma unroll
        for (int r = 0; r < RESULTS; ++r)
#pragma unroll
            for (int p = 0; p < PARTS; ++p)
                if (r * BLOCK + t < others)
                    missing = missing || (unsigned)(word[r][p] >> 32) != number;
    } while (missing);
#pragma unroll
    for (int r = 0; r < RESULTS; ++r)
        if (r * BLOCK + t < others) {
            unsigned parts[PARTS];
#pragma unroll
            for (int p = 0; p < PARTS; ++p)
                parts[p] = (unsigned)word[r][p];
            REAL other;
            memcpy(&other, parts, sizeof other);
            value = COMBINE(value, other);
        }
    return value;
}

extern "C" __global__ void __launch_bounds__(BLOCK) reduction(const REAL *x, size_t n, REAL *result, REAL identity)
{
    static_assert(BLOCK >= 32 && BLOCK <= 1024 && (BLOCK & (BLOCK - 1)) == 0, "a power of two, whole warps");
    __shared__ REAL own[BLOCK / 32], all[BLOCK / 32];
    const int t = threadIdx.x;
    const int others = gridDim.x - 1;
    const bool last = blockIdx.x == others;
    unsigned number = 0;
    if (last || t == 0)
        number = ld_relaxed_gpu_global(&next_launch);
    if (last && 4 * t < others)  // a sector of 32 bytes each: the first load of a word then does not wait for DRAM
#pragma unroll
        for (int p = 0; p < PARTS; ++p)
            prefetch_global_L2(&words[p][4 * t]);

    size_t head = (16 - (size_t)x % 16) % 16 / sizeof(REAL);
    head = head < n ? head : n;
    const Vector *const vectors = (const Vector *)(x + head);
    const size_t count = (n - head) / WIDTH, tail = head + count * WIDTH;
    const size_t stride = (size_t)gridDim.x * BLOCK;

    REAL value = identity;
    size_t i = (size_t)blockIdx.x * BLOCK + t;
    for (; i + IN_FLIGHT * stride < count; i += IN_FLIGHT * stride) {
        Vector v[IN_FLIGHT];
#pragma unroll
        for (int j = 0; j < IN_FLIGHT; ++j)
            v[j] = vectors[i + j * stride];
        const REAL round = round_reduction(v);
        value = COMBINE(value, round);
    }
    // The last round has up to IN_FLIGHT vectors, and in the first block the elements before and after all vectors.
    Vector v[IN_FLIGHT];
#pragma unroll
    for (int j = 0; j < IN_FLIGHT; ++j)
        if (i + j * stride < count)
            v[j] = vectors[i + j * stride];
        else
#pragma unroll
            for (int w = 0; w < WIDTH; ++w)
                v[j].of[w] = identity;
    const REAL first = blockIdx.x == 0 && t < head ? x[t] : identity;
    const REAL end = blockIdx.x == 0 && tail + t < n ? x[tail + t] : identity;
    const REAL round = round_reduction(v), ends = COMBINE(first, end);
    value = COMBINE(value, round);
    value = COMBINE(value, ends);

    value = block_reduction(value, own);
    if (!last) {
        if (t == 0)
            publish(value, number);
        return;
    }
    if (others > 0) {
        value = collect(t == 0 ? value : identity, others, number);
        value = block_reduction(value, all);
        if (t == 0)
            st_relaxed_gpu_global(&next_launch, number + 1);
    }
    if (t == 0)
        *result = value;
}
