// Matrix product, GPU rung for int8: persistent blocks with TMA, whose consumers transpose B in registers.
//
// Compared with persistent, elements are int8 and sums int32. Products are exact, and tensor cores compute them at
// twice the rate. wgmma takes 8-bit operands from shared memory only with their rows along k. Rows of A run along k, rows
// of B do not. But its first operand may be in registers: as in tf32, blocks compute the transpose of C, 64 columns of C
// for each of two consumers. ldmatrix transposes pairs of elements, and two byte permutations make of two pairs the four
// terms of two columns that a lane needs. Lanes store their sums without keeping them in the L2 cache. A first launch
// aligns rows that TMA cannot take. Runs on compute capability 9.0 only. Limit: at the power limit the clock falls.
//
// hpcmm:
//   operation: matmul
//   shelf: product
//   change: 'int8: persistent blocks with TMA, whose consumers transpose B in registers'
//   counterpart: persistent
//   dtypes: [int8]
//   architecture: sm_90a

#include "matmul/rasterize.cuh"
#include "matmul/ring.cuh"
#include "matmul/swizzled_rows.cuh"
#include "matmul/whole_rows.cuh"
#include "ptx.cuh"

constexpr int J = ROWS / 8, STEPS = DEPTH / 32, CONSUMERS = 2;
constexpr int A_BYTES = ROWS * ROW_BYTES, STAGE_BYTES = A_BYTES + DEPTH * ROW_BYTES;
static_assert(DEPTH == ROW_BYTES && COLUMNS == ROW_BYTES && BLOCK == 128 * (1 + CONSUMERS), "as setmaxnreg divides them");

// Copy a box by `threads` threads, with zeros outside the matrix: for an address that TMA cannot take.
__device__ inline void copy_box(unsigned char *box, int box_rows, const signed char *from, int ld, int rows, int columns,
                                int row, int column, int thread, int threads)
{
#pragma unroll 1
    for (int i = thread; i < box_rows * (ROW_BYTES / CHUNK_BYTES); i += threads) {
        const int y = row + i / 8, x = column + i % 8 * CHUNK_BYTES;
        unsigned words[4] = {};
#pragma unroll
        for (int e = 0; e < CHUNK_BYTES; ++e)
            if (y < rows && x + e < columns)
                words[e / 4] |= (unsigned)(unsigned char)from[(size_t)y * ld + x + e] << 8 * (e % 4);
        *(uint4 *)chunk_of(box, i / 8, i % 8) = make_uint4(words[0], words[1], words[2], words[3]);
    }
}

// A lane's elements of B in a stage, for each 32 terms: columns 2 g and 2 g + 1 of its warp's, which are rows g and g + 8
// of the first operand, in terms 4 t to 4 t + 3 and in those 16 terms further.
struct Fragments {
    unsigned of[STEPS][4];

    // Of 32 rows of a box, ldmatrix transposes four times eight: terms 4 t, 4 t + 1, then 4 t + 2, 4 t + 3 for each t, or
    // in reverse for t > 1. So the eight rows are in different banks. Return the place of the row that this lane names.
    static __device__ int place(int column)
    {
        const int lane = threadIdx.x % 32, t = lane % 8 / 2, later = lane / 8 % 2 ^ t / 2;
        const int term = 4 * t + 2 * later + lane % 2 + lane / 16 * 16;
        return term * ROW_BYTES + (column / CHUNK_BYTES ^ term % 8) * CHUNK_BYTES;
    }

    __device__ void load(const unsigned char *at)
    {
        const bool reverse = threadIdx.x % 4 > 1;
        const unsigned even = reverse ? 0x2064 : 0x6420, odd = reverse ? 0x3175 : 0x7531;
#pragma unroll
        for (int s = 0; s < STEPS; ++s) {
            unsigned pairs[4];
            ldmatrix_x4_trans(pairs, at + s * 32 * ROW_BYTES);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                of[s][2 * half] = prmt_b32(pairs[2 * half], pairs[2 * half + 1], even);
                of[s][2 * half + 1] = prmt_b32(pairs[2 * half], pairs[2 * half + 1], odd);
            }
        }
    }
};

// Start the products of a stage.
__device__ void multiply(int (&sums)[J][4], const Fragments &b, const unsigned char *a)
{
    const unsigned long long first = descriptor(a);
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < STEPS; ++s)
        wgmma_mma_async(sums, b.of[s], first + s * 32 / 16, true);  // in units of 16 bytes
    wgmma_commit_group();
}

// Epilogue: C = alpha sums + beta C in a lane's pairs of neighbours, in rows 8 j and 8 j + 1 from its first one on. READ:
// beta may be other than 0, else C is not read. PAIRS: both neighbours are inside C if the first is, at 8 bytes.
template <bool READ, bool PAIRS>
__device__ void update(const int (&sums)[J][4], int alpha, int beta, int *C, int ldc, int m, int n, int row, int column)
{
    constexpr int LOADS = 8;  // in flight
    int *const first_c = C + (size_t)row * ldc + column;
#pragma unroll
    for (int first = 0; first < J; first += LOADS / 2) {
        int2 old[LOADS] = {};
#pragma unroll
        for (int pass = READ ? 0 : 1; pass < 2; ++pass)
#pragma unroll
            for (int i = 0; i < LOADS; ++i) {
                const int j = first + i / 2, e = i % 2, y = 8 * j + e;
                int *const c = first_c + (long long)y * ldc;
                const int2 c_new = {alpha * sums[j][e] + beta * old[i].x, alpha * sums[j][2 + e] + beta * old[i].y};
                if (row + y >= m || column >= n)
                    continue;
                if (PAIRS && pass == 0)
                    old[i] = *(const int2 *)c;
                else if (PAIRS)
                    __stcs((int2 *)c, c_new);
                else {
                    const bool both = column + 1 < n;
                    if (pass == 0 && beta != 0)
                        old[i] = {c[0], both ? c[1] : 0};
                    else if (pass == 1) {
                        c[0] = c_new.x;
                        if (both)
                            c[1] = c_new.y;
                    }
                }
            }
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK, 1)
    matmul(int m, int n, int k, int alpha, const signed char *A, int lda, const signed char *B, int ldb, int beta, int *C,
           int ldc, const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    Ring<STAGE_BYTES, CONSUMERS> ring(shared, shared + STAGES * STAGE_BYTES);
    const int group = __shfl_sync(~0u, threadIdx.x / 128, 0), thread = threadIdx.x % 128;  // uniform in a warp
    const bool by_tma = (lda | ldb) % 16 == 0 && ((size_t)A | (size_t)B) % 16 == 0;
    if (threadIdx.x == 0) {
        prefetch_tensormap(map_a);
        prefetch_tensormap(map_b);
        ring.init(by_tma ? 1 : 128);
    }
    __syncthreads();

    const int tile_rows = (m + ROWS - 1) / ROWS, tile_columns = (n + COLUMNS - 1) / COLUMNS;
    const int tiles = tile_rows * tile_columns, steps = (k + DEPTH - 1) / DEPTH;
    if (group == 0) {
        setmaxnreg_dec<40>();
        griddepcontrol_wait();  // for rows that `copy` aligns
        if (!by_tma || thread == 0)
            for (int i = blockIdx.x; i < tiles; i += gridDim.x) {
                const int2 tile = rasterize(i, tile_rows, tile_columns);
                const int row = tile.y * ROWS, column = tile.x * COLUMNS;
                for (int p = 0; p < k; p += DEPTH, ring.advance()) {
                    mbarrier_wait(&ring.empty[ring.stage], ring.parity ^ 1);
                    unsigned char *const a = ring.bytes(), *const b = a + A_BYTES;
                    unsigned long long *const full = &ring.full[ring.stage];
                    if (by_tma) {
                        mbarrier_arrive_expect_tx(full, STAGE_BYTES);
                        cp_async_bulk_tensor_shared_global(a, map_a, p, row, full);
                        cp_async_bulk_tensor_shared_global(b, map_b, column, p, full);
                    } else {
                        copy_box(a, ROWS, A, lda, m, k, row, p, thread, 128);
                        copy_box(b, DEPTH, B, ldb, k, n, p, column, thread, 128);
                        fence_proxy_async();
                        mbarrier_arrive(full);
                    }
                }
            }
    } else {
        setmaxnreg_inc<232>();
        const int lane = thread % 32, x = (group - 1) * 64 + thread / 32 * 16, place = Fragments::place(x);
        const bool pairs = (ldc | n) % 2 == 0 && (size_t)C % 8 == 0;
        const auto release = [&](int s) {
            if (lane == 0)
                mbarrier_arrive(&ring.empty[s]);
        };
#pragma unroll 1
        for (int i = blockIdx.x; i < tiles; i += gridDim.x) {
            const int2 tile = rasterize(i, tile_rows, tile_columns);
            int sums[J][4] = {};
            Fragments fragments[2];
            const auto load = [&](Fragments &next) {
                mbarrier_wait(&ring.full[ring.stage], ring.parity);
                next.load(ring.bytes() + A_BYTES + place);
            };
            if (steps > 0)
                load(fragments[0]);
#pragma unroll 1
            for (int first = 0; first < steps; first += 2)
#pragma unroll
                for (int b = 0; b < 2; ++b)
                    if (first + b < steps) {
                        const int before = ring.previous();
                        multiply(sums, fragments[b], ring.bytes());
                        ring.advance();
                        // The products of the stage before are complete: TMA may overwrite it.
                        wgmma_wait_group<1>(sums);
                        if (first + b > 0)
                            release(before);
                        if (first + b + 1 < steps)
                            load(fragments[1 - b]);
                    }
            wgmma_wait_group<0>(sums);
            if (steps > 0)
                release(ring.previous());
            const int row = tile.y * ROWS + lane % 4 * 2, column = tile.x * COLUMNS + x + lane / 4 * 2;
            if (pairs && beta == 0)
                update<false, true>(sums, alpha, beta, C, ldc, m, n, row, column);
            else if (pairs)
                update<true, true>(sums, alpha, beta, C, ldc, m, n, row, column);
            else
                update<true, false>(sums, alpha, beta, C, ldc, m, n, row, column);
        }
    }
}
