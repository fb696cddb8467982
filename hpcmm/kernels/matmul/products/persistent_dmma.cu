// Matrix product, GPU rung for float64: warps that load by TMA, and teams of warps that only multiply.
//
// Compared with stream_k_dmma, producers copy the tiles of A and B by TMA, and the consumers compute no addresses of
// global memory and share no barrier: each warp waits only for the stage that it reads. Blocks are persistent, with one
// per SM. The consumers form TEAMS teams. Each team has tiles of C of its own, and a ring of stages that a producer of
// its own fills. Teams with several tiles begin one after the other. So while one team writes a tile, the others keep
// the tensor cores busy. More teams also share out C more evenly. The host picks the tile by the shape. Smaller tiles per
// warp would read each operand more often. So the warps of a small tile form SLICES slices: each slice covers the whole
// tile, the slices take turns at the stages, and they add up their sums in shared memory. A product with about one tile
// for each SM has a single team of two slices.
//
// A lane reads its operands 16 bytes at a time. For these to be neighbouring registers of an instruction, the rung
// computes the transpose of C: the instruction's first operand is the transpose of B, the second one that of A. The
// order of terms is free if it is the same in A and B: lane 4 g + t reads terms 2 t and 2 t + 1 of each 8. So is the
// order of columns in B and C: 2 g and 2 g + 1 of each 16 are rows g and g + 8 of the first operand. And that of rows
// in A and C: g stands for row g / 2 + g % 2 * 4 of each 8, so that with TMA's swizzle lanes that read at the same time
// access different banks. Runs on compute capability 9.0 only. Limit: the power limit for large products. Rows that TMA
// cannot take are copied by another launch before, or by the producers, element by element.
//
// hpcmm:
//   operation: matmul
//   shelf: product
//   change: >-
//     float64 on tensor cores: teams of warps that each have tiles and a producer of their own, loaded by TMA
//   counterpart: tensor_core
//   dtypes: [float64]
//   architecture: sm_90a

#include "matmul/prefetch.cuh"
#include "matmul/rasterize.cuh"
#include "matmul/swizzled_rows.cuh"
#include "ptx.cuh"
#if COPIED
#include "matmul/whole_rows.cuh"
#endif

struct alignas(2 * sizeof(REAL)) Pair {
    REAL of[2];
};

constexpr int I = WARP_ROWS / 8, J = WARP_COLUMNS / 16;  // products in a warp's tile, of 8 rows and 16 columns of C
constexpr int ROW_WARPS = COLUMNS / WARP_COLUMNS;                              // warps side by side
constexpr int SLICE_WARPS = ROWS / WARP_ROWS * ROW_WARPS, TEAM_WARPS = SLICES * SLICE_WARPS;
constexpr int WARPS = TEAMS * TEAM_WARPS;
constexpr int PRODUCERS = 4 / TEAMS * 32;  // threads that load for a team
constexpr int BOX_COLUMNS = ROW_BYTES / sizeof(REAL), BOX_BYTES = DEPTH * ROW_BYTES;  // of a box of B
constexpr int BOXES = COLUMNS / BOX_COLUMNS, A_BYTES = ROWS * ROW_BYTES;
constexpr int STAGE_BYTES = A_BYTES + BOXES * BOX_BYTES, RING_BYTES = STAGES * STAGE_BYTES;
constexpr int EXCHANGE_BYTES = (SLICES - 1) * ROWS * COLUMNS * sizeof(REAL);  // of the sums of a team's slices
constexpr int BUFFERS = J > 2 ? 2 : 4;  // rows of C that a lane loads before it stores the first one
constexpr int MOST_HEAD_START = 8;  // stages that a team multiplies before the next one begins, at most
constexpr bool MAY_TAKE_TURNS = TEAMS > 1 && SLICES == 1;  // teams of several slices have small tiles
constexpr int EARLY = STAGES < 3 ? STAGES : 3;  // more would delay the other threads, which wait for the one that copies
constexpr int LAG = 2;  // stages whose copies are under way if TMA cannot take the matrices
// Whether the loads of the next operands are between the last products of a stage or after them. The compiler decides
// this by the place of the branch in the loop over the stages, because it moves instructions only within a basic block.
// On an H100, between them is up to 6 % faster with slices or three teams; after them is up to 13 % faster with two
// teams without slices.
constexpr bool LOADS_BETWEEN = SLICES > 1 || TEAMS > 2;
static_assert(DEPTH == BOX_COLUMNS && BLOCK == 128 + 32 * WARPS && WARPS % 4 == 0, "as the roles are divided");
static_assert(ROWS % WARP_ROWS == 0 && COLUMNS % WARP_COLUMNS == 0, "whole parts");
static_assert(WARP_ROWS % 8 == 0 && WARP_COLUMNS % 16 == 0 && DEPTH % 8 == 0, "whole products");
static_assert(STAGES % SLICES == 0, "one slice reads all stages at a place, and sees every phase of its mbarriers");
static_assert(STAGES > LAG, "an arrival is not of the stage that is filled");

// A ring of stages: a box of A, ROWS x DEPTH, and COLUMNS / 16 boxes of B, DEPTH x 16. Stages are numbered from 0 on.
struct Ring {
    unsigned char *stages;
    unsigned long long *full, *empty;  // mbarriers: the stage has arrived; all warps of a slice have read it
    unsigned number;                   // of the current stage, and its place in the ring
    int place, parity = 0;

    __device__ Ring(unsigned char *stages, unsigned char *mbarriers, int first)
        : stages(stages), full((unsigned long long *)mbarriers), empty(full + STAGES), number(first), place(first)
    {
    }
    __device__ void advance(int by)
    {
        number += by;
        place += by;
        if (place >= STAGES) {
            place -= STAGES;
            parity ^= 1;
        }
    }
};

// A and B, whose tiles the producer copies.
struct Operands {
    int m, n, k, lda, ldb;
    const REAL *A, *B;
};

// Start the copies of a stage of single elements, by PRODUCERS threads, where TMA does not take rows. Elements outside
// the matrices are zero.
__device__ void copy_stage(unsigned char *stage, const Operands &from, int row, int column, int start)
{
    const int thread = threadIdx.x % PRODUCERS;
    const auto copy = [&](unsigned char *box, int y, int x, const REAL *source, bool inside) {
        REAL *const target = (REAL *)chunk_of(box, y, x / 2) + x % 2;
        cp_async<sizeof(REAL)>(target, inside ? source : from.A, inside ? sizeof(REAL) : 0);
    };
    const int term = thread % DEPTH;
    const REAL *a = from.A + (size_t)(row + thread / DEPTH) * from.lda + start + term;
#pragma unroll 2
    for (int y = thread / DEPTH; y < ROWS; y += PRODUCERS / DEPTH, a += (size_t)(PRODUCERS / DEPTH) * from.lda)
        copy(stage, y, term, a, row + y < from.m && start + term < from.k);
#pragma unroll 2
    for (int i = thread; i < DEPTH * COLUMNS; i += PRODUCERS) {
        const int p = i / COLUMNS, x = i % COLUMNS;
        copy(stage + A_BYTES + x / BOX_COLUMNS * BOX_BYTES, p, x % BOX_COLUMNS,
             from.B + (size_t)(start + p) * from.ldb + column + x, start + p < from.k && column + x < from.n);
    }
}

// The part of a warp: its slice, its first row and column of the tile, and the offsets of a lane's first operands of A
// and B in a stage, in bytes.
struct Warp {
    int slice, y, x, a, b;

    __device__ Warp(int warp, int slice) : slice(slice)
    {
        const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, row = g / 2 + g % 2 * 4;
        y = warp % SLICE_WARPS / ROW_WARPS * WARP_ROWS;
        x = warp % ROW_WARPS * WARP_COLUMNS;
        a = (y + row) * ROW_BYTES + (t ^ row) * CHUNK_BYTES;
        b = A_BYTES + x / BOX_COLUMNS * BOX_BYTES + 2 * t * ROW_BYTES + (g ^ 2 * t) * CHUNK_BYTES;
    }
};

// A lane's operands of 8 terms: in `a` two terms of a row of A, in `b` two columns of two rows of B.
struct Fragments {
    REAL a[I][2], b[J][4];

    // Load the operands of A in row i of the warp's products, for terms 8 s to 8 s + 7 of a stage.
    __device__ void load_a(const unsigned char *stage, const Warp &warp, int s, int i)
    {
        const Pair terms = *(const Pair *)(stage + (warp.a ^ 4 * s * CHUNK_BYTES) + i * 8 * ROW_BYTES);
        a[i][0] = terms.of[0];
        a[i][1] = terms.of[1];
    }
    // Load the operands of B in column j of the warp's products, for the same terms.
    __device__ void load_b(const unsigned char *stage, const Warp &warp, int s, int j)
    {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
            const int at = (warp.b ^ e * CHUNK_BYTES) + j * BOX_BYTES + (8 * s + e) * ROW_BYTES;
            const Pair columns = *(const Pair *)(stage + at);
            b[j][2 * e] = columns.of[0];
            b[j][2 * e + 1] = columns.of[1];
        }
    }
};

// A lane has 2 I rows of C: t and t + 4 of each 8. Return its two neighbours of product j in row r of them.
__device__ Pair pair_of(const REAL (&sums)[I][J][4], int r, int j)
{
    return {sums[r / 2][j][r % 2], sums[r / 2][j][r % 2 + 2]};
}

// Multiply the slice's next `left` stages. After the last product that reads an operand, its registers are loaded for
// the next 8 terms, while the remaining products of the current 8 terms are computed.
__device__ void multiply_stages(REAL (&sums)[I][J][4], Ring &ring, const Warp &warp, int left)
{
    if (left <= 0)
        return;
    Fragments with;
    const unsigned char *stage;
    const auto enter = [&] {
        mbarrier_wait(&ring.full[ring.place], ring.parity);
        stage = ring.stages + ring.place * STAGE_BYTES;
    };
    const auto leave = [&] {
        fence_proxy_async();  // the loads end before TMA overwrites the stage: an arrival does not wait for them
        __syncwarp();         // all lanes have read it
        if (threadIdx.x % 32 == 0)
            mbarrier_arrive(&ring.empty[ring.place]);
        ring.advance(SLICES);
    };
    const auto multiply_column = [&](int j) {
#pragma unroll
        for (int i = 0; i < I; ++i)
            mma_m16n8k8_f64(sums[i][j], with.b[j], with.a[i]);
    };
    // Multiply the last column, and load the operands of group s.
    const auto next_group = [&](int s) {
#pragma unroll
        for (int j = 0; j < J - 1; ++j)
            with.load_b(stage, warp, s, j);
#pragma unroll
        for (int i = 0; i < I; ++i) {
            mma_m16n8k8_f64(sums[i][J - 1], with.b[J - 1], with.a[i]);
            with.load_a(stage, warp, s, i);
        }
        with.load_b(stage, warp, s, J - 1);
    };
    const auto multiply_stage = [&] {  // but for the last column of its last group
#pragma unroll
        for (int s = 0; s < DEPTH / 8; ++s) {
            if (s > 0)
                next_group(s);
#pragma unroll
            for (int j = 0; j < J - 1; ++j)
                multiply_column(j);
        }
        leave();
    };
    enter();
#pragma unroll
    for (int j = 0; j < J; ++j)
        with.load_b(stage, warp, 0, j);
#pragma unroll
    for (int i = 0; i < I; ++i)
        with.load_a(stage, warp, 0, i);
    if (LOADS_BETWEEN) {
        multiply_stage();
#pragma unroll 1
        while (--left > 0) {
            enter();
            next_group(0);
            multiply_stage();
        }
    } else
#pragma unroll 1
        while (true) {
            multiply_stage();
            if (--left == 0)
                break;
            enter();
            next_group(0);
        }
    multiply_column(J - 1);
}

// Epilogue: C = alpha sums + beta C for the tile at `first_row` and `first_column`. Of each SLICES rows of a lane, every
// slice adds up the sums of one, which go through `exchange`. `reads`: beta is not 0, so C is read. Stores and loads are
// the only conditional instructions. So the compiler starts many loads at a time, and has the products with alpha and
// beta of several rows follow each other: each time that a warp comes to such a product, it waits for the pipe, which
// the tensor cores share. PAIRS: pairs of C are aligned, and no edge divides one. If not, lanes g and g ^ 4 exchange an
// element of their pairs, so that the eight lanes of a row access neighbours: half as many sectors of the L2 cache.
template <bool PAIRS>
__device__ void store_tile(const REAL (&sums)[I][J][4], const Warp &warp, Pair *exchange, int m, int n, REAL alpha,
                           REAL beta, bool reads, REAL *C, int ldc, int first_row, int first_column, int team)
{
    constexpr int THREADS = SLICE_WARPS * 32, ACCESSES = PAIRS ? 1 : 2;  // of a pair
    Pair *const own = exchange + (threadIdx.x - 128) % THREADS;
    const int slice = SLICES > 1 ? warp.slice : 0;
    const int g = threadIdx.x % 32 / 4, y = first_row + warp.y + threadIdx.x % 4;
    const int x = first_column + warp.x + (PAIRS ? 2 * g : g % 4 * 2 + g / 4);
    // Call `access` with each pair j of row `part`, or element e of it, its address, and whether it is in the first
    // `rows` rows of C.
    const auto each = [&](int part, int rows, const auto &access) {
        const int row = y + part / 2 * 8 + part % 2 * 4;
        const bool exists = row < rows && (2 * I % SLICES == 0 || part < 2 * I);
        REAL *const from = C + (size_t)row * ldc;
#pragma unroll
        for (int j = 0; j < J; ++j)
#pragma unroll
            for (int e = 0; e < ACCESSES; ++e)
                access(j, e, from + x + j * 16 + 8 * e, exists && x + j * 16 + 8 * e < n);
    };
    Pair buffers[BUFFERS][J] = {};  // of rows of C, which are loaded BUFFERS - 1 rows ahead
    const auto load = [&](int first_part) {
        Pair(&before)[J] = buffers[first_part / SLICES % BUFFERS];
        each(first_part + slice, reads ? m : 0, [&](int j, int e, const REAL *at, bool exists) {
            if (exists && PAIRS)
                before[j] = *(const Pair *)at;
            else if (exists)
                before[j].of[e] = *at;
        });
    };
#pragma unroll
    for (int part = 0; part < min((BUFFERS - 1) * SLICES, 2 * I); part += SLICES)
        load(part);
    if (SLICES > 1) {
        barrier_sync(1 + team, TEAM_WARPS * 32);  // the sums of the previous tile have been read
#pragma unroll
        for (int r = 0; r < 2 * I; ++r)
#pragma unroll
            for (int j = 0; j < J; ++j) {
                const int owner = r % SLICES;
                const Pair sum = pair_of(sums, r, j);
                if (warp.slice != owner)
                    own[((r * J + j) * (SLICES - 1) + warp.slice - (warp.slice > owner)) * THREADS] = sum;
            }
        barrier_sync(1 + team, TEAM_WARPS * 32);
    }
#pragma unroll
    for (int part = 0; part < 2 * I; part += SLICES) {
        Pair(&before)[J] = buffers[part / SLICES % BUFFERS];
        if (part + (BUFFERS - 1) * SLICES < 2 * I)
            load(part + (BUFFERS - 1) * SLICES);
        Pair results[J];
#pragma unroll
        for (int j = 0; j < J; ++j) {
            Pair sum = pair_of(sums, part, j);
#pragma unroll
            for (int s = 1; s < SLICES; ++s) {
                const Pair mine = pair_of(sums, min(part + s, 2 * I - 1), j);
                sum = {warp.slice == s ? mine.of[0] : sum.of[0], warp.slice == s ? mine.of[1] : sum.of[1]};
            }
#pragma unroll
            for (int s = 0; s < SLICES - 1; ++s) {
                const Pair other = own[((min(part + slice, 2 * I - 1) * J + j) * (SLICES - 1) + s) * THREADS];
                sum.of[0] += other.of[0];
                sum.of[1] += other.of[1];
            }
            if (!PAIRS) {
                const REAL other = __shfl_xor_sync(~0u, g < 4 ? sum.of[1] : sum.of[0], 16);
                sum = {g < 4 ? sum.of[0] : other, g < 4 ? other : sum.of[1]};
            }
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                results[j].of[e] = fma(beta, before[j].of[e], alpha * sum.of[e]);
                mov(results[j].of[e]);  // here, and not in a branch for the store
            }
        }
        each(part + slice, m, [&](int j, int e, REAL *at, bool exists) {
            if (exists && PAIRS)
                *(Pair *)at = results[j];
            else if (exists)
                *at = results[j].of[e];
        });
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK, 1)
    matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc,
           const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    // The shuffle tells the compiler that all threads of a warp have the same number, and thereby the same team and slice.
    // A producer then has its addresses in uniform registers, from where TMA takes them.
    const int warp_of_block = __shfl_sync(~0u, threadIdx.x / 32, 0);
    const bool produces = warp_of_block < 4;
    const int number = warp_of_block - (produces ? 0 : 4);  // of the warp, among the producers or the consumers
    const int warp_number = number % TEAM_WARPS;
    const int team = produces ? number / (PRODUCERS / 32) : number / TEAM_WARPS;  // no division at run time
    const int slice = SLICES == 1 || produces ? 0 : warp_number / SLICE_WARPS;
    unsigned char *const exchange = shared + TEAMS * RING_BYTES + team * EXCHANGE_BYTES;
    unsigned char *const mbarriers = shared + TEAMS * (RING_BYTES + EXCHANGE_BYTES) + team * STAGES * 16;
    Ring ring(shared + team * RING_BYTES, mbarriers, slice);
    unsigned long long *const begins = (unsigned long long *)(mbarriers + (TEAMS - team) * STAGES * 16);  // of teams
    const bool by_tma = (lda | ldb) % 2 == 0 && ((size_t)A | (size_t)B) % 16 == 0;
    const bool loads = produces && team < TEAMS, elected = loads && threadIdx.x % PRODUCERS == 0;
    const int tile_rows = (m + ROWS - 1) / ROWS, tile_columns = (n + COLUMNS - 1) / COLUMNS;
    const int tiles = tile_rows * tile_columns, steps = (k + DEPTH - 1) / DEPTH;
    const int first = blockIdx.x + team * gridDim.x, stride = TEAMS * gridDim.x;  // tiles of this team
    // A team begins when the one before has multiplied some stages. If all began at once, they would read and write C at the
    // same time, in each round, and the tensor cores would be idle meanwhile.
    const bool take_turns = MAY_TAKE_TURNS && tiles > TEAMS * gridDim.x;
    const auto load_by_tma = [&](int place, int row, int column, int start) {
        unsigned char *const a = ring.stages + place * STAGE_BYTES;
        unsigned long long *const full = &ring.full[place];
        mbarrier_arrive_expect_tx(full, STAGE_BYTES);
        cp_async_bulk_tensor_shared_global(a, map_a, start, row, full);
#pragma unroll
        for (int q = 0; q < BOXES; ++q) {
            unsigned char *const b = a + A_BYTES + q * BOX_BYTES;
            cp_async_bulk_tensor_shared_global(b, map_b, column + q * BOX_COLUMNS, start, full);
        }
    };
    // Stages that one thread copies before the other threads have started: not of teams that wait for the one before
    const int early = by_tma && first < tiles && !(take_turns && team > 0) ? min(steps, EARLY) : 0;
    if (elected) {
        prefetch_tensormap(map_a);
        prefetch_tensormap(map_b);
        for (int s = 0; s < STAGES; ++s) {
            mbarrier_init(&ring.full[s], by_tma ? 1 : PRODUCERS);
            mbarrier_init(&ring.empty[s], SLICE_WARPS);
        }
        if (MAY_TAKE_TURNS)
            mbarrier_init(&begins[team], 1);
        fence_mbarrier_init();
        if (COPIED)
            griddepcontrol_wait();  // for rows that `copy` aligns
        if (early > 0) {
            const int2 tile = rasterize(first, tile_rows, tile_columns);
#pragma unroll 1  // less code before the first products
            for (int s = 0; s < early; ++s)
                load_by_tma(s, tile.y * ROWS, tile.x * COLUMNS, s * DEPTH);
        }
    }
    __syncthreads();

    const bool reads = __double_as_longlong(beta) << 1 != 0;  // beta != 0, without a wait for the pipe of float64
    const bool pairs = (ldc | n) % 2 == 0 && (size_t)C % sizeof(Pair) == 0;
    if (produces) {
        if (COPIED)
            griddepcontrol_wait();  // the copies of single elements, too
        setmaxnreg_dec<40>();
        ring.advance(early);
        int pending = 0;
        const auto arrive = [&] { mbarrier_arrive(&ring.full[(ring.number - pending--) % STAGES]); };
        const int lane = threadIdx.x % PRODUCERS, together = by_tma ? 32 : PRODUCERS;
        const unsigned lead = take_turns ? STAGES - 1 + min(steps / 2, MOST_HEAD_START) : 0;  // stages copied until then
        const auto begin_next = [&] {
            if (elected && team < TEAMS - 1)
                mbarrier_arrive(&begins[team + 1]);
        };
        if (take_turns && loads && team > 0)
            mbarrier_wait(&begins[team], 0);
        if (loads && (!by_tma || number % (PRODUCERS / 32) == 0))
#pragma unroll 1
            for (int i = first; i < tiles; i += stride) {
                const int2 tile = rasterize(i, tile_rows, tile_columns);
                const int row = tile.y * ROWS, column = tile.x * COLUMNS;
#pragma unroll 1
                for (int start = i == first ? early * DEPTH : 0; start < k; start += DEPTH) {
                    mbarrier_wait(&ring.empty[ring.place], ring.parity ^ 1);
                    if (MAY_TAKE_TURNS && ring.number == lead)
                        begin_next();
                    if (by_tma) {
                        if (elected)
                            load_by_tma(ring.place, row, column, start);
                        __syncwarp();
                    } else {
                        copy_stage(ring.stages + ring.place * STAGE_BYTES, {m, n, k, lda, ldb, A, B}, row, column, start);
                        cp_async_commit_group();
                        if (pending == LAG) {
                            cp_async_wait_group<LAG>();
                            arrive();
                        }
                        ++pending;
                    }
                    ring.advance(1);
                }
                if (reads) {
                    __syncwarp();  // A and B first: earlier prefetches of C would delay their loads
                    prefetch_tile(C, ldc, m, n, row, column, ROWS, lane, together);
                }
            }
        if (MAY_TAKE_TURNS && ring.number <= lead)  // the team has no more stages
            begin_next();
        cp_async_wait_group<0>();
        while (pending > 0)
            arrive();
    } else {
        setmaxnreg_inc<CONSUMER_REGISTERS>();
        const Warp warp(warp_number, slice);
        // Stages of this tile and those before, and the number of the slice's next stage. The ring's own number would
        // take a register in the main loop.
        unsigned end = 0, next = slice;
#pragma unroll 1
        for (int i = first; i < tiles; i += stride) {
            const int2 tile = rasterize(i, tile_rows, tile_columns);
            REAL sums[I][J][4] = {};
            end += steps;
            const int count = (int)(end - next + SLICES - 1) / SLICES;
            multiply_stages(sums, ring, warp, count);
            next += count * SLICES;
            const int row = tile.y * ROWS, column = tile.x * COLUMNS;
            if (pairs)
                store_tile<true>(sums, warp, (Pair *)exchange, m, n, alpha, beta, reads, C, ldc, row, column, team);
            else
                store_tile<false>(sums, warp, (Pair *)exchange, m, n, alpha, beta, reads, C, ldc, row, column, team);
        }
    }
}
