// Matrix product, GPU rung for int8: persistent blocks with TMA, after a kernel that transposes B.
//
// Compared with persistent, elements are int8 and sums int32. Products are exact, and tensor cores compute them at
// twice the rate. wgmma takes 8-bit operands only with their rows along k. Rows of A run along k, rows of B do not: a
// first kernel writes the transpose of B to a workspace, once for all tiles of C. It orders the columns such that each
// lane has four neighbouring sums, 16 bytes, so C needs no shared memory. Runs on compute capability 9.0 only. Limit: B
// is read and written once more, and at the power limit the clock falls.
//
// hpcmm:
//   operation: matmul
//   shelf: product
//   change: 'int8: persistent blocks with TMA, after a kernel that transposes B'
//   counterpart: persistent
//   dtypes: [int8]
//   architecture: sm_90a

#include "matmul/four_words.cuh"
#include "matmul/rasterize.cuh"
#include "matmul/ring.cuh"
#include "matmul/swizzled_rows.cuh"
#include "ptx.cuh"

constexpr int J = COLUMNS / 8, CONSUMERS = ROWS / 64;
constexpr int A_BYTES = ROWS * ROW_BYTES, STAGE_BYTES = A_BYTES + COLUMNS * ROW_BYTES;
constexpr int GROUP = 128, WARPS = 8;  // of transpose: elements of a tile each way, warps of a block
constexpr bool DIVIDED = CONSUMERS == 2;    // setmaxnreg divides the registers; one consumer has enough
static_assert(DEPTH == ROW_BYTES && CONSUMERS <= 2 && BLOCK == 128 * (1 + CONSUMERS), "as setmaxnreg divides them");

// Return the row of the transpose that holds a column of B. One lane gets four neighbouring columns of C.
__device__ inline int row_of_column(int column)
{
    return column / 16 * 16 + column % 4 / 2 * 8 + column % 16 / 4 * 2 + column % 2;
}

// Load four neighbours of a row of B; elements outside B are 0. `words`: addresses of whole words are aligned.
__device__ inline unsigned load_four(int n, int k, const signed char *B, int ldb, int row, int column, bool words)
{
    const signed char *const from = B + (size_t)row * ldb + column;
    if (words && row < k && column + 3 < n)
        return *(const unsigned *)from;
    unsigned four = 0;
#pragma unroll
    for (int e = 0; e < 4; ++e)
        if (row < k && column + e < n)
            four |= (unsigned)(unsigned char)from[e] << 8 * e;
    return four;
}

// transposed[row_of_column(j)][p] = B[p][j], with rows of `depth` elements: k rounded up to whole groups. Elements
// outside B are 0. A lane transposes blocks of 4 x 4 elements in registers, so that all accesses are words.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
    transpose(int n, int k, int depth, const signed char *B, int ldb, unsigned *transposed)
{
    griddepcontrol_launch_dependents();
    constexpr int WORDS = GROUP / 4, BLOCKS = WORDS / WARPS;
    __shared__ unsigned tile[GROUP][WORDS];  // words of a row are rotated against bank conflicts
    const int first = blockIdx.y * GROUP, first_column = blockIdx.x * GROUP, lane = threadIdx.x;
    const bool words = ldb % 4 == 0 && (size_t)B % 4 == 0;
    unsigned rows[BLOCKS][4];
#pragma unroll
    for (int i = 0; i < BLOCKS; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e)
            rows[i][e] = load_four(n, k, B, ldb, first + 4 * (threadIdx.y * BLOCKS + i) + e, first_column + 4 * lane, words);
#pragma unroll
    for (int i = 0; i < BLOCKS; ++i) {
        transpose_words(rows[i]);
        const int p = (threadIdx.y * BLOCKS + i + lane) % WORDS;
#pragma unroll
        for (int e = 0; e < 4; ++e)
            tile[4 * lane + e][p] = rows[i][e];
    }
    __syncthreads();
#pragma unroll
    for (int j = threadIdx.y; j < GROUP; j += WARPS)
        transposed[((size_t)row_of_column(first_column + j) * depth + first) / 4 + lane] = tile[j][(lane + j / 4) % WORDS];
}

// Copy a box of A by `threads` threads, with zeros outside the matrix. TMA cannot take rows that are not a multiple of
// 16 bytes.
__device__ inline void copy_box(unsigned char *box, const signed char *A, int lda, int m, int k, int row, int start,
                                int thread, int threads)
{
#pragma unroll 1
    for (int i = thread; i < ROWS * (ROW_BYTES / CHUNK_BYTES); i += threads) {
        const int y = row + i / 8, x = start + i % 8 * CHUNK_BYTES;
        unsigned words[4] = {};
#pragma unroll
        for (int e = 0; e < CHUNK_BYTES; ++e)
            if (y < m && x + e < k)
                words[e / 4] |= (unsigned)(unsigned char)A[(size_t)y * lda + x + e] << 8 * (e % 4);
        *(uint4 *)chunk_of(box, i / 8, i % 8) = make_uint4(words[0], words[1], words[2], words[3]);
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK, 1)
    matmul(int m, int n, int k, int alpha, const signed char *A, int lda, int beta, int *C, int ldc,
           const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    Ring<STAGE_BYTES, CONSUMERS> ring(shared, shared + STAGES * STAGE_BYTES);
    const int group = __shfl_sync(~0u, threadIdx.x / 128, 0), thread = threadIdx.x % 128;  // uniform in a warp
    const bool by_tma = lda % 16 == 0 && (size_t)A % 16 == 0;
    if (threadIdx.x == 0) {
        prefetch_tensormap(map_a);
        prefetch_tensormap(map_b);
        ring.init(by_tma ? 1 : 129);
    }
    __syncthreads();

    const int tile_rows = (m + ROWS - 1) / ROWS, tile_columns = (n + COLUMNS - 1) / COLUMNS;
    const int tiles = tile_rows * tile_columns;
    if (group == 0) {
        if constexpr (DIVIDED)
            setmaxnreg_dec<40>();
        griddepcontrol_wait();  // for the transpose of B
        if (!by_tma || thread == 0)
            for (int i = blockIdx.x; i < tiles; i += gridDim.x) {
                const int2 tile = rasterize(i, tile_rows, tile_columns);
                for (int p = 0; p < k; p += DEPTH, ring.advance()) {
                    mbarrier_wait(&ring.empty[ring.stage], ring.parity ^ 1);
                    unsigned char *const a = ring.bytes(), *const b = a + A_BYTES;
                    if (thread == 0) {
                        mbarrier_arrive_expect_tx(&ring.full[ring.stage], by_tma ? STAGE_BYTES : STAGE_BYTES - A_BYTES);
                        if (by_tma)
                            cp_async_bulk_tensor_shared_global(a, map_a, p, tile.y * ROWS, &ring.full[ring.stage]);
                        cp_async_bulk_tensor_shared_global(b, map_b, p, tile.x * COLUMNS, &ring.full[ring.stage]);
                    }
                    if (!by_tma) {
                        copy_box(a, A, lda, m, k, tile.y * ROWS, p, thread, 128);
                        fence_proxy_async();
                        mbarrier_arrive(&ring.full[ring.stage]);
                    }
                }
            }
    } else {
        if constexpr (DIVIDED)
            setmaxnreg_inc<232>();
        const int lane = thread % 32, consumer = group - 1;
        const bool vectors = ldc % 4 == 0 && (size_t)C % 16 == 0;
        const auto release = [&](int s) {
            if (lane == 0)
                mbarrier_arrive(&ring.empty[s]);
        };
        for (int i = blockIdx.x; i < tiles; i += gridDim.x) {
            const int2 tile = rasterize(i, tile_rows, tile_columns);
            int sums[J][4] = {};
            for (int p = 0; p < k; p += DEPTH, ring.advance()) {
                mbarrier_wait(&ring.full[ring.stage], ring.parity);
                unsigned char *const a = ring.bytes(), *const b = a + A_BYTES;
                wgmma_fence();
#pragma unroll
                for (int q = 0; q < DEPTH; q += 32)
                    wgmma_mma_async(sums, descriptor(a + consumer * 64 * ROW_BYTES + q), descriptor(b + q), true);
                wgmma_commit_group();
                wgmma_wait_group<1>(sums);
                if (p > 0)
                    release(ring.previous());
            }
            wgmma_wait_group<0>(sums);
            if (k > 0)
                release(ring.previous());
            const int row = tile.y * ROWS + consumer * 64 + thread / 32 * 16 + lane / 4;
            const int column = tile.x * COLUMNS + lane % 4 * 4;
#pragma unroll
            for (int j = 0; j < J; j += 2)
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    const int y = row + 8 * h, x = column + 8 * j;
                    int *const c = C + (size_t)y * ldc + x;
                    const int four[4] = {sums[j][2 * h], sums[j][2 * h + 1], sums[j + 1][2 * h], sums[j + 1][2 * h + 1]};
                    if (y < m && x + 3 < n && vectors) {
                        const int4 old = beta != 0 ? *(const int4 *)c : make_int4(0, 0, 0, 0);
                        *(int4 *)c = make_int4(alpha * four[0] + beta * old.x, alpha * four[1] + beta * old.y,
                                               alpha * four[2] + beta * old.z, alpha * four[3] + beta * old.w);
                    } else
                        for (int e = 0; e < 4; ++e)
                            if (y < m && x + e < n)
                                c[e] = alpha * four[e] + (beta != 0 ? beta * c[e] : 0);
                }
        }
    }
}
