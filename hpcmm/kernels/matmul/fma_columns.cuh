// A tile of C on the FMA units, in float32, of two blocks on an SM: the mainloop of stream_k_fma without slices.
//
// Compared with fma_tile.cuh:
//   - A stage has its part of A by columns. A thread then loads a term of four rows at once, and needs no registers
//     for terms that it multiplies later. Columns are copied by single elements, so rows may begin anywhere.
//   - The copies are spread among the products, with few instructions: which rows are inside A is computed once.
//   - C is written by way of shared memory, in loops. A cold kernel waits for each line of its code after the first
//     64 KiB, so code that is not repeated must be short.
//
// The order of the products follows the register banks (see fma_tile.cuh). The reuse cache holds an operand of each
// parity in each position: here the elements of two rows of A. An element of B is used for both rows. So each FFMA
// reads its sum, and every second one an element of B, of the other parity: a sum has the parity of its neighbour,
// because vectors of swapped neighbours are stored.
#ifndef FMA_COLUMNS_CUH
#define FMA_COLUMNS_CUH

#include "matmul/fma_lanes.cuh"
#include "ptx.cuh"

// EB: elements of B per asynchronous copy.
template <int EB> struct Tile {
    static constexpr int LANE_COLUMNS = 32 / LANE_ROWS;
    static constexpr int WARP_ROWS = LANE_ROWS * THREAD_ROWS, WARP_COLUMNS = LANE_COLUMNS * THREAD_COLUMNS;
    static constexpr int WARPS_ACROSS = COLUMNS / WARP_COLUMNS;
    static constexpr int PITCH = ROWS + 4;                   // of A's columns: a warp's copies go to different banks
    static constexpr int STAGE = (PITCH + COLUMNS) * DEPTH;  // columns of A, then rows of B
    static constexpr int A_STEP = BLOCK / DEPTH;             // rows of A copied at once
    static constexpr int B_STEP = BLOCK * EB / COLUMNS;      // rows of B copied at once
    static constexpr int A_COPIES = ROWS / A_STEP, COPIES = A_COPIES + DEPTH / B_STEP;  // of a thread for a stage
    static constexpr int OWN_FRAGMENTS = THREAD_ROWS * THREAD_COLUMNS / 4;  // vectors of 4 neighbours in C
    static constexpr int AT_ONCE = 2;                        // copies, twice in each step but the last one
    static constexpr int C_PITCH = WARP_COLUMNS + 4;         // of a warp's rows of C in shared memory
    static_assert(ROWS * COLUMNS == BLOCK * THREAD_ROWS * THREAD_COLUMNS, "the threads cover the tile");
    static_assert(ROWS % A_STEP == 0 && DEPTH % B_STEP == 0 && A_COPIES <= 32, "copies cover a stage");
    static_assert(COPIES <= 2 * AT_ONCE * (DEPTH - 1) && THREAD_ROWS % 4 == 0 && THREAD_COLUMNS % 4 == 0,
                  "as the loops below are written");

    unsigned ring;                  // address of the stages
    int lda, ldb;
    const float *a, *b;             // first elements of the next stage that this thread copies
    int terms;                      // from the first term of the next stage to the end
    unsigned rows;                  // bit i: the i-th row that this thread copies is inside A
    bool column;                    // the columns that it copies are inside B
    unsigned filled, slot;          // offsets of the stages to fill next and to read, in bytes
    unsigned at_a, at_b;            // addresses in the stage to read
    int x, y;                       // position of this thread's first element in the tile of its warp
    float sums[THREAD_ROWS][THREAD_COLUMNS];
    float4 part_a[2][THREAD_ROWS / 4], part_b[2][THREAD_COLUMNS / 4];  // double buffers: this term and the next

    // The copies of a stage that are still to be started
    const float *from_a, *from_b;
    unsigned to_a, to_b, rows_left;
    int terms_left;

    __device__ Tile(float *shared, int lda, int ldb)
        : ring(__cvta_generic_to_shared(shared)), lda(lda), ldb(ldb)
    {
        const int2 place = place_of_lane();
        x = place.x * 4, y = place.y * 4;
    }
    static __device__ int warp_row() { return threadIdx.x / 32 / WARPS_ACROSS * WARP_ROWS; }
    static __device__ int warp_column() { return threadIdx.x / 32 % WARPS_ACROSS * WARP_COLUMNS; }

    // Go to terms `term` to `end` of the tile at `top` and `left`.
    __device__ void seek(const float *A, const float *B, int m, int n, int top, int left, int term, int end)
    {
        const int row = top + threadIdx.x / DEPTH;
        a = A + (size_t)row * lda + term + threadIdx.x % DEPTH;
        b = B + (size_t)(term + threadIdx.x * EB / COLUMNS) * ldb + left + threadIdx.x * EB % COLUMNS;
        rows = 0;
#pragma unroll
        for (int i = 0; i < A_COPIES; ++i)
            rows |= (row + i * A_STEP < m ? 1u : 0u) << i;
        column = left + (int)(threadIdx.x * EB % COLUMNS) < n;
        terms = end - term;
        filled = 0;
        slot = 0;
    }

    // Start the i-th copy of the next stage. Elements past the ends are zero.
    __device__ void copy(int i)
    {
        const int a_term = threadIdx.x % DEPTH, b_row = threadIdx.x * EB / COLUMNS;
        if (i == 0) {
            from_a = a, from_b = b;
            to_a = ring + filled + (a_term * PITCH + threadIdx.x / DEPTH) * 4;
            to_b = ring + filled + (DEPTH * PITCH + threadIdx.x * EB) * 4;
            rows_left = a_term < terms ? rows : 0;
            terms_left = column ? terms - b_row : 0;
        }
        if (i < A_COPIES) {
            cp_async<4>(to_a + i * A_STEP * 4, from_a, (rows_left & 1u << i) == 0);
            add_cc(from_a, 4LL * A_STEP * lda);
        } else {
            const int p = (i - A_COPIES) * B_STEP;
            cp_async<4 * EB>(to_b + p * COLUMNS * 4, from_b, terms_left <= p);
            add_cc(from_b, 4LL * B_STEP * ldb);
        }
    }
    // Commit the copies of a stage as one group.
    __device__ void commit()
    {
        add_cc(a, 4 * DEPTH);
        add_cc(b, 4LL * DEPTH * ldb);
        terms -= DEPTH;
        filled = filled == (STAGES - 1) * STAGE * 4 ? 0 : filled + STAGE * 4;
        cp_async_commit_group();
    }
    // Start the copies of all stages but one.
    __device__ void prologue()
    {
#pragma unroll 1
        for (int s = 0; s < STAGES - 1; ++s) {
#pragma unroll
            for (int i = 0; i < COPIES; ++i)
                copy(i);
            commit();
        }
    }

    __device__ void enter_stage()
    {
        at_a = ring + slot + (warp_row() + y) * 4;
        at_b = ring + slot + (DEPTH * PITCH + warp_column() + x) * 4;
    }
    __device__ void load(int p)
    {
#pragma unroll
        for (int i = 0; i < THREAD_ROWS / 4; ++i)
            part_a[p % 2][i] = ld_shared_v4(at_a + (p * PITCH + i * LANE_ROWS * 4) * 4);
#pragma unroll
        for (int j = 0; j < THREAD_COLUMNS / 4; ++j)
            part_b[p % 2][j] = ld_shared_v4(at_b + (p * COLUMNS + j * LANE_COLUMNS * 4) * 4);
    }
    __device__ void multiply(int p, int i, int j)
    {
        const float4 four_a = part_a[p % 2][i / 4], four_b = part_b[p % 2][j / 4];
        const float of_a[4] = {four_a.x, four_a.y, four_a.z, four_a.w};
        const float of_b[4] = {four_b.x, four_b.y, four_b.z, four_b.w};
        sums[i][j] += of_a[i % 4] * of_b[j % 4];
    }
    // Multiply two rows from i on, in serpentine order. The first four products read each new element of A together
    // with a sum of the other parity.
    __device__ void multiply_rows(int p, int i)
    {
        const bool back = i / 2 % 2;
        const int even = back ? THREAD_COLUMNS - 2 : 0;
        multiply(p, i, even), multiply(p, i, even + 1), multiply(p, i + 1, even + 1), multiply(p, i + 1, even);
#pragma unroll
        for (int j = 2; j < THREAD_COLUMNS; ++j) {
            const int column = back ? THREAD_COLUMNS - 1 - j : j;
            multiply(p, i, column), multiply(p, i + 1, column);
        }
    }

    // Multiply `stages` stages.
    __device__ void mainloop(int stages)
    {
#pragma unroll
        for (int i = 0; i < THREAD_ROWS; ++i)
#pragma unroll
            for (int j = 0; j < THREAD_COLUMNS; ++j)
                sums[i][j] = 0;
        cp_async_wait_group<STAGES - 2>();
        __syncthreads();
        enter_stage();
        load(0);
#pragma unroll 1
        for (int left = stages; left > 0; --left)
#pragma unroll
            for (int p = 0; p < DEPTH; ++p) {
                if (p == DEPTH - 1) {
                    commit();
                    cp_async_wait_group<STAGES - 2>();
                    __syncthreads();  // the next stage has arrived, and all threads have read this one
                    slot = slot == (STAGES - 1) * STAGE * 4 ? 0 : slot + STAGE * 4;
                    enter_stage();
                    load(0);
                } else
                    load(p + 1);
#pragma unroll
                for (int i = 0; i < THREAD_ROWS; i += 2) {
                    multiply_rows(p, i);
                    if (p < DEPTH - 1 && (i + 2) % (THREAD_ROWS / 2) == 0) {
                        const int first = (2 * p + (i + 2) / (THREAD_ROWS / 2) - 1) * AT_ONCE;
#pragma unroll
                        for (int c = first; c < first + AT_ONCE; ++c)
                            if (c < COPIES)
                                copy(c);
                    }
                }
            }
        cp_async_wait_group<0>();
        __syncthreads();  // all threads have read the ring
    }

    // Return the sums, with neighbours swapped.
    __device__ void reduce_slices(Vector (&total)[OWN_FRAGMENTS]) const
    {
#pragma unroll
        for (int f = 0; f < OWN_FRAGMENTS; ++f)
#pragma unroll
            for (int e = 0; e < 4; ++e)
                total[f].of[e] = sums[f / (THREAD_COLUMNS / 4)][f % (THREAD_COLUMNS / 4) * 4 + (e ^ 1)];
    }

    // Write alpha sums + beta C to the tile at `top` and `left`. `staged`: [warps][WARP_ROWS][C_PITCH].
    __device__ void write(const Vector (&total)[OWN_FRAGMENTS], float *staged, float *C, int ldc, int m, int n, int top,
                          int left, float alpha, float beta) const
    {
        staged += threadIdx.x / 32 * (WARP_ROWS * C_PITCH);
        __syncwarp();  // all have read the previous tile
#pragma unroll
        for (int f = 0; f < OWN_FRAGMENTS; ++f) {
            const int i = f / (THREAD_COLUMNS / 4), j = f % (THREAD_COLUMNS / 4);
            const int row = y + i / 4 * LANE_ROWS * 4 + i % 4, column = x + j * LANE_COLUMNS * 4;
            *(Vector *)&staged[row * C_PITCH + column] = total[f];
        }
        __syncwarp();
        top += warp_row(), left += warp_column();
        if ((ldc | n) % 4 == 0 && (size_t)C % 16 == 0)
            write_rows<4>(staged, C, ldc, m, n, top, left, alpha, beta);
        else
            write_rows<1>(staged, C, ldc, m, n, top, left, alpha, beta);
    }
    template <int WIDTH>
    static __device__ void write_rows(const float *staged, float *C, int ldc, int m, int n, int top, int left,
                                      float alpha, float beta)
    {
        constexpr int PER_ROW = WARP_COLUMNS / WIDTH, ACCESSES = WARP_ROWS * PER_ROW / 32, BATCH = WIDTH == 4 ? 8 : 16;
        static_assert(ACCESSES % BATCH == 0, "whole batches");
        struct alignas(4 * WIDTH) Elements {
            float of[WIDTH];
        };
#pragma unroll 1
        for (int first = 0; first < ACCESSES; first += BATCH) {
            Elements before[BATCH] = {};
            const auto each = [&](const auto &access) {
#pragma unroll
                for (int i = 0; i < BATCH; ++i) {
                    const int at = (first + i) * 32 + threadIdx.x % 32;
                    const int row = at / PER_ROW, column = at % PER_ROW * WIDTH;
                    if (top + row < m && left + column < n)
                        access(i, staged + row * C_PITCH, column, C + (size_t)(top + row) * ldc + left + column);
                }
            };
            if (beta != 0)
                each([&](int i, const float *, int, const float *from) { before[i] = *(const Elements *)from; });
            each([&](int i, const float *row, int column, float *to) {
                const Elements swapped = *(const Elements *)(row + (WIDTH == 1 ? column ^ 1 : column));
                Elements v;
#pragma unroll
                for (int e = 0; e < WIDTH; ++e)
                    v.of[e] = alpha * swapped.of[WIDTH == 1 ? 0 : e ^ 1] + beta * before[i].of[e];
                *(Elements *)to = v;
            });
        }
    }
};

#endif
