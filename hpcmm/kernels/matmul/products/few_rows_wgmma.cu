// Matrix product, GPU rung for 16-bit types: for few rows of C, B is read once at memory bandwidth.
//
// With few rows, the products take less time than loading B, so all that counts is that enough loads of B are in flight
// on all SMs. The other rungs multiply 64 rows of A at a time: with fewer rows, most of their pipeline stages hold
// zeros. Here a warpgroup computes a tile of the transpose of C: its 64 rows are columns of B, and its ROWS columns are
// rows of A. wgmma reads both transposed from shared memory. A stage then holds little but B, so several blocks with
// deep rings fit on an SM. The PARTS blocks of a cluster divide the terms where C has too few columns for all SMs, and
// add up their sums through distributed shared memory in a fixed order. Runs on compute capability 9.0 only. Limit: the
// memory bandwidth for B. With more rows of C than of a tile, B is read again: tiles then have as many rows as occupy the
// SMs best with their parts, for a C with fewer tiles than SMs. Rows that are no multiple of 16 bytes are copied by a
// warp, because TMA does not take them, and that is slow.
//
// hpcmm:
//   operation: matmul
//   shelf: product
//   change: for few rows of C, blocks compute its transpose, so that pipeline stages hold little but B
//   counterpart: split_k_wgmma
//   dtypes: [float16, bfloat16]
//   architecture: sm_90a

#include "matmul/boxes.cuh"
#include "matmul/parts_of_c.cuh"
#include "matmul/prefetch.cuh"
#include "matmul/ring.cuh"

constexpr int J = ROWS / 8, WARPGROUPS = COLUMNS / BOX_COLUMNS, THREADS = 128 * WARPGROUPS;
constexpr int A_BYTES = ROWS * ROW_BYTES, B_BOX = DEPTH * ROW_BYTES, STAGE_BYTES = A_BYTES + WARPGROUPS * B_BOX;
constexpr int PITCH = COLUMNS + 4;  // of rows of sums; avoids bank conflicts
constexpr int FOURS = ROWS * (COLUMNS / 4), MOST = (FOURS + PARTS * BLOCK - 1) / (PARTS * BLOCK);  // of a thread
static_assert(DEPTH == BOX_COLUMNS && BLOCK == THREADS + 32, "a warp loads");
static_assert(ROWS * PITCH * 4 <= STAGES * STAGE_BYTES, "sums take the place of the stages");

extern "C" __global__ void
#if PARTS > 1
    __cluster_dims__(1, 1, PARTS)
#endif
    __launch_bounds__(BLOCK, 1)
    matmul(int m, int n, int k, float alpha, const Element *A, int lda, const Element *B, int ldb, float beta,
           Element *C, int ldc, const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    Ring<STAGE_BYTES, WARPGROUPS> ring(shared, shared + STAGES * STAGE_BYTES);
    const int thread = threadIdx.x, lane = thread % 32, rank = blockIdx.z;
    const int first_row = blockIdx.y * ROWS, first_column = blockIdx.x * COLUMNS;
    const int stages = (k + DEPTH - 1) / DEPTH;
    const int from = (long long)stages * rank / PARTS, to = (long long)stages * (rank + 1) / PARTS;

    const bool by_tma = aligned(A, lda) && aligned(B, ldb);

    const auto load_by_tma = [&](const auto &ring, int start) {
        unsigned char *const a = ring.bytes(), *const b = a + A_BYTES;
        unsigned long long *const full = &ring.full[ring.stage];
        mbarrier_arrive_expect_tx(full, STAGE_BYTES);
#pragma unroll
        for (int w = 0; w < WARPGROUPS; ++w)
            cp_async_bulk_tensor_shared_global(b + w * B_BOX, map_b, first_column + w * BOX_COLUMNS, start, full);
        cp_async_bulk_tensor_shared_global(a, map_a, start, first_row, full);
    };
    const int early = by_tma ? min(to - from, STAGES) : 0;  // steps, loaded before the other threads have started
    if (thread == THREADS) {
        auto first = ring;
        first.init(by_tma ? 1 : 32);
#pragma unroll 1  // less code before the first products
        for (int step = from; step < from + early; ++step, first.advance())
            load_by_tma(first, step * DEPTH);
    }
    __syncthreads();

    // Uniform in a warp, as the compiler can see, so that the addresses of copies and descriptors are in uniform registers.
    const int warpgroup = __shfl_sync(~0u, thread / 128, 0);
    float sums[J][4] = {};
    if (warpgroup == WARPGROUPS) {  // the producer
        ring.skip(early);
        for (int step = from + early; step < to; ++step, ring.advance()) {
            mbarrier_wait(&ring.empty[ring.stage], ring.parity ^ 1);
            const int start = step * DEPTH;
            if (!by_tma) {
                unsigned char *const a = ring.bytes(), *const b = a + A_BYTES;
                copy_box(a, ROWS, {A, lda, m, k}, first_row, start, lane, 32);
                for (int w = 0; w < WARPGROUPS; ++w)
                    copy_box(b + w * B_BOX, DEPTH, {B, ldb, k, n}, start, first_column + w * BOX_COLUMNS, lane, 32);
                fence_proxy_async();
                mbarrier_arrive(&ring.full[ring.stage]);
            } else if (lane == 0)
                load_by_tma(ring, start);
            __syncwarp();
        }
        constexpr int SHARE = (ROWS + PARTS - 1) / PARTS;
        if (beta != 0)  // C arrives during the last products
            prefetch_tile(C, ldc, min(m, first_row + ROWS), n, first_row + rank * SHARE, first_column, SHARE, lane, 32);
    } else {
        for (int step = from; step < to; ++step, ring.advance()) {
            mbarrier_wait(&ring.full[ring.stage], ring.parity);
            const unsigned long long a = descriptor(ring.bytes());
            const unsigned long long b = descriptor(ring.bytes() + A_BYTES + warpgroup * B_BOX);
            wgmma_fence();
#pragma unroll
            for (int p = 0; p < DEPTH; p += 16)
                // 64 x 16 elements of the transpose of B by 16 x 8 J of that of A
                wgmma_mma_async<BFLOAT16>(sums, b + p * ROW_BYTES / 16, a + 2 * p / 16);
            wgmma_commit_group();
            wgmma_wait_group<1>(sums);
            if (step > from && lane == 0)
                mbarrier_arrive(&ring.empty[ring.previous()]);
        }
        wgmma_wait_group<0>(sums);
        barrier_sync(1, THREADS);  // all have read the stages
        float *const own = (float *)shared + lane % 4 * 2 * PITCH + thread / 32 * 16 + lane / 4;
#pragma unroll
        for (int j = 0; j < J; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e)
                own[(8 * j + e % 2) * PITCH + e / 2 * 8] = sums[j][e];
    }
    if (PARTS > 1) {
        barrier_cluster_arrive();
        barrier_cluster_wait();
    } else
        __syncthreads();

    // Every PARTS-th four neighbours are added up by this block.
    const bool vectors = (ldc | n) % 4 == 0 && (size_t)C % sizeof(uint2) == 0;
    const int inside = min(ROWS, m - first_row) * (COLUMNS / 4);
    const auto four = [&](int t) { return (t * PARTS + rank) * BLOCK + thread; };
    const auto for_each = [&](auto what) {
#pragma unroll
        for (int t = 0; t < MOST; ++t) {
            const int i = four(t), y = first_row + i / (COLUMNS / 4), x = first_column + i % (COLUMNS / 4) * 4;
            if (i < inside && x < n)
                what(t, C + (size_t)y * ldc + x, n - x);
        }
    };
    uint2 old[MOST] = {};
    if (beta != 0 && vectors)
        for_each([&](int t, const Element *from, int) { old[t] = *(const uint2 *)from; });
    else if (beta != 0)
        for_each([&](int t, const Element *from, int left) { old[t] = load_four(from, false, left); });
    float4 sums_of[MOST][PARTS];  // all are loaded before the first is added
#pragma unroll
    for (int t = 0; t < MOST; ++t) {
        const int i = min(four(t), FOURS - 1);
        load_parts(sums_of[t], (float *)shared + i / (COLUMNS / 4) * PITCH + i % (COLUMNS / 4) * 4);
    }
    if (PARTS > 1)
        barrier_cluster_arrive();  // this thread has read the sums of the others
    for_each([&](int t, Element *to, int left) {
        store_four(to, vectors, left, alpha, total(sums_of[t]), beta, old[t]);
    });
    if (PARTS > 1)
        barrier_cluster_wait();  // no block ends while another one may still read its sums
}
