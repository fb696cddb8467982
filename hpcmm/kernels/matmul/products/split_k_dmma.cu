// Matrix product, GPU rung: split_k for float64, with products on the tensor cores.
//
// As in split_k, the PARTS blocks of a cluster divide the terms of a tile, and so do the SLICES slices of each block.
// Slices add up their sums through shared memory, blocks through distributed shared memory, in a fixed order. If C has
// very few tiles, several clusters divide the terms (GROUPED), and the last one to finish adds up the sums of all in
// their order; no block waits for another cluster. Compared with tensor_core, the host chooses among many shapes of
// tiles, and each slice waits only for its own loads. C is loaded before the main loop if a thread has
// registers left.
//
// A warp computes WARP_ROWS x WARP_COLUMNS of the tile. It reads its operands 16 bytes at a time, twice as much as in
// tensor_core. So that these are neighbouring registers of an instruction, it computes the transpose of C: the
// instruction's first operand is the transpose of B, the second one that of A. The order of terms is free if it is the
// same in A and B: lane 4 g + t reads terms 2 t and 2 t + 1 of each 8. The order of columns is free if it is the same in
// B and C: two neighbouring columns of 16 are rows g and g + 8 of the first operand. Needs compute capability 9.0.
//
// hpcmm:
//   operation: matmul
//   shelf: product
//   change: tensor cores in float64, with the terms of a tile divided as in split_k
//   counterpart: tensor_core
//   dtypes: [float64]
//   architecture: sm_90

#include "matmul/division.cuh"
#include "matmul/prefetch.cuh"
#include "matmul/rasterize.cuh"
#include "ptx.cuh"

struct alignas(2 * sizeof(REAL)) Pair {
    REAL of[2];
};

__device__ inline void operator+=(Pair &sum, const Pair &other)
{
    sum.of[0] += other.of[0];
    sum.of[1] += other.of[1];
}

constexpr __device__ int common_divisor(int a, int b)
{
    return b == 0 ? a : common_divisor(b, a % b);
}

constexpr int THREADS = BLOCK / SLICES;          // threads of a slice
constexpr int STAGE = (ROWS + COLUMNS) * DEPTH;  // elements of a stage: A by groups of 8 terms, then rows of B
constexpr int MMA_ROWS = WARP_ROWS / 8, MMA_COLUMNS = WARP_COLUMNS / 16;   // a warp's tile in products of 8 x 16
constexpr int FRAGMENTS = MMA_ROWS * MMA_COLUMNS * 2;                      // pairs of neighbours in C per thread
constexpr int OWN_FRAGMENTS = FRAGMENTS / SLICES;                          // of these, added up by this thread
constexpr int SHARE = (OWN_FRAGMENTS + PARTS - 1) / PARTS;                 // of these, added up by this block
constexpr int PASS_FRAGMENTS = SHARE < 8 ? SHARE : 8;                      // of these, read from C at a time
constexpr int REGISTERS = 65536 / ((BLOCK + 127) / 128 * 128 * RESIDENT);  // that a thread may have
// Whether C is loaded before the main loop, so that nothing waits for it: if it and the sums leave half of the registers.
constexpr bool EARLY = SHARE <= PASS_FRAGMENTS && WARP_ROWS * WARP_COLUMNS / 16 + 4 * SHARE < REGISTERS / 2;
static_assert(ROWS * COLUMNS * 32 == THREADS * WARP_ROWS * WARP_COLUMNS, "a slice's warps cover the tile");
static_assert(DEPTH % STEP == 0 && STEP % 8 == 0 && WARP_ROWS % 8 == 0 && WARP_COLUMNS % 16 == 0, "whole products");
static_assert(FRAGMENTS % SLICES == 0 && (SLICES == 1 || STAGES * STAGE >= ROWS * COLUMNS),
              "the sums fit into the rings");

#if GROUPED
// Of several clusters that divide a tile: the sums of their blocks, and how many blocks of each rank have finished; 0
// between launches.
__device__ Pair pieces[MAX_PIECES][SHARE * BLOCK];
__device__ unsigned int done[MAX_PIECES];
#endif

// A lane's operands of a step of STEP terms.
struct Operands {
    REAL a[MMA_ROWS][STEP / 4], b[MMA_COLUMNS][STEP / 2];

    // `tile_a` and `tile_b` are the lane's first elements of the step.
    __device__ void load(const REAL *tile_a, const REAL *tile_b)
    {
#pragma unroll
        for (int s = 0; s < STEP / 8; ++s) {
#pragma unroll
            for (int i = 0; i < MMA_ROWS; ++i) {
                const Pair terms = *(const Pair *)(tile_a + s * ROWS * 8 + i * 8 * 8);
                a[i][2 * s] = terms.of[0];
                a[i][2 * s + 1] = terms.of[1];
            }
#pragma unroll
            for (int j = 0; j < MMA_COLUMNS; ++j)
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    const Pair columns = *(const Pair *)(tile_b + (s * 8 + e) * COLUMNS + j * 16);
                    b[j][4 * s + 2 * e] = columns.of[0];
                    b[j][4 * s + 2 * e + 1] = columns.of[1];
                }
        }
    }
};

template <int E> struct Tile {  // E: elements per asynchronous copy, 2 if all are aligned, else 1
    static constexpr int A_STEP = THREADS * E / DEPTH;                          // rows of A copied at once
    static constexpr int B_ROW_THREADS = common_divisor(THREADS, COLUMNS / E);  // threads that copy a row of B
    static constexpr int B_STEP = THREADS / B_ROW_THREADS;                      // rows of B copied at once
    static constexpr int C_STEP = B_ROW_THREADS * E;                            // columns of B copied at once
    static_assert(A_STEP <= ROWS && DEPTH % B_STEP == 0 && COLUMNS % C_STEP == 0, "copies cover a stage");
    static_assert(A_STEP % 2 == 0 && (B_STEP & B_STEP - 1) == 0 && C_STEP % 8 == 0, "as positions are computed below");

    REAL *ring;                // ring of this slice
    const REAL *a, *b;         // first elements of the next stage that this thread copies
    int lda, ldb;
    int terms, rows, columns;  // distances from there to the ends
    int a_term, b_row;         // their terms in the stage
    int to_a, to_b, b_pair;    // their positions in the stage, in elements; for B without the pair of columns
    int filled = 0, slot = 0;  // offsets of the stages to fill and to read next, in elements
    int x, y;                  // position of this warp's first element in the tile
    int a_lane, b_lane;        // offsets of this lane's first operands in a stage
    REAL sums[MMA_ROWS][MMA_COLUMNS][4] = {};

    static __device__ int slice()
    {
        return SLICES == 1 ? 0 : threadIdx.x / THREADS;
    }

    // The order of the pairs of columns in a row of B depends on the row, so that lanes that read the same columns of
    // different rows access different banks.
    static __device__ constexpr int swizzle(int row)
    {
        return row / 2 % 4;
    }

    // Go to this slice's first term, of terms `term` to `end`, of the tile at `row` and `column`.
    __device__ Tile(REAL *shared, const REAL *A, int lda, const REAL *B, int ldb, int m, int n, int row, int column,
                    int term, int end)
        : lda(lda), ldb(ldb)
    {
        const int thread = threadIdx.x % THREADS, lane = thread % 32, warp = thread / 32, g = lane / 4, t = lane % 4;
        ring = shared + slice() * STAGES * STAGE;
        y = warp / (COLUMNS / WARP_COLUMNS) * WARP_ROWS;
        x = warp % (COLUMNS / WARP_COLUMNS) * WARP_COLUMNS;
        a_lane = (y + g) * 8 + 2 * t;
        b_lane = ROWS * DEPTH + 2 * t * COLUMNS + x + (g / 2 + g % 2 * 4 ^ t) * 2;

        // Neighbouring threads copy 8 terms of two rows of A, then the next 8 terms of these rows: to different banks,
        // and from whole lines of memory.
        const int unit = thread % (8 / E), pair = thread / (16 / E), eight = pair % (DEPTH / 8);
        const int a_row = pair / (DEPTH / 8) * 2 + thread / (8 / E) % 2;
        a_term = eight * 8 + unit * E;
        to_a = eight * ROWS * 8 + a_row * 8 + unit * E;
        b_row = thread / B_ROW_THREADS;
        const int b_column = thread % B_ROW_THREADS * E;
        b_pair = b_column / 2 % 4 ^ swizzle(b_row);
        to_b = ROWS * DEPTH + b_row * COLUMNS + b_column / 8 * 8 + b_column % 2;

        term += slice() * DEPTH;
        a = A + (size_t)(row + a_row) * lda + term + a_term;
        b = B + (size_t)(term + b_row) * ldb + column + b_column;
        terms = end - term, rows = m - row - a_row, columns = n - column - b_column;
    }

    // Start the copies of the next stage as one commit group. Elements past the ends are zero. Only one stage past the
    // last term is filled, because the others are never read.
    __device__ void fetch()
    {
        if (terms > -SLICES * DEPTH) {
#pragma unroll
            for (int i = 0; i < ROWS; i += A_STEP) {
                if (ROWS % A_STEP != 0 && i > ROWS - A_STEP && to_a % (ROWS * 8) / 8 >= ROWS - i)
                    continue;  // this thread's row, which follows from to_a, is behind the tile
                const bool valid = i < rows && a_term < terms;
                cp_async<8 * E>(ring + filled + to_a + i * 8, a + (long long)i * lda, valid ? 8 * E : 0);
            }
#pragma unroll
            for (int p = 0; p < DEPTH; p += B_STEP)
#pragma unroll
                for (int c = 0; c < COLUMNS; c += C_STEP) {
                    const bool valid = c < columns && b_row + p < terms;
                    cp_async<8 * E>(ring + filled + to_b + (b_pair ^ swizzle(p)) * 2 + p * COLUMNS + c,
                                    b + (long long)p * ldb + c, valid ? 8 * E : 0);
                }
        }
        a += SLICES * DEPTH;
        b += (long long)SLICES * DEPTH * ldb;
        terms -= SLICES * DEPTH;
        filled = filled == (STAGES - 1) * STAGE ? 0 : filled + STAGE;
        cp_async_commit_group();
    }

    __device__ void sync_slice()
    {
        if (THREADS == 32)
            __syncwarp();
        else if (SLICES == 1)
            __syncthreads();
        else
            barrier_sync(1 + slice(), THREADS);
    }

    // Wait until the next stage has arrived for all threads of the slice, and all have read the previous one.
    __device__ void enter_stage()
    {
        cp_async_wait_group<STAGES - 2>();
        sync_slice();
    }

    __device__ void load(Operands &operands, int p) const
    {
        operands.load(ring + slot + a_lane + p * ROWS, ring + slot + b_lane + p * COLUMNS);
    }

    // Add the products of a step, in serpentine order: consecutive products share an operand.
    __device__ void multiply(const Operands &operands)
    {
#pragma unroll
        for (int j = 0; j < MMA_COLUMNS; ++j)
#pragma unroll
            for (int i = 0; i < MMA_ROWS; ++i) {
                const int r = j % 2 ? MMA_ROWS - 1 - i : i;
#if STEP == 16
                mma_m16n8k16_f64(sums[r][j], operands.b[j], operands.a[r]);
#else
                mma_m16n8k8_f64(sums[r][j], operands.b[j], operands.a[r]);
#endif
            }
    }

    // Multiply this slice's share of `stages` stages. With AHEAD, operands are loaded a step before they are used.
    // `first_fetched` is called after the copies of the first stages have started, `all_fetched` after all copies have.
    template <class First, class All> __device__ void mainloop(int stages, First first_fetched, All all_fetched)
    {
#pragma unroll 1
        for (int s = 0; s < STAGES - 1; ++s)
            fetch();
        first_fetched();
        enter_stage();
        Operands operands[2];
        if (AHEAD)
            load(operands[0], 0);
        constexpr int STEPS = DEPTH / STEP, UNROLL = AHEAD && STEPS % 2 ? 2 : 1;
        int left = (stages - slice() + SLICES - 1) / SLICES;
        const int ahead = min(left, STAGES - 1);
#pragma unroll 1
        while (left > 0) {
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) {
                if (left == ahead)
                    all_fetched();
                fetch();
#pragma unroll
                for (int s = 0; s < STEPS; ++s) {
                    const int now = AHEAD ? (u * STEPS + s) % 2 : 0;
                    if (!AHEAD)
                        load(operands[0], s * STEP);
                    if (s == STEPS - 1) {
                        enter_stage();
                        slot = slot == (STAGES - 1) * STAGE ? 0 : slot + STAGE;
                    }
                    if (AHEAD)
                        load(operands[1 - now], (s + 1) % STEPS * STEP);
                    multiply(operands[now]);
                }
                if (--left == 0)
                    break;
            }
        }
        cp_async_wait_group<0>();
        sync_slice();  // all threads have read the ring
    }

    // Return fragment f.
    __device__ Pair pair(int f) const
    {
        const int i = f / (2 * MMA_COLUMNS), j = f / 2 % MMA_COLUMNS;
        return {sums[i][j][f % 2], sums[i][j][f % 2 + 2]};
    }

    // Add up the sums of all slices, in order. The threads that compute the same elements in all slices divide the
    // fragments: the thread of slice s adds up OWN_FRAGMENTS of them, from s * OWN_FRAGMENTS on.
    __device__ void reduce_slices(Pair (&total)[OWN_FRAGMENTS]) const
    {
        if (SLICES == 1) {
#pragma unroll
            for (int f = 0; f < OWN_FRAGMENTS; ++f)
                total[f] = pair(f);
            return;
        }
        Pair *const mine = (Pair *)ring + threadIdx.x % THREADS;
#pragma unroll
        for (int f = 0; f < FRAGMENTS; ++f)
            mine[f * THREADS] = pair(f);
        __syncthreads();
        const Pair *const first = mine + slice() * (OWN_FRAGMENTS * THREADS - STAGES * STAGE / 2);
#pragma unroll
        for (int f = 0; f < OWN_FRAGMENTS; ++f) {
            total[f] = first[f * THREADS];
#pragma unroll
            for (int s = 1; s < SLICES; ++s)
                total[f] += first[f * THREADS + s * (STAGES * STAGE / 2)];
        }
    }

    // Row and column of the f-th fragment that this thread adds up.
    __device__ int row_of(int f) const
    {
        const int fragment = slice() * OWN_FRAGMENTS + f;
        return y + fragment / (2 * MMA_COLUMNS) * 8 + threadIdx.x % 4 * 2 + fragment % 2;
    }
    __device__ int column_of(int f) const
    {
        const int fragment = slice() * OWN_FRAGMENTS + f;
        const int g = threadIdx.x % 32 / 4;
        return x + fragment / 2 % MMA_COLUMNS * 16 + (g / 2 + g % 2 * 4) * 2;
    }
};

// Access to C. PAIRS: its pairs of elements are aligned, and none is divided by an edge. If not, lanes g and g ^ 1
// exchange an element of their pairs, so that the eight lanes of a row access neighbours: half as many sectors of the
// L2 cache. Fragments are then elements g and 8 + g of 16 columns.
template <bool PAIRS> struct Result {
    REAL *C;
    int m, n, ldc;

    // Call `access` with the addresses of the elements, or of the pair, of the fragment at `row` and `column`, and
    // whether they are in the first `rows` rows of C.
    template <class Access> __device__ void each(int row, int column, int rows, Access access) const
    {
        const int g = threadIdx.x % 32 / 4, first = PAIRS ? column : column - (g / 2 + g % 2 * 4) * 2 + g;
#pragma unroll
        for (int e = 0; e < (PAIRS ? 1 : 2); ++e)
            access(e, C + (size_t)row * ldc + first + 8 * e, row < rows && first + 8 * e < n);
    }
    __device__ Pair load(int row, int column, bool reads) const
    {
        Pair v = {};
        each(row, column, reads ? m : 0, [&](int e, const REAL *at, bool exists) {
            if (PAIRS && exists)
                v = *(const Pair *)at;
            else if (exists)
                v.of[e] = *at;
        });
        return v;
    }
    // Store alpha sum + beta C; `before` is from `load`. Called by all lanes of a warp. The products are not in the
    // branch of the store: a warp waits for the pipe of the tensor cores each time that it comes to some.
    __device__ void store(int row, int column, REAL alpha, Pair sum, REAL beta, const Pair &before) const
    {
        if (!PAIRS) {
            const bool odd = threadIdx.x & 4;
            const REAL other = __shfl_xor_sync(~0u, odd ? sum.of[0] : sum.of[1], 4);
            sum = {odd ? other : sum.of[0], odd ? sum.of[1] : other};
        }
#pragma unroll
        for (int e = 0; e < 2; ++e) {
            sum.of[e] = alpha * sum.of[e] + beta * before.of[e];
            mov(sum.of[e]);
        }
        each(row, column, m, [&](int e, REAL *at, bool exists) {
            if (PAIRS && exists)
                *(Pair *)at = sum;
            else if (exists)
                *at = sum.of[e];
        });
    }
};

// Load PASS_FRAGMENTS fragments of C, from number `first` on. The block of rank `rank` adds up fragments rank, rank +
// PARTS, ... of each thread, and only these count. `reads`: beta is not 0.
template <bool PAIRS, int E>
__device__ void load(Pair (&before)[PASS_FRAGMENTS], int first, const Tile<E> &tile, int rank, int first_row,
                     int first_column, bool reads, const Result<PAIRS> &result)
{
#pragma unroll
    for (int i = 0; i < PASS_FRAGMENTS; ++i)
        if ((first + i) * PARTS + rank < OWN_FRAGMENTS)
            before[i] = result.load(first_row + tile.row_of((first + i) * PARTS + rank),
                                    first_column + tile.column_of((first + i) * PARTS + rank), reads);
}

// Add up the sums of the slices and of the cluster's blocks, and store C. `before` has its first fragments.
template <bool PAIRS, int E>
__device__ void finish(const Tile<E> &tile, REAL *shared, int rank, int first_row, int first_column, REAL alpha,
                       REAL beta, bool reads, Pair (&before)[PASS_FRAGMENTS], const Result<PAIRS> &result)
{
    Pair sums[OWN_FRAGMENTS];
    tile.reduce_slices(sums);
    const Pair *exchange = nullptr;  // [PARTS][SHARE][BLOCK]
    if (PARTS > 1) {
        Pair *const own = (Pair *)(shared + SLICES * STAGES * STAGE) + threadIdx.x;
        barrier_cluster_wait();  // all blocks have started, so that their shared memory can be written
#pragma unroll
        for (int f = 0; f < OWN_FRAGMENTS; ++f)
            st_shared_cluster_v4(mapa(own + (rank * SHARE + f / PARTS) * BLOCK, f % PARTS), *(const float4 *)&sums[f]);
        barrier_cluster_arrive();
        barrier_cluster_wait();
        exchange = own;
    }
    const auto sum_of_cluster = [&](int i) {  // of this thread's i-th fragment
        if (PARTS == 1)
            return sums[i < OWN_FRAGMENTS ? i : 0];
        Pair total = exchange[i * BLOCK];
#pragma unroll
        for (int p = 1; p < PARTS; ++p)
            total += exchange[(p * SHARE + i) * BLOCK];
        return total;
    };
#if GROUPED
    const int groups = gridDim.z / PARTS, number = blockIdx.y * gridDim.x + blockIdx.x;  // of the tile
    const auto piece = [&](int group, int i) -> Pair & {
        return pieces[(number * groups + group) * PARTS + rank][i * BLOCK + threadIdx.x];
    };
    if (groups > 1) {
#pragma unroll
        for (int i = 0; i < SHARE; ++i)
            if (i * PARTS + rank < OWN_FRAGMENTS)
                piece(blockIdx.z / PARTS, i) = sum_of_cluster(i);
        if (!is_last(done, {number * PARTS + rank, 0, groups - 1}))
            return;
    }
#endif
#pragma unroll
    for (int first = 0; first < SHARE; first += PASS_FRAGMENTS) {
        if (first > 0)
            load(before, first, tile, rank, first_row, first_column, reads, result);
#pragma unroll
        for (int i = 0; i < PASS_FRAGMENTS; ++i) {
            const int f = (first + i) * PARTS + rank;
            if (first + i >= SHARE || f >= OWN_FRAGMENTS)
                continue;
#if GROUPED
            Pair total = {};
            if (groups == 1)
                total = sum_of_cluster(first + i);
            else
#pragma unroll 4
                for (int group = 0; group < groups; ++group)
                    total += piece(group, first + i);
#else
            const Pair total = sum_of_cluster(first + i);
#endif
            result.store(first_row + tile.row_of(f), first_column + tile.column_of(f), alpha, total, beta, before[i]);
        }
    }
}

template <int E>
__device__ void product(REAL *shared, int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb,
                        REAL beta, REAL *C, int ldc)
{
    if (PARTS > 1)
        barrier_cluster_arrive();  // this block has started
    int2 at = make_int2(blockIdx.x, blockIdx.y);
    if (gridDim.y > GROUP_ROWS && gridDim.x > GROUP_ROWS)
        at = rasterize(blockIdx.y * gridDim.x + blockIdx.x, gridDim.y, gridDim.x);
    const int part = blockIdx.z, parts = GROUPED ? gridDim.z : PARTS, rank = GROUPED ? part % PARTS : part;
    const int first_row = at.y * ROWS, first_column = at.x * COLUMNS, stages = (k + DEPTH - 1) / DEPTH;
    const int from = (long long)stages * part / parts, to = (long long)stages * (part + 1) / parts;
    Tile<E> tile(shared, A, lda, B, ldb, m, n, first_row, first_column, from * DEPTH, min(k, to * DEPTH));
    const bool reads = __double_as_longlong(beta) << 1 != 0;  // beta != 0, without a wait for the pipe of float64
    const auto with_access = [&](const auto &use) {
        if ((ldc | n) % 2 == 0 && (size_t)C % sizeof(Pair) == 0)
            use(Result<true>{C, m, n, ldc});
        else
            use(Result<false>{C, m, n, ldc});
    };
    Pair before[PASS_FRAGMENTS] = {};
    const auto load_first = [&](const auto &result) {
        load(before, 0, tile, rank, first_row, first_column, reads, result);
    };
    const auto first_fetched = [&] {
        if (EARLY)
            with_access(load_first);
    };
    const auto all_fetched = [&] {
        if (reads && SHARE > PASS_FRAGMENTS)  // else all of C is loaded at once, and a prefetch takes longer
            prefetch_tile(C, ldc, m, n, first_row, first_column, ROWS, threadIdx.x, BLOCK);
    };
    tile.mainloop(to - from, first_fetched, all_fetched);
    with_access([&](const auto &result) {
        if (!EARLY)  // before the sums of others arrive
            load_first(result);
        finish(tile, shared, rank, first_row, first_column, alpha, beta, reads, before, result);
    });
}

extern "C" __global__ void __cluster_dims__(1, 1, PARTS) __launch_bounds__(BLOCK, RESIDENT)
    matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    extern __shared__ __align__(128) REAL shared[];
    // The code of the first branch is the first: a cold kernel waits for each line of its code after 64 KiB.
    if (WIDTH > 1 && !((lda | ldb | n | k) % 2 == 0 && ((size_t)A | (size_t)B) % 16 == 0))
        product<1>(shared, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc);
    else
        product<WIDTH>(shared, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc);
}
