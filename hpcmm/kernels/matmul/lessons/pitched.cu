// Matrix product, GPU rung: the source of tiled_padded, with another head.
//
// hpcmm:
//   operation: matmul
//   shelf: lesson
//   change: tiled_padded on copies whose rows start at aligned addresses (pitched allocation)
//   counterpart: tiled_padded
//   source: '001'
//   tiles: [8, 16, 32]
//   staged: true
//   pitched: true

#include "matmul/lessons/tiled_padded.cu"
