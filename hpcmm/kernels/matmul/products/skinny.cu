// Matrix product, GPU rung: for few rows or few columns of C, the large operand is read once at memory bandwidth.
//
// With at most 16 rows or columns, the products take less time than loading the large operand. Therefore many loads
// must be in flight, and no other unit may be busier than the memory:
//   - Each slice, a warp or the whole block, has a ring of pipeline stages in shared memory, filled by cp.async. Loads
//     in flight need no registers, so few warps suffice.
//   - Split-K: the slices of a block and the PARTS blocks of a cluster divide the terms, because such a C has few
//     tiles. Slices, then blocks, are added up in a fixed order; blocks read each other's sums (distributed shared
//     memory).
//   - Few rows: B is the large operand. A lane computes THREAD_COLUMNS columns of all rows; all lanes read the same
//     words of A.
//   - Few columns: A is the large operand, and loads are coalesced along its rows. LANE_TERMS lanes of a warp divide
//     the terms. They add up by shuffles: in each step a lane sends half of its sums and keeps the other half.
//   - In float64, from 8 rows or columns on, these reads of the small operand keep shared memory busier than global
//     memory. Tensor cores, which multiply float64 without a split, read it once per warp (TENSOR, where it is faster).
//
// Needs compute capability 9.0. Limit: the memory bandwidth for the large operand.
//
// hpcmm:
//   operation: matmul
//   shelf: product
//   change: >-
//     for few rows or few columns of C: warps and a cluster divide the terms, and read the large operand once
//   counterpart: split_k
//   architecture: sm_90

#include "ptx.cuh"

constexpr bool FEW_ROWS = ROWS < COLUMNS;
constexpr int WIDTH = 16 / sizeof(REAL);  // elements in 16 bytes
// A warp computes WARP_ROWS x WARP_COLUMNS elements of C; on FMA units, a lane computes THREAD_COLUMNS of each row.
constexpr int WARP_COLUMNS = TENSOR ? (FEW_ROWS ? 128 : COLUMNS) : 32 / LANE_TERMS * THREAD_COLUMNS;
constexpr int THREADS = BLOCK / SLICES;  // of a slice
constexpr int TILE = ROWS * COLUMNS;
// A is stored by rows, B by pairs or fours of rows, both padded so that lanes that read at the same time use all banks.
constexpr int A_PITCH = DEPTH + (TENSOR && DEPTH % 16 == 0 ? 8 : 0);
constexpr int B_PITCH = COLUMNS + (TENSOR && FEW_ROWS ? 2 : 0);
constexpr int B_PADDING = TENSOR ? (FEW_ROWS ? 0 : 4) : LANE_TERMS > 1 && COLUMNS % 2 == 0 ? WIDTH : 0;
constexpr int B_ROWS = WIDTH * B_PITCH + B_PADDING;  // elements of WIDTH rows of B
constexpr int STAGE = ROWS * A_PITCH + DEPTH / WIDTH * B_ROWS, RING = STAGES * STAGE;
constexpr int A_STEP = THREADS * WIDTH / DEPTH;             // rows of A that a slice copies at once
constexpr int B_WIDTH = COLUMNS < WIDTH ? COLUMNS : WIDTH;  // elements of B that a thread copies at once
constexpr int B_ROW_THREADS = COLUMNS / B_WIDTH < THREADS ? COLUMNS / B_WIDTH : THREADS;  // threads that copy a row
constexpr int B_STEP = THREADS / B_ROW_THREADS;             // rows of B copied at once
constexpr int C_STEP = B_ROW_THREADS * B_WIDTH;             // columns of B copied at once
static_assert(ROWS % WARP_ROWS == 0 && TILE == THREADS / 32 * WARP_ROWS * WARP_COLUMNS, "warps cover the tile");
static_assert(THREADS * WIDTH % DEPTH == 0 && DEPTH % (WIDTH * LANE_TERMS) == 0, "copies and lanes cover a stage");
static_assert(THREAD_COLUMNS % WIDTH == 0 || COLUMNS == THREAD_COLUMNS, "a lane reads B 16 bytes at a time");
static_assert(THREADS == 32 || SLICES == 1, "a slice is a warp or the block");
static_assert(RING >= TILE, "the sums of a slice go through its ring");

struct alignas(16) Vector {
    REAL of[16 / sizeof(REAL)];
};

// Start the copy of N neighbouring elements. Elements from `count` on are outside the matrix and become zero.
template <int N> __device__ void copy(REAL *target, const REAL *source, int count)
{
    cp_async<N * sizeof(REAL)>(target, source, min(max(count, 0), N) * (int)sizeof(REAL));
}

// Load: copy every SLICES-th stage of A and B from global memory to a slice's ring.
struct Loader {
    int terms, rows, columns;  // from this thread's first elements to the ends
    int lda, ldb;
    bool vectors_a, vectors_b;
    const REAL *a, *b;
    REAL *target_a, *target_b;
    int a_row, a_term, b_row, stage = 0;

    __device__ Loader(int m, int n, const REAL *A, int lda, const REAL *B, int ldb, int first_row, int first_column,
                      int start, int end, REAL *ring)
        : lda(lda), ldb(ldb)
    {
        const int thread = threadIdx.x % THREADS, b_column = thread % B_ROW_THREADS * B_WIDTH;
        a_row = thread / (DEPTH / WIDTH), a_term = thread % (DEPTH / WIDTH) * WIDTH, b_row = thread / B_ROW_THREADS;
        a = A + (long long)(first_row + a_row) * lda + start + a_term;
        b = B + (long long)(start + b_row) * ldb + first_column + b_column;
        terms = end - start, rows = m - first_row - a_row, columns = n - first_column - b_column;
        vectors_a = lda % WIDTH == 0 && (size_t)A % 16 == 0;
        vectors_b = B_WIDTH == WIDTH && ldb % WIDTH == 0 && (size_t)B % 16 == 0;
        target_a = ring + a_row * A_PITCH + a_term;
        target_b = ring + ROWS * A_PITCH + b_row / WIDTH * B_ROWS + b_row % WIDTH * B_PITCH + b_column;
    }

    // Start the copies of the next stage as one commit group; elements past the ends are zero.
    __device__ void load()
    {
        if (terms > 0) {
            REAL *const to_a = target_a + stage, *const to_b = target_b + stage;
#pragma unroll
            for (int i = 0; i < ROWS; i += A_STEP)
                if (ROWS % A_STEP == 0 || a_row + i < ROWS) {
                    const int count = i < rows ? terms - a_term : 0;
                    if (vectors_a)
                        copy<WIDTH>(to_a + i * A_PITCH, a + (long long)i * lda, count);
                    else
#pragma unroll
                        for (int e = 0; e < WIDTH; ++e)
                            copy<1>(to_a + i * A_PITCH + e, a + (long long)i * lda + e, count - e);
                }
#pragma unroll
            for (int p = 0; p < DEPTH; p += B_STEP)
#pragma unroll
                for (int x = 0; x < COLUMNS; x += C_STEP)
                    if (DEPTH % B_STEP == 0 || b_row + p < DEPTH) {
                        const int count = b_row + p < terms ? columns - x : 0;
                        const int at = p / WIDTH * B_ROWS + p % WIDTH * B_PITCH + x;
                        if (vectors_b)
                            copy<WIDTH>(to_b + at, b + (long long)p * ldb + x, count);
                        else
#pragma unroll
                            for (int e = 0; e < B_WIDTH; ++e)
                                copy<1>(to_b + at + e, b + (long long)p * ldb + x + e, count - e);
                    }
        }
        a += SLICES * DEPTH;
        b += (long long)SLICES * DEPTH * ldb;
        terms -= SLICES * DEPTH;
        stage = stage == (STAGES - 1) * STAGE ? 0 : stage + STAGE;
        cp_async_commit_group();
    }
};

#if TENSOR

// Multiply: the sums of a warp by tensor cores. The large matrix gives their 16 rows, the small one their 8 columns.
// Terms and the rows or columns of C may be taken in any order, so a lane takes two neighbours at a time.
struct Sums {
    static constexpr int LARGE = (FEW_ROWS ? WARP_COLUMNS : WARP_ROWS) / 16;
    static constexpr int SMALL = (FEW_ROWS ? WARP_ROWS : WARP_COLUMNS) / 8;
    REAL of[LARGE][SMALL][4] = {};

    // Add the products of a stage; tile_a and tile_b are the warp's.
    __device__ void add(const REAL *tile_a, const REAL *tile_b)
    {
        const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
        for (int p = 0; p < DEPTH; p += 8) {
            const REAL *const a = tile_a + g * A_PITCH + p + 2 * t, *const b = tile_b + (p / 2 + t) * B_ROWS;
            REAL small[SMALL][2];
            if (FEW_ROWS)
#pragma unroll
                for (int s = 0; s < SMALL; ++s) {
                    const Vector terms = *(const Vector *)&a[s * 8 * A_PITCH];
                    small[s][0] = terms.of[0], small[s][1] = terms.of[1];
                }
            else
#pragma unroll
                for (int e = 0; e < 2; ++e)
                    if (SMALL == 2) {
                        const Vector both = *(const Vector *)&b[e * B_PITCH + g * 2];
                        small[0][e] = both.of[0], small[SMALL - 1][e] = both.of[1];
                    } else
                        small[0][e] = b[e * B_PITCH + g];
#pragma unroll
            for (int l = 0; l < LARGE; ++l) {
                const REAL *const first = FEW_ROWS ? &b[l * 16 + 2 * g] : &a[l * 16 * A_PITCH];
                const Vector one = *(const Vector *)first;
                const Vector other = *(const Vector *)(first + (FEW_ROWS ? B_PITCH : 8 * A_PITCH));
                const REAL large[4] = {one.of[0], FEW_ROWS ? one.of[1] : other.of[0],
                                       FEW_ROWS ? other.of[0] : one.of[1], other.of[1]};
#pragma unroll
                for (int s = 0; s < SMALL; ++s)
                    mma_m16n8k8_f64(of[l][s], large, small[s]);
            }
        }
    }

    // Store the sums to the warp's part of a tile of C.
    __device__ void store(REAL *tile)
    {
        const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
        for (int l = 0; l < LARGE; ++l)
#pragma unroll
            for (int s = 0; s < SMALL; ++s)
#pragma unroll
                for (int e = 0; e < 4; ++e)
                    if (FEW_ROWS)
                        tile[(s * 8 + 2 * t + e % 2) * COLUMNS + l * 16 + 2 * g + e / 2] = of[l][s][e];
                    else
                        tile[(l * 16 + g + e / 2 * 8) * COLUMNS + (2 * t + e % 2) * SMALL + s] = of[l][s][e];
    }
};

#else

// Add up N elements over lanes that differ in the bits of DISTANCE and below. Each step halves the elements of a lane.
// Return the index of the first remaining element.
template <int N, int DISTANCE> __device__ int reduce_lanes(REAL *sums)
{
    if constexpr (DISTANCE == 0)
        return 0;
    else if constexpr (N == 1) {
        sums[0] += __shfl_xor_sync(~0u, sums[0], DISTANCE);
        return reduce_lanes<1, DISTANCE / 2>(sums);
    } else {
        const bool upper = threadIdx.x & DISTANCE;
#pragma unroll
        for (int i = 0; i < N / 2; ++i) {
            const REAL kept = upper ? sums[N / 2 + i] : sums[i], given = upper ? sums[i] : sums[N / 2 + i];
            sums[i] = kept + __shfl_xor_sync(~0u, given, DISTANCE);
        }
        return (upper ? N / 2 : 0) + reduce_lanes<N / 2, DISTANCE / 2>(sums);
    }
}

// Multiply: the sums of a thread by FMA units.
struct Sums {
    static constexpr int ELEMENTS = WARP_ROWS * THREAD_COLUMNS;
    static constexpr int VECTORS = (THREAD_COLUMNS + WIDTH - 1) / WIDTH;  // of a lane, along a row
    REAL of[ELEMENTS] = {};

    // Column j of this thread in the warp's part of a tile.
    __device__ static int column(int j)
    {
        const int lane_column = threadIdx.x % 32 / LANE_TERMS;
        return THREAD_COLUMNS < WIDTH ? j : (j / WIDTH * (32 / LANE_TERMS) + lane_column) * WIDTH + j % WIDTH;
    }

    // Add the products of a stage; tile_a and tile_b are the warp's.
    __device__ void add(const REAL *tile_a, const REAL *tile_b)
    {
        const int lane_term = threadIdx.x % LANE_TERMS;
#pragma unroll
        for (int t = 0; t < DEPTH / WIDTH; t += LANE_TERMS) {
            Vector b[THREAD_COLUMNS];  // WIDTH terms of each column
#pragma unroll
            for (int v = 0; v < THREAD_COLUMNS; ++v) {
                const int at = THREAD_COLUMNS < WIDTH ? v * WIDTH : v / VECTORS * B_PITCH + column(v % VECTORS * WIDTH);
                b[v] = *(const Vector *)&tile_b[(t + lane_term) * B_ROWS + at];
            }
#pragma unroll
            for (int i = 0; i < WARP_ROWS; ++i) {
                const Vector a = *(const Vector *)&tile_a[i * A_PITCH + (t + lane_term) * WIDTH];
#pragma unroll
                for (int p = 0; p < WIDTH; ++p)
#pragma unroll
                    for (int j = 0; j < THREAD_COLUMNS; ++j) {
                        const int e = p * THREAD_COLUMNS + j;
                        of[i * THREAD_COLUMNS + j] += a.of[p] * b[e / WIDTH].of[e % WIDTH];
                    }
            }
        }
    }

    // Add up the sums over the lanes, and store them to the warp's part of a tile of C.
    __device__ void store(REAL *tile)
    {
        // After the additions a lane keeps KEPT sums, the same ones as its COPIES - 1 neighbours.
        constexpr int KEPT = ELEMENTS < LANE_TERMS ? 1 : ELEMENTS / LANE_TERMS;
        constexpr int COPIES = ELEMENTS < LANE_TERMS ? LANE_TERMS / ELEMENTS : 1;
        const int first = reduce_lanes<ELEMENTS, LANE_TERMS / 2>(of);
        if (threadIdx.x % COPIES == 0)
#pragma unroll
            for (int i = 0; i < KEPT; ++i)
                tile[(first + i) / THREAD_COLUMNS * COLUMNS + column((first + i) % THREAD_COLUMNS)] = of[i];
    }
};

#endif

// Wait for the threads of this slice.
__device__ void sync_slice()
{
    if (THREADS == 32)
        __syncwarp();
    else
        __syncthreads();
}

extern "C" __global__ void __cluster_dims__(1, 1, PARTS) __launch_bounds__(BLOCK, RESIDENT)
    matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    extern __shared__ __align__(128) unsigned char shared[];
    const int slice = threadIdx.x / THREADS, warp = threadIdx.x % THREADS / 32;
    const int y = warp / (COLUMNS / WARP_COLUMNS) * WARP_ROWS, x = warp % (COLUMNS / WARP_COLUMNS) * WARP_COLUMNS;
    const int first_row = blockIdx.y * ROWS, first_column = blockIdx.x * COLUMNS, rank = blockIdx.z;
    const int stages = (k + DEPTH - 1) / DEPTH;
    const int from = (long long)stages * rank / PARTS, to = (long long)stages * (rank + 1) / PARTS;
    REAL *const rings = (REAL *)shared, *const ring = rings + slice * RING;

    Loader loader(m, n, A, lda, B, ldb, first_row, first_column, (from + slice) * DEPTH, min(k, to * DEPTH), ring);
    for (int s = 0; s < STAGES - 1; ++s)
        loader.load();
    Sums sums;
    int stage = 0;
    for (int left = to - from - slice; left > 0; left -= SLICES) {
        cp_async_wait_group<STAGES - 2>();
        sync_slice();  // this stage has arrived for all threads, and all have read the previous one
        loader.load();
        sums.add(ring + stage + y * A_PITCH, ring + stage + ROWS * A_PITCH + x);
        stage = stage == (STAGES - 1) * STAGE ? 0 : stage + STAGE;
    }
    sync_slice();  // all threads have read the ring
    sums.store(ring + y * COLUMNS + x);

    // Each block finally adds up every PARTS-th part of the tile. C is read before the wait for the other blocks.
    constexpr int SHARE = (TILE + BLOCK * PARTS - 1) / (BLOCK * PARTS);
    REAL before[SHARE] = {};
    if (beta != 0)
#pragma unroll
        for (int i = 0; i < SHARE; ++i) {
            const int e = (i * PARTS + rank) * BLOCK + threadIdx.x;
            const int row = first_row + e / COLUMNS, column = first_column + e % COLUMNS;
            if (e < TILE && row < m && column < n)
                before[i] = C[(size_t)row * ldc + column];
        }
    __syncthreads();
    if (SLICES > 1)
#pragma unroll
        for (int e = threadIdx.x; e < TILE; e += BLOCK) {
            REAL total = rings[e];
#pragma unroll
            for (int g = 1; g < SLICES; ++g)
                total += rings[g * RING + e];
            rings[e] = total;
        }
    if (PARTS > 1) {
        barrier_cluster_arrive();
        barrier_cluster_wait();
    }
#pragma unroll
    for (int i = 0; i < SHARE; ++i) {
        const int e = (i * PARTS + rank) * BLOCK + threadIdx.x;
        const int row = first_row + e / COLUMNS, column = first_column + e % COLUMNS;
        if (e < TILE && row < m && column < n) {
            REAL part[PARTS] = {rings[e]};
            if (PARTS > 1)
#pragma unroll
                for (int p = 0; p < PARTS; ++p)
                    ld_shared_cluster(part[p], mapa(&rings[e], p));
#pragma unroll
            for (int p = 1; p < PARTS; ++p)
                part[0] += part[p];
            C[(size_t)row * ldc + column] = alpha * part[0] + beta * before[i];
        }
    }
    if (PARTS > 1) {  // no block ends before the others have read its sums
        barrier_cluster_arrive();
        barrier_cluster_wait();
    }
}
