// A tile of C by the FMA units, in float32: the main loop of split_k and stream_k_fma.
//
// The block's warps form SLICES groups. Each group has the whole tile of ROWS x COLUMNS, but only every SLICES-th of the
// stages of DEPTH terms, and a ring of STAGES of its own in shared memory: groups do not wait for each other.
// A thread has HIGH x WIDE elements of the tile, a warp LANE_ROWS x (32 / LANE_ROWS) threads.
//
// What is behind the order of things here: an FFMA reads three registers, and the register file of a quarter of an SM
// delivers two a cycle, one of each parity. So each FFMA must find one operand in the reuse cache, which holds what the
// instruction before read in the same place, and the other two in registers of different parity. That takes a walk
// through the thread's elements in which only one operand changes at a time, along a row of B with its mixed
// parities. The compiler keeps it if told --ptxas-options=-O1; at -O3 it reorders the products.
#ifndef FMA_TILE_CUH
#define FMA_TILE_CUH

#include "ptx.cuh"

struct alignas(16) Vector {
    float of[4];
};

constexpr __device__ int common_divisor(int a, int b)
{
    return b == 0 ? a : common_divisor(b, a % b);
}

template <int E> struct Tile {  // E: elements of an asynchronous copy, 4 where all are aligned, else 1
    static constexpr int LANE_COLUMNS = 32 / LANE_ROWS;
    static constexpr int WARP_ROWS = LANE_ROWS * HIGH, WARP_COLUMNS = LANE_COLUMNS * WIDE;
    static constexpr int THREADS = BLOCK / SLICES;                           // of a slice
    static constexpr int STAGE = (ROWS + COLUMNS) * DEPTH;                   // A by rows of DEPTH, then B by rows of COLUMNS
    static constexpr int A_STEP = THREADS * E / DEPTH;                       // rows of A copied at once
    static constexpr int ACROSS = common_divisor(THREADS, COLUMNS / E);      // threads that copy a row of B
    static constexpr int B_STEP = THREADS / ACROSS, C_STEP = ACROSS * E;     // rows and columns of B copied at once
    static constexpr int FRAGMENTS = HIGH * WIDE / 4;                        // of 4 neighbouring elements of C
    static_assert(ROWS * COLUMNS == THREADS * HIGH * WIDE, "a slice's threads cover the tile");
    static_assert(ROWS % A_STEP == 0 && DEPTH % B_STEP == 0 && COLUMNS % C_STEP == 0, "copies cover a stage");
    static_assert(PART % 4 == 0 && DEPTH % PART == 0 && DEPTH <= 32 && WIDE % 4 == 0, "as the loops below are written");

    // Groups of 4 terms of a row of A are in an order that depends on the row: lanes that read the same group of
    // several rows at a time find them in different banks.
    static __device__ constexpr int swizzle(int row)
    {
        return row / (32 / DEPTH) % (DEPTH / 4);
    }

    float *ring;               // of this slice
    unsigned ring_address;
    const float *a, *b;        // what this thread copies first of the next stage
    int lda, ldb;
    int terms, rows, columns;  // from there to the ends
    int filled;                // the stage that is filled next, in elements
    unsigned slot, at_a, at_b; // that which is read next, and what of it, in bytes
    int x, y;                  // the thread's first element of the tile
    float sums[HIGH][WIDE];
    float4 part_a[HIGH];      // 4 terms of each row
    float part_b[2][WIDE];    // a term and the next

    __device__ Tile(float *shared, int lda, int ldb) : lda(lda), ldb(ldb)
    {
        const int lane = threadIdx.x % 32, warp = threadIdx.x % THREADS / 32;
        // Lanes that differ in bit 1 alone read the same words of A, in bit 0 alone the same of B: then half a warp
        // takes one pass through shared memory for its 16 bytes a lane.
        int lane_row = lane % 2, lane_column = lane / 2 % 2;
        if (LANE_ROWS == 4)
            lane_row += lane / 16 * 2, lane_column += lane / 4 % 4 * 2;
        else if (LANE_ROWS == 8)
            lane_row += lane / 4 % 2 * 2 + lane / 16 * 4, lane_column += lane / 8 % 2 * 2;
        else
            lane_row += lane / 4 * 2;
        y = warp / (COLUMNS / WARP_COLUMNS) * WARP_ROWS + lane_row;
        x = warp % (COLUMNS / WARP_COLUMNS) * WARP_COLUMNS + lane_column * 4;
        ring = shared + threadIdx.x / THREADS * STAGES * STAGE;
        ring_address = __cvta_generic_to_shared(ring);
    }

    // Start from the first term of a tile's row and column that this slice has of those from `term` to `end`.
    __device__ void seek(const float *A, const float *B, int m, int n, int row, int column, int term, int end)
    {
        const int thread = threadIdx.x % THREADS;
        const int a_row = thread * E / DEPTH, a_term = thread * E % DEPTH;
        const int b_row = thread / ACROSS, b_column = thread % ACROSS * E;
        term += threadIdx.x / THREADS * DEPTH;
        a = A + (size_t)(row + a_row) * lda + term + a_term;
        b = B + (size_t)(term + b_row) * ldb + column + b_column;
        terms = end - term, rows = m - row - a_row, columns = n - column - b_column;
        filled = 0;
        slot = 0;
    }

    // Start the copies of the next stage. What is past an end is zero; of the stages past the last term only one is
    // filled, as nothing reads the others.
    __device__ void fetch()
    {
        const int thread = threadIdx.x % THREADS;
        const int a_row = thread * E / DEPTH, a_term = thread * E % DEPTH;
        const int b_row = thread / ACROSS, b_column = thread % ACROSS * E;
        if (terms > -SLICES * DEPTH) {
            float *const target_a = ring + filled + a_row * DEPTH + (a_term / 4 ^ swizzle(a_row)) * 4 + a_term % 4;
            float *const target_b = ring + filled + ROWS * DEPTH + b_row * COLUMNS + b_column;
#pragma unroll
            for (int i = 0; i < ROWS; i += A_STEP) {
                const bool valid = i < rows && a_term < terms;
                const int change = (a_term / 4 ^ swizzle(a_row + i)) * 4 - (a_term / 4 ^ swizzle(a_row)) * 4;
                cp_async<4 * E>(target_a + i * DEPTH + (swizzle(A_STEP) == 0 ? 0 : change), a + (long long)i * lda,
                                valid ? 4 * E : 0);
            }
#pragma unroll
            for (int p = 0; p < DEPTH; p += B_STEP)
#pragma unroll
                for (int c = 0; c < COLUMNS; c += C_STEP) {
                    const bool valid = c < columns && b_row + p < terms;
                    cp_async<4 * E>(target_b + p * COLUMNS + c, b + (long long)p * ldb + c, valid ? 4 * E : 0);
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
            barrier_sync(1 + threadIdx.x / THREADS, THREADS);
    }

    __device__ void load_a(int i, int group)
    {
        part_a[i] = ld_shared_v4((at_a ^ (group ^ swizzle(i * LANE_ROWS)) * 16) + i * LANE_ROWS * DEPTH * 4);
    }
    __device__ void load_b(int p)
    {
#pragma unroll
        for (int j = 0; j < WIDE; j += 4)
            *(float4 *)&part_b[p % 2][j] = ld_shared_v4(at_b + (p * COLUMNS + j * LANE_COLUMNS) * 4);
    }
    __device__ void enter_stage()
    {
        at_a = ring_address + slot + (y * DEPTH + swizzle(y % LANE_ROWS) * 4) * 4;
        at_b = ring_address + slot + (ROWS * DEPTH + x) * 4;
    }

    // The first stages are on their way.
    __device__ void start()
    {
#pragma unroll 1
        for (int s = 0; s < STAGES - 1; ++s)
            fetch();
    }

    // Multiply what this slice has of `stages` stages.
    __device__ void multiply(int stages)
    {
#pragma unroll
        for (int i = 0; i < HIGH; ++i)
#pragma unroll
            for (int j = 0; j < WIDE; ++j)
                sums[i][j] = 0;
        cp_async_wait_group<STAGES - 2>();
        sync_slice();
        enter_stage();
#pragma unroll
        for (int i = 0; i < HIGH; ++i)
            load_a(i, 0);
        load_b(0);
#pragma unroll 1
        for (int left = (stages - (int)threadIdx.x / THREADS + SLICES - 1) / SLICES; left > 0; --left) {
            fetch();
#pragma unroll 1
            for (int part = 0; part < DEPTH / PART; ++part)
#pragma unroll
                for (int p = 0; p < PART; ++p) {
                    if (p < PART - 1)
                        load_b(p + 1);
                    else {
                        if (part == DEPTH / PART - 1) {
                            cp_async_wait_group<STAGES - 2>();
                            sync_slice();  // the next stage is there for all, and all are done with this one
                            slot = slot == (STAGES - 1) * STAGE * 4 ? 0 : slot + STAGE * 4;
                            enter_stage();
                        } else {
                            at_a ^= (part ^ part + 1) * PART * 4;  // parts 0, 1, 2, 3 in this order, whatever the swizzle
                            at_b += PART * COLUMNS * 4;
                        }
                        load_b(0);
                    }
#pragma unroll
                    for (int i = 0; i < HIGH; ++i) {
                        const float4 four = part_a[i];
                        const float of_row[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
                        for (int j = 0; j < WIDE; ++j) {
                            const int c = i % 2 ? WIDE - 1 - j : j;
                            sums[i][c] += of_row[p % 4] * part_b[p % 2][c];
                        }
                        if (p % 4 == 3)
                            load_a(i, (p + 1) / 4 % (PART / 4));
                    }
                }
        }
        cp_async_wait_group<0>();
        sync_slice();  // all are done with the ring
    }

    // Neighbours swap places: what goes through memory as a vector stands in registers in its order, and these have
    // another parity then than the operands from B.
    __device__ Vector swapped(int f) const
    {
        Vector v;
#pragma unroll
        for (int e = 0; e < 4; ++e)
            v.of[e] = sums[f / (WIDE / 4)][f % (WIDE / 4) * 4 + (e ^ 1)];
        return v;
    }

    // Add up the sums of all slices, in their order. The threads that have the same elements in all slices add up
    // OWN fragments of them each: slice s has those from s * OWN on.
    static constexpr int OWN = FRAGMENTS / SLICES;
    static_assert(FRAGMENTS % SLICES == 0 && (SLICES == 1 || STAGES * STAGE >= ROWS * COLUMNS), "they go through the rings");
    __device__ void add_slices(Vector (&total)[OWN]) const
    {
        if (SLICES == 1) {
#pragma unroll
            for (int f = 0; f < OWN; ++f)
                total[f] = swapped(f);
            return;
        }
        const int slice = threadIdx.x / THREADS, thread = threadIdx.x % THREADS;
        Vector *const mine = (Vector *)ring + thread;
#pragma unroll
        for (int f = 0; f < FRAGMENTS; ++f)
            mine[f * THREADS] = swapped(f);
        __syncthreads();
        const Vector *const first = mine + (slice * OWN) * THREADS - slice * (STAGES * STAGE / 4);
#pragma unroll
        for (int f = 0; f < OWN; ++f) {
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

    // Row and column of fragment f of those that this thread adds up.
    __device__ int row_of(int f) const
    {
        return y + (threadIdx.x / THREADS * OWN + f) / (WIDE / 4) * LANE_ROWS;
    }
    __device__ int column_of(int f) const
    {
        return x + (threadIdx.x / THREADS * OWN + f) % (WIDE / 4) * 4 * LANE_COLUMNS;
    }
};

// The elements of C that go 16 bytes at a time where they are aligned; those past the ends are left alone.
struct Result {
    float *C;
    int m, n, ldc;
    bool vectors;

    __device__ Result(float *C, int m, int n, int ldc)
        : C(C), m(m), n(n), ldc(ldc), vectors(ldc % 4 == 0 && (size_t)C % 16 == 0)
    {
    }
    __device__ Vector load(int row, int column) const
    {
        const float *const source = C + (size_t)row * ldc + column;
        Vector v = {};
        if (row < m && vectors && column + 3 < n)
            v = *(const Vector *)source;
        else if (row < m)
#pragma unroll
            for (int e = 0; e < 4; ++e)
                if (column + e < n)
                    v.of[e] = source[e];
        return v;
    }
    __device__ void store(int row, int column, float alpha, const Vector &swapped, float beta, const Vector &before) const
    {
        float *const target = C + (size_t)row * ldc + column;
        Vector v;
#pragma unroll
        for (int e = 0; e < 4; ++e)
            v.of[e] = alpha * swapped.of[e ^ 1] + beta * before.of[e];
        if (row < m && vectors && column + 3 < n)
            *(Vector *)target = v;
        else if (row < m)
#pragma unroll
            for (int e = 0; e < 4; ++e)
                if (column + e < n)
                    target[e] = v.of[e];
    }
};

#endif
