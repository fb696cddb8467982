// Matrix product, GPU rung: the source of large_thread_tile, with k cut at places that k alone decides.
//
// k is cut into four parts, at multiples of 32. A block computes one part after the other, and adds its sums to those of
// the parts before, which it keeps in shared memory. The bits of an element of C are those of fixed_parts_fma, which
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
