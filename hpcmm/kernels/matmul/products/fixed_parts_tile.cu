// Matrix product, GPU rung: the source of large_thread_tile, with k cut at places that k alone decides.
//
// k is divided into four parts, at multiples of 32. A block computes the parts one after the other. It keeps the running
// sums in shared memory and adds the sums of each part to them. The bits of an element of C are those of fixed_parts_fma, which
// computes the parts at the same time, for a C of few rows or columns. Limit: as of large_thread_tile.
//
// hpcmm:
//   operation: matmul
//   shelf: product
//   change: a block adds up the sums of four parts of k, which it computes one after the other
//   counterpart: large_thread_tile
//   dtypes: [float32]
//   invariant: true
//   rows: 256
//   columns: 128
//   depth: 8
//   block: 256
//   constants: {STAGES: 4, GROUP_ROWS: 8}
//   shared_bytes: STAGES * DEPTH * (ROWS * ITEMSIZE + 16 + COLUMNS * ITEMSIZE) + ROWS * COLUMNS * ITEMSIZE
//   architecture: sm_90
#define FIXED_PARTS 4
#include "matmul/products/large_thread_tile.cu"
