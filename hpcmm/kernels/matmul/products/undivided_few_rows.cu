// Matrix product, GPU rung for 16-bit types: the source of few_rows_wgmma, with tiles whose k is not divided.
//
// Each element of C is one sum in the order of the instructions along k, as in undivided_wgmma, persistent and multicast.
// wgmma adds up the products of the transpose in the same order, so the bits are the same. Tiles may have fewer rows than
// C, so that more blocks compute it. Limit: each block has all of k, so a small C with many terms leaves SMs idle.
//
// hpcmm:
//   operation: matmul
//   shelf: product
//   change: each element of C is one sum in the order of k, for few rows of C
//   counterpart: few_rows_wgmma
//   dtypes: [float16, bfloat16]
//   invariant: true
//   architecture: sm_90a

#include "matmul/products/few_rows_wgmma.cu"
