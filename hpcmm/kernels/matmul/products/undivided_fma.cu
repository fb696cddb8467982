// Matrix product, GPU rung: the source of split_k, with tiles whose terms are not divided.
//
// Each element of C is one sum in the order of k, whatever the tile, so its bits depend neither on m nor on the tile.
// They are those of large_thread_tile. Narrow tiles have short rows of threads, so that a C of few rows or columns
// occupies all SMs. Limit: the sum of an element is one chain of dependent instructions.
//
// hpcmm:
//   operation: matmul
//   shelf: product
//   change: each element of C is one sum in the order of k, in narrow tiles for few rows or columns
//   counterpart: split_k
//   dtypes: [float32]
//   invariant: true
//   architecture: sm_90
//   options: ['--ptxas-options=-O1']

#include "matmul/products/split_k.cu"
