// Matrix product, GPU rung: the source of strassen_1, with another head.
//
// hpcmm:
//   operation: matmul
//   shelf: product
//   change: each of the seven products of quarters is again made of seven
//   counterpart: strassen_1
//   dtypes: [float32, float64, bfloat16]
//   arithmetic: {float32: Strassen twice, float64: Strassen twice, bfloat16: Strassen twice}
//   architecture: sm_90

#include "matmul/products/strassen_1.cu"
