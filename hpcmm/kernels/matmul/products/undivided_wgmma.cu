// Matrix product, GPU rung for 16-bit types: the source of split_k_wgmma, with tiles whose terms are not divided.
//
// Each element of C is one sum in the order of the instructions along k, whatever the tile, so its bits depend neither
// on m nor on the tile. They are those of persistent and multicast, which TMA must be able to load. Limit: a C of few
// rows and columns leaves SMs without a tile.
//
// hpcmm:
//   operation: matmul
//   shelf: product
//   change: each element of C is one sum in the order of k, also of rows that TMA cannot take
//   counterpart: split_k_wgmma
//   dtypes: [float16, bfloat16]
//   invariant: true
//   architecture: sm_90a

#include "matmul/products/split_k_wgmma.cu"
