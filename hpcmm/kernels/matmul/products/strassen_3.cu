// Matrix product, GPU rung: the source of strassen_1, with another head.
//
// hpcmm:
//   operation: matmul
//   shelf: product
//   change: three levels of seven products of quarters
//   counterpart: strassen_2
//   dtypes: [float32, float64, bfloat16]
//   arithmetic: {float32: Strassen three times, float64: Strassen three times, bfloat16: Strassen three times}
//   architecture: sm_90

#include "matmul/products/strassen_1.cu"
