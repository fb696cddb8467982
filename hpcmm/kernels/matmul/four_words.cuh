// A block of 4 x 4 elements of int8 in four words.
#ifndef FOUR_WORDS_CUH
#define FOUR_WORDS_CUH

#include "ptx.cuh"

// Transpose the block: a word is a row before, and a column after.
__device__ inline void transpose_words(unsigned (&words)[4])
{
    const unsigned low[2] = {prmt_b32(words[0], words[1], 0x5140), prmt_b32(words[2], words[3], 0x5140)};
    const unsigned high[2] = {prmt_b32(words[0], words[1], 0x7362), prmt_b32(words[2], words[3], 0x7362)};
    words[0] = prmt_b32(low[0], low[1], 0x5410);
    words[1] = prmt_b32(low[0], low[1], 0x7632);
    words[2] = prmt_b32(high[0], high[1], 0x5410);
    words[3] = prmt_b32(high[0], high[1], 0x7632);
}

#endif
