// A tile of C on the FMA units, in float32: the mainloop of split_k and stream_k_fma.
//
// The block's warps form SLICES slices. Each slice computes the whole tile of ROWS x COLUMNS, but only every SLICES-th
// stage of DEPTH terms; if k has FIXED_PARTS, one of them. It has its own ring of STAGES stages in shared memory, so
// slices do not wait for each other. A thread computes THREAD_ROWS x THREAD_COLUMNS elements of the tile; a warp has
// LANE_ROWS x (32 / LANE_ROWS) threads.
//
// The register banks determine the order of products. An FFMA reads three registers, and the register file of a quarter
// of an SM delivers two per cycle, one of each parity. So each FFMA must find one operand in the reuse cache, which
// holds the operands of the previous instruction in the same position, and the other two in registers of different
// parity. The serpentine order achieves this: only one operand changes at a time, along a row of B, whose registers
// have mixed parities. The compiler keeps this order with --ptxas-options=-O1; at -O3 it reorders the products.
// Some tiles of split_k are still faster at -O3 (LEVEL).
#ifndef FMA_TILE_CUH
#define FMA_TILE_CUH

#include "matmul/fixed_parts.cuh"
#include "matmul/fma_lanes.cuh"
#include "ptx.cuh"

// EA, EB: elements of A and B per asynchronous copy: A_WIDTH and B_WIDTH if the rows are as aligned as the host expects,
// else 1. Kernels have this condition in their own `if`: returned by a function it costs registers. PARTIAL: of the last
// stage of a slice, multiply only the terms that there are. That is for few k; a large tile needs the registers.
template <int EA, int EB, bool PARTIAL> struct Tile {
    static constexpr int LANE_COLUMNS = 32 / LANE_ROWS;
    static constexpr int WARP_ROWS = LANE_ROWS * THREAD_ROWS, WARP_COLUMNS = LANE_COLUMNS * THREAD_COLUMNS;
    static constexpr int THREADS = BLOCK / SLICES;                              // threads of a slice
    static constexpr int STAGE = (ROWS + COLUMNS) * DEPTH;                      // rows of A, then rows of B
    static constexpr int A_STEP = THREADS * EA / DEPTH;                         // rows of A copied at once
    static constexpr int B_ROW_THREADS = common_divisor(THREADS, COLUMNS / EB);  // threads that copy a row of B
    static constexpr int B_STEP = THREADS / B_ROW_THREADS;                      // rows of B copied at once
    static constexpr int C_STEP = B_ROW_THREADS * EB;                           // columns of B copied at once
    static constexpr int FRAGMENTS = THREAD_ROWS * THREAD_COLUMNS / 4;          // vectors of 4 neighbours in C
    static constexpr int STRIDE = FIXED_PARTS ? DEPTH : SLICES * DEPTH;         // from a stage of a slice to its next
    static_assert(!FIXED_PARTS || SLICES == FIXED_PARTS, "each slice has a part of k");
    static_assert(ROWS * COLUMNS == THREADS * THREAD_ROWS * THREAD_COLUMNS, "a slice's threads cover the tile");
    static_assert(ROWS % A_STEP == 0 && DEPTH % B_STEP == 0 && COLUMNS % C_STEP == 0, "copies cover a stage");
    static_assert(UNROLL % 4 == 0 && DEPTH % UNROLL == 0 && DEPTH <= 32 && THREAD_COLUMNS % 4 == 0,
                  "as the loops below are written");

    // The order of the groups of 4 terms in a row of A depends on the row, so that lanes that read the same group of
    // different rows access different banks.
    static __device__ constexpr int swizzle(int row)
    {
        return row / (32 / DEPTH) % (DEPTH / 4);
    }

    float *ring;               // ring of this slice
    unsigned ring_address;
    const float *a, *b;        // first elements of the next stage that this thread copies
    int lda, ldb;
    int terms, rows, columns;  // distances from there to the ends
    int filled;                // offset of the stage to fill next, in elements
    unsigned slot, at_a, at_b; // offset of the stage to read, and addresses in it, in bytes
    int x, y;                  // position of this thread's first element in the tile
    float sums[THREAD_ROWS][THREAD_COLUMNS];
    float4 part_a[THREAD_ROWS];        // 4 terms of each row
    float part_b[2][THREAD_COLUMNS];   // double buffer: this term and the next

    __device__ Tile(float *shared, int lda, int ldb) : lda(lda), ldb(ldb)
    {
        const int warp = threadIdx.x % THREADS / 32;
        const int2 place = place_of_lane();
        y = warp / (COLUMNS / WARP_COLUMNS) * WARP_ROWS + place.y;
        x = warp % (COLUMNS / WARP_COLUMNS) * WARP_COLUMNS + place.x * 4;
        ring = shared + threadIdx.x / THREADS * STAGES * STAGE;
        ring_address = __cvta_generic_to_shared(ring);
    }

    // Go to this slice's first term, of terms `term` to `end`, of the tile at `row` and `column`.
    __device__ void seek(const float *A, const float *B, int m, int n, int row, int column, int term, int end)
    {
        const int thread = threadIdx.x % THREADS;
        const int a_row = thread * EA / DEPTH, a_term = thread * EA % DEPTH;
        const int b_row = thread / B_ROW_THREADS, b_column = thread % B_ROW_THREADS * EB;
        const int slice = threadIdx.x / THREADS;
        if (FIXED_PARTS) {
            const int part = part_of(end);
            term = min(end, slice * part);
            end = min(end, term + part);
        } else
            term += slice * DEPTH;
        a = A + (size_t)(row + a_row) * lda + term + a_term;
        b = B + (size_t)(term + b_row) * ldb + column + b_column;
        terms = end - term, rows = m - row - a_row, columns = n - column - b_column;
        filled = 0;
        slot = 0;
    }

    // Start the copies of the next stage as one commit group. Elements past the ends are zero. Only one stage past the
    // last term is filled, because the others are never read.
    __device__ void fetch()
    {
        const int thread = threadIdx.x % THREADS;
        const int a_row = thread * EA / DEPTH, a_term = thread * EA % DEPTH;
        const int b_row = thread / B_ROW_THREADS, b_column = thread % B_ROW_THREADS * EB;
        if (terms > -STRIDE) {
            float *const target_a = ring + filled + a_row * DEPTH + (a_term / 4 ^ swizzle(a_row)) * 4 + a_term % 4;
            float *const target_b = ring + filled + ROWS * DEPTH + b_row * COLUMNS + b_column;
#pragma unroll
            for (int i = 0; i < ROWS; i += A_STEP) {
                const bool valid = i < rows && a_term < terms;
                const int change = (a_term / 4 ^ swizzle(a_row + i)) * 4 - (a_term / 4 ^ swizzle(a_row)) * 4;
                cp_async<4 * EA>(target_a + i * DEPTH + (swizzle(A_STEP) == 0 ? 0 : change), a + (long long)i * lda,
                                 valid ? 4 * EA : 0);
            }
#pragma unroll
            for (int p = 0; p < DEPTH; p += B_STEP)
#pragma unroll
                for (int c = 0; c < COLUMNS; c += C_STEP) {
                    const bool valid = c < columns && b_row + p < terms;
                    cp_async<4 * EB>(target_b + p * COLUMNS + c, b + (long long)p * ldb + c, valid ? 4 * EB : 0);
                }
        }
        a += STRIDE;
        b += (long long)STRIDE * ldb;
        terms -= STRIDE;
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
            barrier_sync(1 + threadIdx.x / THREADS, THREADS);
    }

    __device__ void load_a(int i, int group)
    {
        part_a[i] = ld_shared_v4((at_a ^ (group ^ swizzle(i * LANE_ROWS)) * 16) + i * LANE_ROWS * DEPTH * 4);
    }
    __device__ void load_b(int p)
    {
#pragma unroll
        for (int j = 0; j < THREAD_COLUMNS; j += 4)
            *(float4 *)&part_b[p % 2][j] = ld_shared_v4(at_b + (p * COLUMNS + j * LANE_COLUMNS) * 4);
    }
    __device__ void enter_stage()
    {
        at_a = ring_address + slot + (y * DEPTH + swizzle(y % LANE_ROWS) * 4) * 4;
        at_b = ring_address + slot + (ROWS * DEPTH + x) * 4;
    }

    // Start the copies of all stages but one.
    __device__ void prologue()
    {
#pragma unroll 1
        for (int s = 0; s < STAGES - 1; ++s)
            fetch();
    }

    // Multiply this slice's share of `stages` stages.
    __device__ void mainloop(int stages)
    {
#pragma unroll
        for (int i = 0; i < THREAD_ROWS; ++i)
#pragma unroll
            for (int j = 0; j < THREAD_COLUMNS; ++j)
                sums[i][j] = 0;
        cp_async_wait_group<STAGES - 2>();
        sync_slice();
        enter_stage();
#pragma unroll
        for (int i = 0; i < THREAD_ROWS; ++i)
            load_a(i, 0);
        load_b(0);
        const int of_slice = FIXED_PARTS ? (terms + (STAGES - 1) * STRIDE + DEPTH - 1) / DEPTH
                                         : (stages - (int)threadIdx.x / THREADS + SLICES - 1) / SLICES;
#pragma unroll 1
        for (int left = of_slice; left > 0; --left) {
            fetch();
            // The last stage may be partial; `terms` is already that of the STAGES-th stage from here.
            const int last = (terms + STAGES * SLICES * DEPTH + UNROLL - 1) / UNROLL;
            const int parts = !PARTIAL || left > 1 ? DEPTH / UNROLL : min(last, DEPTH / UNROLL);
#pragma unroll 1
            for (int part = 0; part < parts; ++part)
#pragma unroll
                for (int p = 0; p < UNROLL; ++p) {
                    if (p < UNROLL - 1)
                        load_b(p + 1);
                    else {
                        if (part == DEPTH / UNROLL - 1) {
                            cp_async_wait_group<STAGES - 2>();
                            sync_slice();  // the next stage has arrived, and all threads have read this one
                            slot = slot == (STAGES - 1) * STAGE * 4 ? 0 : slot + STAGE * 4;
                            enter_stage();
                        } else {
                            at_a ^= (part ^ part + 1) * UNROLL * 4;  // parts 0, 1, 2, 3 in order, for any swizzle
                            at_b += UNROLL * COLUMNS * 4;
                        }
                        load_b(0);
                    }
#pragma unroll
                    for (int i = 0; i < THREAD_ROWS; ++i) {
                        const float4 four = part_a[i];
                        const float of_row[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
                        for (int j = 0; j < THREAD_COLUMNS; ++j) {
                            const int c = i % 2 ? THREAD_COLUMNS - 1 - j : j;
                            sums[i][c] += of_row[p % 4] * part_b[p % 2][c];
                        }
                        if (p % 4 == 3)
                            load_a(i, (p + 1) / 4 % (UNROLL / 4));
                    }
                }
        }
        cp_async_wait_group<0>();
        sync_slice();  // all threads have read the ring
    }

    // Return fragment f with neighbours swapped. Elements of a vector access are in consecutive registers, and swapped
    // sums have another register parity than their operands from B.
    __device__ Vector swapped(int f) const
    {
        Vector v;
#pragma unroll
        for (int e = 0; e < 4; ++e)
            v.of[e] = sums[f / (THREAD_COLUMNS / 4)][f % (THREAD_COLUMNS / 4) * 4 + (e ^ 1)];
        return v;
    }

    // Add up the sums of all slices, in order. The threads that compute the same elements in all slices divide the
    // fragments: the thread of slice s adds up OWN_FRAGMENTS of them, from s * OWN_FRAGMENTS on.
    static constexpr int OWN_FRAGMENTS = FRAGMENTS / SLICES;
    static_assert(FRAGMENTS % SLICES == 0 && (SLICES == 1 || STAGES * STAGE >= ROWS * COLUMNS),
                  "the sums fit into the rings");
    __device__ void reduce_slices(Vector (&total)[OWN_FRAGMENTS]) const
    {
        if (SLICES == 1) {
#pragma unroll
            for (int f = 0; f < OWN_FRAGMENTS; ++f)
                total[f] = swapped(f);
            return;
        }
        const int slice = threadIdx.x / THREADS, thread = threadIdx.x % THREADS;
        Vector *const mine = (Vector *)ring + thread;
#pragma unroll
        for (int f = 0; f < FRAGMENTS; ++f)
            mine[f * THREADS] = swapped(f);
        __syncthreads();
        const Vector *const first = mine + (slice * OWN_FRAGMENTS) * THREADS - slice * (STAGES * STAGE / 4);
#pragma unroll
        for (int f = 0; f < OWN_FRAGMENTS; ++f) {
            total[f] = first[f * THREADS];
#pragma unroll
            for (int s = 1; s < SLICES; ++s) {
                const Vector other = first[f * THREADS + s * (STAGES * STAGE / 4)];
#pragma unroll
                for (int e = 0; e < 4; ++e)
                    total[f].of[e] += other.of[e];
            }
        }
    }

    // Row and column of the f-th fragment that this thread adds up.
    __device__ int row_of(int f) const
    {
        return y + (threadIdx.x / THREADS * OWN_FRAGMENTS + f) / (THREAD_COLUMNS / 4) * LANE_ROWS;
    }
    __device__ int column_of(int f) const
    {
        return x + (threadIdx.x / THREADS * OWN_FRAGMENTS + f) % (THREAD_COLUMNS / 4) * 4 * LANE_COLUMNS;
    }
};

// How lanes access their vectors of four neighbours in C. Elements past the ends are not accessed.
//
// VECTORS: 16 bytes at a time, if rows are multiples of that. Else, with SINGLY, a lane accesses each element alone, and
// the lanes of an access are 16 bytes apart: four times as many sectors of the L2 cache. With BY_ROWS, lanes exchange
// their elements through shared memory instead, and a warp accesses whole rows of its fragments. A large tile goes
// without: it needs the registers.
enum Access { VECTORS, BY_ROWS, SINGLY };

__device__ inline bool whole_vectors(const float *C, int n, int ldc)
{
    return (ldc | n) % 4 == 0 && (size_t)C % 16 == 0;
}

static __shared__ Vector staged[BLOCK];

template <Access ACCESS> struct Result {
    static constexpr int LANE_COLUMNS = 32 / LANE_ROWS, LENGTH = 4 * LANE_COLUMNS;  // elements of a row of fragments
    // By rows, a lane accesses elements of rows ROW_STEP apart of the fragments of its warp, else neighbours.
    static constexpr int ROW_STEP = 32 / LENGTH;
    static_assert(LENGTH <= 32, "lanes access at least a row");

    float *C;
    int m, n, ldc;

    // Call `access` with the address of each of a lane's elements e, or with that of the first one of a vector, if it is
    // inside C. The lane's fragment begins at `row` and `column`.
    template <class Use> __device__ void each(int row, int column, const Use &access) const
    {
        if (ACCESS == BY_ROWS) {
            const int2 place = place_of_lane();
            row += threadIdx.x % 32 / LENGTH - place.y, column += threadIdx.x % LENGTH - 4 * place.x;
        }
        float *const first = C + (size_t)(unsigned)row * (unsigned)ldc + column;
        if (ACCESS == VECTORS) {
            if (row < m && column < n)
                access(0, first);
        } else
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int down = ACCESS == BY_ROWS ? e * ROW_STEP : 0, right = ACCESS == BY_ROWS ? 0 : e;
                if (row + down < m && column + right < n)
                    access(e, first + (long long)down * ldc + right);
            }
    }
    __device__ Vector load(int row, int column) const
    {
        Vector v = {};
        each(row, column, [&](int e, const float *from) {
            if (ACCESS == VECTORS)
                v = *(const Vector *)from;
            else
                v.of[e] = *from;
        });
        return v;
    }
    // Store alpha sums + beta C; `before` is from `load`. Called by all lanes of a warp.
    __device__ void store(int row, int column, float alpha, const Vector &swapped, float beta,
                          const Vector &before) const
    {
        Vector v;
#pragma unroll
        for (int e = 0; e < 4; ++e)
            v.of[e] = swapped.of[e ^ 1];
        if (ACCESS == BY_ROWS) {
            const int2 place = place_of_lane();
            Vector *const own = staged + threadIdx.x / 32 * 32;
            __syncwarp();  // all have read the previous elements
            own[place.y * LANE_COLUMNS + place.x] = v;
            __syncwarp();
#pragma unroll
            for (int e = 0; e < 4; ++e)
                v.of[e] = ((const float *)own)[e * 32 + threadIdx.x % 32];
        }
#pragma unroll
        for (int e = 0; e < 4; ++e)
            v.of[e] = alpha * v.of[e] + beta * before.of[e];
        each(row, column, [&](int e, float *to) {
            if (ACCESS == VECTORS)
                *(Vector *)to = v;
            else
                *to = v.of[e];
        });
    }
};

#endif
