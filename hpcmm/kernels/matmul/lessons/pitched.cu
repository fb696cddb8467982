// Matrix product, GPU rung: the source of tiled_padded, with another head.
//
// cudaMallocPitch allocates A, B and C once more, with rows that begin at multiples of 512 bytes, and cudaMemcpy2D copies
// them on the device. A load of a warp then touches no more sectors than its bytes need. The time of the kernel alone is
// without these copies. Limit: as tiled_padded; its loads from global memory are few, so a sector less gains little.
// Source: 001.
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
