// Reduction, GPU rung: the order of combinations depends on n alone.
//
// In flagged, the number of blocks decides which elements are combined first: another GPU, block size or number of
// ranks rounds a sum differently. Here the vector is divided into tiles of 4 KiB, each of 8 rows. The rows of a tile
// are combined as a binary tree by index: 0 and 1, 2 and 3, then pairs of these, ... So are then its columns, and the
// values of all tiles. A missing value counts as the identity. Each aligned group of 2^j tiles therefore has the same
// value wherever it is computed, and warps, blocks and ranks may divide the groups in any way. A warp computes the
// tiles of a group, a block WARPS groups side by side. The last block combines the nodes of all blocks, which arrive
// with the number of the launch as in flagged. Denormal numbers are kept. tree.c has the same tree, and the same bits.
// Limit: memory bandwidth, and for few elements the latency of the launch, of a load and of an exchange through the L2
// cache. As in flagged, launches must not overlap.
//
// hpcmm:
//   operation: sum
//   shelf: product
//   change: a tree of combinations that depends on n alone, for any grid, block size and number of ranks
//   counterpart: flagged
//   leaf_bytes: 4096
//   per_thread: 128 / ITEMSIZE
//   per_sm: 4
//   block: 256
//   one_launch: true
//   options: ['--ftz=false']
#include "ptx.cuh"

constexpr int LEAF = 32 * PER_THREAD;  // elements of a tile
constexpr int WIDTH = 16 / sizeof(REAL), VECTORS = PER_THREAD / WIDTH, PARTS = sizeof(REAL) / 4, WARPS = BLOCK / 32;
constexpr int LOADS = 8;              // nodes that a thread of the last block loads at once
constexpr int BATCH = BLOCK * LOADS;  // nodes that the last block combines at once, an aligned group
constexpr int MOST_NODES = 4096;      // at most 16 batches, one after the other
constexpr unsigned ALL = 0xffffffffu;
static_assert(BLOCK >= 32 && BLOCK <= 1024 && (BLOCK & (BLOCK - 1)) == 0, "a power of two, whole warps");

struct alignas(16) Vector {
    REAL of[16 / sizeof(REAL)];
};

__device__ unsigned long long words[PARTS][MOST_NODES];  // number of the launch, 4 bytes of a node
__device__ unsigned int next_launch = 1;                 // number of the next launch; words begin as 0

// Combine the values of groups of `lanes` lanes, a power of two, as a binary tree by lane; all lanes have the result.
__device__ REAL of_lanes(REAL value, int lanes = 32)
{
#pragma unroll
    for (int s = 1; s < 32; s *= 2)
        if (s < lanes) {
            const REAL other = __shfl_xor_sync(ALL, value, s);
            value = COMBINE(value, other);
        }
    return value;
}

// Combine 2^j values in registers as a binary tree by index.
template <int COUNT> __device__ REAL of_registers(REAL (&values)[COUNT])
{
#pragma unroll
    for (int s = 1; s < COUNT; s *= 2)
#pragma unroll
        for (int i = 0; i < COUNT; i += 2 * s)
            values[i] = COMBINE(values[i], values[i + s]);
    return values[0];
}

// Return the value of a tile, in all lanes: a lane combines the rows of its columns, then its columns, then the warp its
// lanes. Combined with the identity, it is not -0, so that missing values change no bit.
__device__ REAL of_tile(const REAL *x, size_t n, size_t tile, REAL identity)
{
    const size_t start = tile * LEAF;
    const int lane = threadIdx.x % 32;
    REAL values[VECTORS * WIDTH];
    if (start + LEAF <= n && (size_t)x % 16 == 0) {
        const Vector *const vectors = (const Vector *)(x + start) + lane;
#pragma unroll
        for (int v = 0; v < VECTORS; ++v) {
            const Vector loaded = vectors[v * 32];
#pragma unroll
            for (int w = 0; w < WIDTH; ++w)
                values[w * VECTORS + v] = loaded.of[w];
        }
    } else
#pragma unroll
        for (int i = 0; i < VECTORS * WIDTH; ++i) {
            const size_t at = start + (i % VECTORS * 32 + lane) * WIDTH + i / VECTORS;
            values[i] = at < n ? x[at] : identity;
        }
    const REAL value = of_lanes(of_registers(values));
    return COMBINE(identity, value);
}

// Return the value of the aligned group of 2^j <= 1024 tiles from `first` on, in all lanes. Each lane keeps the value of
// one tile of 32, and of one group of 32 tiles.
__device__ REAL of_group(const REAL *x, size_t n, size_t first, int tiles, REAL identity)
{
    const int lane = threadIdx.x % 32;
    REAL of_32 = identity, kept = identity;
#pragma unroll 1
    for (int i = 0; i < tiles; ++i) {
        const REAL value = (first + i) * LEAF < n ? of_tile(x, n, first + i, identity) : identity;
        if (tiles == 1)
            return value;
        kept = lane == i % 32 ? value : kept;
        if (i % 32 == 31 || i == tiles - 1) {
            const REAL whole = of_lanes(kept);
            of_32 = lane == i / 32 ? whole : of_32;
            kept = identity;
        }
    }
    return of_lanes(of_32);
}

// Store a node, with the number of the launch in each word.
__device__ void publish_node(REAL value, int node, unsigned number)
{
    unsigned parts[PARTS];
    memcpy(parts, &value, sizeof value);
#pragma unroll
    for (int p = 0; p < PARTS; ++p)
        st_relaxed_gpu_global(&words[p][node], (unsigned long long)number << 32 | parts[p]);
}

// Wait for the nodes of a batch from `first` on, as far as there are `nodes`, and return their value in all threads.
__device__ REAL of_batch(int first, int nodes, unsigned number, REAL identity)
{
    constexpr int VALUES = LOADS * WARPS, LANES = VALUES < 32 ? VALUES : 32;
    __shared__ REAL of_warps[VALUES];
    unsigned long long word[LOADS][PARTS];
    const int t = threadIdx.x;
    first += t;
    bool missing;
    do {  // loads of all words before the first check, so that their latencies overlap
        missing = false;
#pragma unroll
        for (int i = 0; i < LOADS; ++i)
#pragma unroll
            for (int p = 0; p < PARTS; ++p)
                word[i][p] = first + i * BLOCK < nodes ? ld_relaxed_gpu_global(&words[p][first + i * BLOCK]) : 0;
#pragma unroll
        for (int i = 0; i < LOADS; ++i)
#pragma unroll
            for (int p = 0; p < PARTS; ++p)
                missing = missing || (first + i * BLOCK < nodes && (unsigned)(word[i][p] >> 32) != number);
    } while (missing);
    __syncthreads();  // the values of the batch before are read
#pragma unroll
    for (int i = 0; i < LOADS; ++i) {
        unsigned parts[PARTS];
#pragma unroll
        for (int p = 0; p < PARTS; ++p)
            parts[p] = (unsigned)word[i][p];
        REAL node;
        memcpy(&node, parts, sizeof node);
        node = of_lanes(first + i * BLOCK < nodes ? node : identity);
        if (t % 32 == 0)
            of_warps[i * WARPS + t / 32] = node;
    }
    __syncthreads();
    REAL values[VALUES / LANES];
#pragma unroll
    for (int i = 0; i < VALUES / LANES; ++i)
        values[i] = of_warps[t % LANES * (VALUES / LANES) + i];
    return of_lanes(of_registers(values), LANES);
}

extern "C" __global__ void __launch_bounds__(BLOCK, 1024 / BLOCK)
    reduction(const REAL *x, size_t n, REAL *result, REAL identity)
{
    __shared__ REAL of_warps[2][WARPS];  // two, so that one barrier suffices for each node
    const int t = threadIdx.x, lane = t % 32, warp = t / 32;
    const bool last = blockIdx.x == gridDim.x - 1;
    const size_t tiles = (n + LEAF - 1) / LEAF;
    int group = 1;  // tiles of a warp's group
    while ((tiles + (size_t)WARPS * group - 1) / ((size_t)WARPS * group) > MOST_NODES)
        group *= 2;
    const int nodes = (tiles + (size_t)WARPS * group - 1) / ((size_t)WARPS * group);
    const bool alone = gridDim.x == 1 && nodes <= 1;
    const unsigned number = last || t == 0 ? ld_relaxed_gpu_global(&next_launch) : 0;

    for (int node = last ? 4 * t : nodes; node < nodes; node += 4 * BLOCK)  // sectors that will not wait for DRAM
#pragma unroll
        for (int p = 0; p < PARTS; ++p)
            prefetch_global_L2(&words[p][node]);

    int buffer = 0;
    REAL value = identity;
    for (int node = blockIdx.x; node < nodes; node += gridDim.x, buffer ^= 1) {
        value = of_group(x, n, ((size_t)node * WARPS + warp) * group, group, identity);
        if (lane == 0)
            of_warps[buffer][warp] = value;
        __syncthreads();
        if (warp == 0) {
            value = of_lanes(of_warps[buffer][lane % WARPS], WARPS);
            if (t == 0 && !alone)
                publish_node(value, node, number);
        }
    }
    if (!last)
        return;
    if (!alone) {
        REAL of_batches = identity;
#pragma unroll 1
        for (int b = 0; b * BATCH < nodes; ++b) {
            value = of_batch(b * BATCH, nodes, number, identity);
            of_batches = lane == b ? value : of_batches;
        }
        value = of_lanes(of_batches);
        if (t == 0)
            st_relaxed_gpu_global(&next_launch, number + 1);
    }
    if (t == 0)
        *result = value;
}
