// Matrix product, GPU rung for float64: the source of persistent_dmma, with tiles whose terms are not divided.
//
// Each element of C is one sum in the order of the instructions along k, whatever the tile, so its bits depend neither
// on m nor on the tile. Limit: small tiles read each operand more often than the slices of larger ones.
//
// hpcmm:
//   operation: matmul
//   shelf: product
//   change: each element of C is one sum in the order of k, in narrow tiles for few rows or columns
//   counterpart: persistent_dmma
//   dtypes: [float64]
//   invariant: true
//   architecture: sm_90a

#include "matmul/products/persistent_dmma.cu"
