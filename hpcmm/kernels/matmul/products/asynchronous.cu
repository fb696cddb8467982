// Matrix product, GPU rung: cp.async copies tiles into a ring of pipeline stages while the warps multiply.
//
// Compared with warp_tiled:
//   - cp.async copies from global to shared memory without passing through registers. The ring holds STAGES tiles: one
//     is multiplied while the next ones arrive, and one barrier per tile is enough. The copies transpose A, and copy
//     one element each: cp.async copies as little as 4 or 8 bytes.
//   - Fragments are double buffered: those of step p + 1 are loaded from shared memory while step p multiplies.
//   - Addresses are incremented, not recomputed, and bounds checks are few: most of the remaining instructions are
//     arithmetic. Rows of A past the end are copies of the last row, because their sums are never stored. cp.async
//     itself writes zeros for elements past the ends of n and k.
//
// Needs compute capability 8.0. Limit: blocks that run at the same time cover whole rows of tiles of C, so they share
// few tiles in the L2 cache.
//
// hpcmm:
//   operation: matmul
//   shelf: product
//   change: tiles arrive by cp.async in a ring of stages; operands are loaded one step ahead
//   counterpart: warp_tiled
//   rows: 128
//   columns: 128
//   depth: 8
//   block: 256
//   constants: {STAGES: 3}
//   shared_bytes: STAGES * DEPTH * (ROWS * ITEMSIZE + 16 + COLUMNS * ITEMSIZE)
//   architecture: sm_80

#include "matmul/copied_tiles.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT)
    matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    extern __shared__ __align__(16) unsigned char shared[];
    compute_tile(shared, blockIdx.y * ROWS, blockIdx.x * COLUMNS, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc);
}
