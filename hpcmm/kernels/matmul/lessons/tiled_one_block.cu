// Matrix product, GPU rung: the source of tiled_padded, with another head.
//
// hpcmm:
//   operation: matmul
//   shelf: lesson
//   change: 'unused shared memory leaves room for one block of 256 threads on an SM of an H100'
//   counterpart: tiled_two_blocks
//   source: '002'
//   tiles: [16]
//   staged: true
//   shared_bytes: 122880

#include "matmul/lessons/tiled_padded.cu"
