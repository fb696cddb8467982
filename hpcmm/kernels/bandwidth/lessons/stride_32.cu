// Memory bandwidth, GPU rung: the source of stride_1, with another head.
//
// hpcmm:
//   operation: bandwidth
//   shelf: lesson
//   change: global memory, neighbouring threads 32 elements apart
//   counterpart: stride_1
//   source: '004'
//   stride: 32

#include "bandwidth/lessons/stride_1.cu"
