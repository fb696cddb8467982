// Matrix product, GPU rung: the source of split_k, with k cut at places that k alone decides.
//
// k is cut into four parts, at multiples of 32. Each slice of a block computes the whole tile for one part, and the sums
// of the parts are added up in order. So each element of C is the same sum in any tile, and its bits depend neither on m
// nor on the tile. They are those of fixed_parts_tile. Narrow tiles occupy all SMs if C has few rows or columns. Limit: the
// sums of four slices fill the registers, so that tiles are half as large as those of split_k.
//
// hpcmm:
//   operation: matmul
//   shelf: product
//   change: four slices have parts of k that depend on k alone, for any tile
//   counterpart: split_k
//   dtypes: [float32]
//   invariant: true
//   architecture: sm_90
//   options: ['--ptxas-options=-O1']
#define FIXED_PARTS 4
#include "matmul/products/split_k.cu"
