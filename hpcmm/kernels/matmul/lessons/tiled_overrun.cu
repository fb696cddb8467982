// Matrix product, GPU rung: the source of tiled_exact, with another head.
//
// hpcmm:
//   operation: matmul
//   shelf: lesson
//   change: 'the same kernel with the grid rounded up: it accesses memory outside the matrices'
//   counterpart: tiled_exact
//   source: 003 kernel10 at 641
//   tiles: [8, 16, 32]
//   staged: true
//   exact: true
//   guard_rows: 64

#include "matmul/lessons/tiled_exact.cu"
