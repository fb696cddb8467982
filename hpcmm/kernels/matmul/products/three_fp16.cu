// Matrix product, GPU rung for float32: three products of FP16 parts.
//
// Compared with stream_k, A and B are split into FP16 parts instead of TF32 ones, which tensor cores multiply at twice
// the rate. They are split once for all tiles of C: a first launch writes the parts to a workspace. The range of FP16
// is small, so each row of A and each column of B is first scaled by a power of two. The blocks of the second launch
// are persistent, as in the rung persistent, with a producer and two consumers. Tensor cores truncate their sums, so a
// consumer lets them add CHUNK steps from zero, and then adds the result to its sums, with rounding. The consumers do
// this at different times: one multiplies while the other one adds. The epilogue undoes the scaling. Runs on compute
// capability 9.0 only. Limit: elements that are much smaller than the largest one of their row of A or column of B lose
// bits. The split takes a seventh of the time at 4096.
//
// hpcmm:
//   operation: matmul
//   shelf: product
//   change: float32 split into two FP16 parts after scaling rows of A and columns of B, three products added
//   counterpart: warpgroup
//   dtypes: [float32]
//   arithmetic: three FP16 products, rows and columns scaled
//   architecture: sm_90a

#include "matmul/boxes.cuh"
#include "matmul/fp16_parts.cuh"
#include "matmul/pairs_of_c.cuh"
#include "matmul/ring.cuh"

constexpr int J = COLUMNS / 8, CONSUMERS = ROWS / 64;
constexpr int A_BYTES = ROWS * ROW_BYTES, B_BOX = DEPTH * ROW_BYTES;
constexpr int STAGE_BYTES = A_BYTES + COLUMNS / BOX_COLUMNS * B_BOX;
static_assert(DEPTH == BOX_COLUMNS && DEPTH == 2 * PART_TERMS, "a box has the high and the low parts of PART_TERMS terms");
static_assert(BLOCK == 128 * (1 + CONSUMERS) && CONSUMERS == 2 && BFLOAT16 == 0, "as the roles below are divided");

// Sums of up to SHORT_K terms do not use tensor cores: the error of the split is too large for them.
constexpr int SHORT_K = 16;

constexpr int CHUNK = 4;  // steps of PART_TERMS terms that tensor cores add up before the sums are rounded

struct alignas(16) FactorsOfPair {
    Factors column[2];
};

// Start the products of a stage, small ones first; `fresh`: from zero.
__device__ inline void multiply_parts(float (&c)[J][4], const unsigned char *a, const unsigned char *b, bool fresh)
{
#pragma unroll
    for (int p = 0; p < PART_TERMS; p += 16) {
        const auto high_a = descriptor(a + 2 * p), low_a = descriptor(a + 2 * (PART_TERMS + p));
        const auto high_b = descriptor(b + p * ROW_BYTES, B_BOX);
        const auto low_b = descriptor(b + (PART_TERMS + p) * ROW_BYTES, B_BOX);
        wgmma_mma_async<BFLOAT16>(c, low_a, high_b, !fresh || p > 0);
        wgmma_mma_async<BFLOAT16>(c, high_a, low_b, true);
        wgmma_mma_async<BFLOAT16>(c, high_a, high_b, true);
    }
}

// Undo the scaling of A and B.
__device__ inline void unscale(float (&sums)[J][4], const Factors *inverse_a, const Factors *inverse_b, int m, int row,
                               int column)
{
    const Factors of_row[2] = {inverse_a[min(row, m - 1)], inverse_a[min(row + 8, m - 1)]};
#pragma unroll
    for (int j = 0; j < J; ++j) {
        const FactorsOfPair of = *(const FactorsOfPair *)(inverse_b + column + 8 * j);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            sums[j][e] *= of_row[e / 2].first;
            sums[j][e] *= of.column[e % 2].first;
            sums[j][e] *= of_row[e / 2].second;
            sums[j][e] *= of.column[e % 2].second;
        }
    }
}

// The whole product without tensor cores, an element per thread.
__device__ inline void multiply_short(int m, int n, int k, float alpha, const float *A, int lda, const float *B, int ldb,
                                      float beta, float *C, int ldc)
{
    const size_t elements = (size_t)m * n;
#pragma unroll 1
    for (size_t i = (size_t)blockIdx.x * BLOCK + threadIdx.x; i < elements; i += (size_t)gridDim.x * BLOCK) {
        const size_t row = i / n, column = i % n;
        float sum = 0;
#pragma unroll 1
        for (int p = 0; p < k; ++p)
            sum += A[row * lda + p] * B[(size_t)p * ldb + column];
        float *const c = C + row * ldc + column;
        *c = alpha * sum + (beta != 0 ? beta * *c : 0);
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK, 1)
    matmul(int m, int n, int k, float alpha, const float *A, int lda, const float *B, int ldb, float beta, float *C,
           int ldc, const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
           const Factors *inverse_a, const Factors *inverse_b)
{
    if (k <= SHORT_K) {
        multiply_short(m, n, k, alpha, A, lda, B, ldb, beta, C, ldc);
        return;
    }
    extern __shared__ __align__(1024) unsigned char shared[];
    Ring<STAGE_BYTES, CONSUMERS> ring(shared, shared + STAGES * STAGE_BYTES);
    const int group = __shfl_sync(~0u, threadIdx.x / 128, 0), thread = threadIdx.x % 128;  // uniform in a warp
    if (threadIdx.x == 0) {
        prefetch_tensormap(map_a);
        prefetch_tensormap(map_b);
        ring.init(1);
    }
    __syncthreads();

    const int tile_rows = (m + ROWS - 1) / ROWS, tile_columns = (n + COLUMNS - 1) / COLUMNS;
    const int tiles = tile_rows * tile_columns, steps = (k + PART_TERMS - 1) / PART_TERMS;
    if (group == 0) {
        setmaxnreg_dec<24>();
        if (thread == 0)
            for (int i = blockIdx.x; i < tiles; i += gridDim.x) {
                const int2 tile = rasterize(i, tile_rows, tile_columns);
                for (int step = 0; step < steps; ++step, ring.advance()) {
                    mbarrier_wait(&ring.empty[ring.stage], ring.parity ^ 1);
                    unsigned char *const a = ring.bytes(), *const b = a + A_BYTES;
                    mbarrier_arrive_expect_tx(&ring.full[ring.stage], STAGE_BYTES);
                    cp_async_bulk_tensor_shared_global(a, map_a, step * DEPTH, tile.y * ROWS, &ring.full[ring.stage]);
#pragma unroll
                    for (int q = 0; q < COLUMNS / BOX_COLUMNS; ++q)
                        cp_async_bulk_tensor_shared_global(b + q * B_BOX, map_b, tile.x * COLUMNS + q * BOX_COLUMNS,
                                                           step * DEPTH, &ring.full[ring.stage]);
                }
            }
    } else {
        setmaxnreg_inc<240>();
        const int lane = thread % 32, consumer = group - 1;
        const bool pairs = ldc % 2 == 0 && (size_t)C % 8 == 0;
        for (int i = blockIdx.x; i < tiles; i += gridDim.x) {
            const int2 tile = rasterize(i, tile_rows, tile_columns);
            const int row = tile.y * ROWS + consumer * 64 + thread / 32 * 16 + lane / 4;
            const int column = tile.x * COLUMNS + lane % 4 * 2;
            float sums[J][4] = {}, products[J][4];
            // The first sum of the second consumer has fewer steps, so that the two do not add at the same time.
            int end = CHUNK - consumer * (CHUNK / CONSUMERS);
            for (int first = 0; first < steps; first = end, end += CHUNK) {
                for (int step = first; step < min(end, steps); ++step, ring.advance()) {
                    mbarrier_wait(&ring.full[ring.stage], ring.parity);
                    unsigned char *const a = ring.bytes(), *const b = a + A_BYTES;
                    wgmma_fence();
                    multiply_parts(products, a + consumer * 64 * ROW_BYTES, b, step == first);
                    wgmma_commit_group();
                    wgmma_wait_group<1>(products);
                    if (step > first && lane == 0)
                        mbarrier_arrive(&ring.empty[ring.previous()]);
                }
                wgmma_wait_group<0>(products);
                if (lane == 0)
                    mbarrier_arrive(&ring.empty[ring.previous()]);
#pragma unroll
                for (int j = 0; j < J; ++j)
#pragma unroll
                    for (int e = 0; e < 4; ++e)
                        sums[j][e] += products[j][e];
            }
            unscale(sums, inverse_a, inverse_b, m, row, column);
            const bool whole = (tile.y + 1) * ROWS <= m && (tile.x + 1) * COLUMNS <= n && pairs;
            update_pairs(sums, m, n, alpha, beta, C, ldc, row, column, whole);
        }
    }
}
