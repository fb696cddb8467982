// Matrix product, GPU rung: blocks that run at the same time share their tiles in the L2 cache.
//
// Compared with asynchronous, blocks compute the tiles of C in another rasterization order ("swizzled"): they go down
// the columns of groups of GROUP_ROWS rows of tiles, not along whole rows. The resident blocks then cover a nearly
// square part of C. They read fewer different rows of A and columns of B, and more of their tiles come from L2.
// Needs compute capability 8.0. Limit: loads from shared memory, 16 elements per thread for 64 products.
//
// hpcmm:
//   operation: matmul
//   shelf: product
//   change: blocks traverse C in groups of rows of tiles, to share tiles in the L2 cache
//   counterpart: asynchronous
//   rows: 128
//   columns: 128
//   depth: 8
//   block: 256
//   constants: {STAGES: 3, GROUP_ROWS: 8}
//   shared_bytes: STAGES * DEPTH * (ROWS * ITEMSIZE + 16 + COLUMNS * ITEMSIZE)
//   architecture: sm_80

#include "matmul/copied_tiles.cuh"
#include "matmul/rasterize.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT)
    matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    extern __shared__ __align__(16) unsigned char shared[];
    const int2 tile = rasterize(blockIdx.y * gridDim.x + blockIdx.x, gridDim.y, gridDim.x);
    compute_tile(shared, tile.y * ROWS, tile.x * COLUMNS, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc);
}
