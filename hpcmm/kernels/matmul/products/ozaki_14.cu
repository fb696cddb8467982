// Matrix product, GPU rung for float64: products of int8 residues on tensor cores (Ozaki scheme II).
//
// Compared with tensor_core, no float64 number is multiplied. Rows of A and columns of B are scaled and rounded to
// integers, and these are replaced by their residues modulo LAYERS small numbers, which are int8. Tensor cores multiply
// int8 thirty times as fast as float64, and exactly, so LAYERS products cost less than one in float64. residues.cuh has
// the kernels before and after; this one computes all products of residues in one launch. Its blocks are persistent, as
// in the rung persistent: a producer loads tiles by TMA, and two consumers multiply them by wgmma. wgmma takes 8-bit
// operands only with their rows along k, so the residues of B are stored transposed. The epilogue reduces the int32
// sums modulo the modulus, and writes bytes. Runs on compute capability 9.0 only. Limit: the rate of int8 products at
// the power limit. Elements that are much smaller than the norm of their row of A or column of B lose bits.
//
// hpcmm:
//   operation: matmul
//   shelf: product
//   change: float64 from 14 products of int8 residues on tensor cores, rows and columns scaled (Ozaki scheme II)
//   dtypes: [float64]
//   arithmetic: 14 int8 products
//   architecture: sm_90a

#include "matmul/rasterize.cuh"
#include "matmul/residues.cuh"
#include "matmul/ring.cuh"
#include "matmul/swizzled_rows.cuh"

constexpr int J = COLUMNS / 8, CONSUMERS = ROWS / 64;
constexpr int A_BYTES = ROWS * ROW_BYTES, STAGE_BYTES = A_BYTES + COLUMNS * ROW_BYTES;
constexpr int C_BOX = 64 * ROW_BYTES, C_BOXES = COLUMNS / ROW_BYTES;  // of a consumer
constexpr int EXACT_TERMS = 1 << 17;  // whose sum is within int32
static_assert(DEPTH == ROW_BYTES && CONSUMERS == 2 && BLOCK == 128 * (1 + CONSUMERS), "as setmaxnreg divides them");

// 2^38 / modulus, rounded
__constant__ const int MODULUS[] = {MODULI}, RECIPROCAL[] = {RECIPROCALS};

// Layers of C = layers of A times layers of B, modulo each modulus: m x columns elements, with depth terms. The rows of
// a layer of C are rounded up to whole tiles.
extern "C" __global__ void __launch_bounds__(BLOCK, 1)
    matmul(int m, int columns, int depth, const __grid_constant__ TensorMap map_a,
           const __grid_constant__ TensorMap map_b, const __grid_constant__ TensorMap map_c)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    unsigned char *const boxes_c = shared + STAGES * STAGE_BYTES;  // [CONSUMERS][C_BOXES]
    Ring<STAGE_BYTES, CONSUMERS> ring(shared, boxes_c + CONSUMERS * C_BOXES * C_BOX);
    const int group = __shfl_sync(~0u, threadIdx.x / 128, 0), thread = threadIdx.x % 128;  // uniform in a warp
    if (threadIdx.x == 0) {
        for (const TensorMap *map : {&map_a, &map_b, &map_c})
            prefetch_tensormap(*map);
        ring.init(1);
    }
    __syncthreads();

    const int tile_rows = (m + ROWS - 1) / ROWS, tile_columns = (columns + COLUMNS - 1) / COLUMNS;
    const int tiles = tile_rows * tile_columns;
    if (group == 0) {
        setmaxnreg_dec<40>();
        if (thread == 0)
            for (int i = blockIdx.x; i < LAYERS * tiles; i += gridDim.x) {
                const int layer = i / tiles;
                const int2 tile = rasterize(i % tiles, tile_rows, tile_columns);
                const int row = layer * m + tile.y * ROWS, column = layer * columns + tile.x * COLUMNS;
                for (int p = 0; p < depth; p += DEPTH, ring.advance()) {
                    mbarrier_wait(&ring.empty[ring.stage], ring.parity ^ 1);
                    unsigned char *const a = ring.bytes(), *const b = a + A_BYTES;
                    mbarrier_arrive_expect_tx(&ring.full[ring.stage], STAGE_BYTES);
                    cp_async_bulk_tensor_shared_global(a, map_a, p, row, &ring.full[ring.stage]);
                    cp_async_bulk_tensor_shared_global(b, map_b, p, column, &ring.full[ring.stage]);
                }
            }
    } else {
        setmaxnreg_inc<232>();
        const int lane = thread % 32, consumer = group - 1;
        unsigned char *const boxes = boxes_c + consumer * C_BOXES * C_BOX;
        const auto release = [&](int s) {
            if (lane == 0)
                mbarrier_arrive(&ring.empty[s]);
        };
        for (int i = blockIdx.x; i < LAYERS * tiles; i += gridDim.x) {
            const int layer = i / tiles;
            const int2 tile = rasterize(i % tiles, tile_rows, tile_columns);
            const int modulus = MODULUS[layer], reciprocal = RECIPROCAL[layer];
            int sums[J][4] = {};
            for (int first = 0; first < depth; first += EXACT_TERMS) {
                const int last = min(depth, first + EXACT_TERMS);
                for (int p = first; p < last; p += DEPTH, ring.advance()) {
                    mbarrier_wait(&ring.full[ring.stage], ring.parity);
                    unsigned char *const a = ring.bytes(), *const b = a + A_BYTES;
                    wgmma_fence();
#pragma unroll
                    for (int q = 0; q < DEPTH; q += 32)
                        wgmma_mma_async(sums, descriptor(a + consumer * 64 * ROW_BYTES + q), descriptor(b + q), true);
                    wgmma_commit_group();
                    wgmma_wait_group<1>(sums);
                    if (p > first)
                        release(ring.previous());
                }
                wgmma_wait_group<0>(sums);
                release(ring.previous());
                // The quotient is off by less than 1 / modulus: the result is at least 0 and at most the modulus.
#pragma unroll
                for (int j = 0; j < J; ++j)
#pragma unroll
                    for (int e = 0; e < 4; ++e)
                        sums[j][e] -= (__mulhi(sums[j][e], reciprocal) >> 6) * modulus;
            }
            if (thread == 0)
                cp_async_bulk_wait_group_read<0>();  // the tile before has left the boxes
            barrier_sync(consumer + 1, 128);
            const int first_row = thread / 32 * 16 + lane / 4;
#pragma unroll
            for (int j = 0; j < J; j += 2)
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    const int *const left = &sums[j][2 * h], *const right = &sums[j + 1][2 * h];
                    unsigned *const word = (unsigned *)chunk_of(boxes + j / 16 * C_BOX, first_row + 8 * h, j % 16 / 2);
                    word[lane % 4] = left[0] | left[1] << 8 | right[0] << 16 | right[1] << 24;
                }
            fence_proxy_async();
            barrier_sync(consumer + 1, 128);
            if (thread == 0) {
                for (int q = 0; q < C_BOXES; ++q)
                    cp_async_bulk_tensor_global_shared(map_c, tile.x * COLUMNS + q * ROW_BYTES,
                                                       (layer * tile_rows + tile.y) * ROWS + consumer * 64, boxes + q * C_BOX);
                cp_async_bulk_commit_group();
            }
        }
        cp_async_bulk_wait_group<0>();
    }
}
