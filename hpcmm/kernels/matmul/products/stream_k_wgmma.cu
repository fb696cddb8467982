// Matrix product, GPU rung for 16-bit types: the source of split_k_wgmma, with blocks that divide the last tiles.
//
// Each SM has one block. Tiles that fill a wave are computed whole. The steps of the others are divided among all blocks
// alike (stream-K), so that no SM is idle in the last wave. A block writes the sums of its piece of a tile to memory. The
// last block to finish a piece of the tile adds them up in the order of k, so the bits of C do not depend on which one it
// is. Runs on compute capability 9.0 only. Limit: sums of pieces go through the L2 cache, which takes as long as a few
// steps of k.
//
// hpcmm:
//   operation: matmul
//   shelf: product
//   change: all blocks divide the steps of the tiles that do not fill a wave
//   counterpart: split_k_wgmma
//   dtypes: [float16, bfloat16]
//   architecture: sm_90a

#define STREAM_K 1
#include "matmul/products/split_k_wgmma.cu"
