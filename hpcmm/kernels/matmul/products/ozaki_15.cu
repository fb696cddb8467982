// Matrix product, GPU rung for float64: the source of ozaki_14, with another head.
//
// hpcmm:
//   operation: matmul
//   shelf: product
//   change: the same with 15 products, for four more bits
//   counterpart: ozaki_14
//   dtypes: [float64]
//   arithmetic: 15 int8 products
//   architecture: sm_90a

#include "matmul/products/ozaki_14.cu"
