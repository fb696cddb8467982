// Matrix product, GPU rung for float32: one product of TF32, which rounds A and B to 11 bits.
//
// As persistent, with elements of 32 bits: a producer loads by TMA, two consumers multiply, and blocks compute tile
// after tile. wgmma takes 16-bit operands by rows or by columns, but TF32 operands only with neighbours along k side by
// side in memory. A is stored in this order, B is not. So a first launch writes the transpose of B, rounded, to a
// workspace; TMA rounds A on its way to shared memory. If k is not a multiple of 4, A is copied to rows that TMA can
// take. The result is checked against the error bound of TF32, not of float32. Runs on compute capability 9.0 only.
// Limit: the transpose reads and writes B once more.

#include "matmul/pairs_of_c.cuh"
#include "matmul/ring.cuh"
#include "matmul/swizzled_rows.cuh"
#include "matmul/tf32_transpose.cuh"
#include "ptx.cuh"

constexpr int J = COLUMNS / 8, CONSUMERS = ROWS / 64;
constexpr int A_BYTES = ROWS * ROW_BYTES, STAGE_BYTES = A_BYTES + COLUMNS * ROW_BYTES;
static_assert(4 * DEPTH == ROW_BYTES && BLOCK == 128 * (1 + CONSUMERS), "as the roles below are divided");

// Start the product of a warpgroup: 64 x 8 elements of A by 8 x 8 J of B's transpose.
template <int J> __device__ void wgmma_tf32(float (&c)[J][4], unsigned long long a, unsigned long long b)
{
    if constexpr (J == 8)
        wgmma_mma_async_m64n64k8_tf32(c, a, b, true);
    else if constexpr (J == 16)
        wgmma_mma_async_m64n128k8_tf32(c, a, b, true);
    else
        wgmma_mma_async_m64n256k8_tf32(c, a, b, true);
}

// Copy a box of A by `threads` threads, with zeros outside: what TMA cannot take.
__device__ inline void copy_box_of_a(unsigned char *box, const float *A, int lda, int m, int k, int row, int column,
                                     int thread, int threads)
{
#pragma unroll 4
    for (int i = thread; i < ROWS * DEPTH; i += threads) {
        const int y = i / DEPTH, x = i % DEPTH;
        const bool inside = row + y < m && column + x < k;
        ((float *)chunk_of(box, y, x / 4))[x % 4] = inside ? rounded(A[(size_t)(row + y) * lda + column + x]) : 0;
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK, 1)
    matmul(int m, int n, int k, float alpha, const float *A, int lda, const float *B, int ldb, float beta, float *C,
           int ldc, const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    Ring<STAGE_BYTES, CONSUMERS> ring(shared, shared + STAGES * STAGE_BYTES);
    const int group = __shfl_sync(~0u, threadIdx.x / 128, 0), thread = threadIdx.x % 128;  // uniform in a warp
    const bool a_by_tma = lda % 4 == 0 && (size_t)A % 16 == 0;
    if (threadIdx.x == 0) {
        prefetch_tensormap(map_a);
        prefetch_tensormap(map_b);
        ring.init(a_by_tma ? 1 : 128);
    }
    __syncthreads();

    const int tile_rows = (m + ROWS - 1) / ROWS, tile_columns = (n + COLUMNS - 1) / COLUMNS;
    const int tiles = tile_rows * tile_columns;
    if (group == 0) {
        setmaxnreg_dec<56>();
        if (!a_by_tma || thread == 0)
            for (int i = blockIdx.x; i < tiles; i += gridDim.x) {
                const int2 tile = rasterize(i, tile_rows, tile_columns);
                for (int start = 0; start < k; start += DEPTH, ring.advance()) {
                    mbarrier_wait(&ring.empty[ring.stage], ring.parity ^ 1);
                    unsigned char *const a = ring.bytes(), *const b = a + A_BYTES;
                    if (!a_by_tma) {
                        copy_box_of_a(a, A, lda, m, k, tile.y * ROWS, start, thread, 128);
                        fence_proxy_async();
                    }
                    if (thread == 0) {
                        mbarrier_arrive_expect_tx(&ring.full[ring.stage],
                                                  a_by_tma ? STAGE_BYTES : STAGE_BYTES - A_BYTES);
                        if (a_by_tma)
                            cp_async_bulk_tensor_shared_global(a, map_a, start, tile.y * ROWS, &ring.full[ring.stage]);
                        cp_async_bulk_tensor_shared_global(b, map_b, start, tile.x * COLUMNS, &ring.full[ring.stage]);
                    } else
                        mbarrier_arrive(&ring.full[ring.stage]);
                }
            }
    } else {
        setmaxnreg_inc<224>();
        const int lane = thread % 32, consumer = group - 1;
        const bool pairs = ldc % 2 == 0 && (size_t)C % 8 == 0;
        for (int i = blockIdx.x; i < tiles; i += gridDim.x) {
            const int2 tile = rasterize(i, tile_rows, tile_columns);
            float sums[J][4] = {};
            for (int start = 0; start < k; start += DEPTH, ring.advance()) {
                mbarrier_wait(&ring.full[ring.stage], ring.parity);
                unsigned char *const a = ring.bytes(), *const b = a + A_BYTES;
                wgmma_fence();
#pragma unroll
                for (int p = 0; p < DEPTH; p += 8)
                    wgmma_tf32(sums, descriptor(a + consumer * 64 * ROW_BYTES + 4 * p), descriptor(b + 4 * p));
                wgmma_commit_group();
                wgmma_wait_group<1>(sums);
                if (start > 0 && lane == 0)
                    mbarrier_arrive(&ring.empty[ring.previous()]);
            }
            wgmma_wait_group<0>(sums);
            if (k > 0 && lane == 0)
                mbarrier_arrive(&ring.empty[ring.previous()]);
            const bool whole = (tile.y + 1) * ROWS <= m && (tile.x + 1) * COLUMNS <= n && pairs;
            update_pairs(sums, m, n, alpha, beta, C, ldc, tile.y * ROWS + consumer * 64 + thread / 32 * 16 + lane / 4,
                         tile.x * COLUMNS + lane % 4 * 2, whole);
        }
    }
}
