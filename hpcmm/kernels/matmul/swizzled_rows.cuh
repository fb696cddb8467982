// Tiles in shared memory whose rows are 128 bytes, with the 128-byte swizzle of TMA and wgmma, and the order of tiles.
#ifndef SWIZZLED_ROWS_CUH
#define SWIZZLED_ROWS_CUH

// A box in shared memory has rows of 128 bytes, one word in each of the 32 banks. Without a permutation, the chunks of
// eight rows in one column would be in the same four banks. So chunk c of row r is stored at position c ^ (r % 8), the
// 128-byte swizzle of TMA and wgmma, which spreads the eight chunks over all banks. A box starts at a multiple of 1024
// bytes.
constexpr int ROW_BYTES = 128, CHUNK_BYTES = 16;

__device__ inline unsigned char *chunk_of(unsigned char *box, int row, int chunk)
{
    return box + row * ROW_BYTES + (chunk ^ row % 8) * CHUNK_BYTES;
}

// The matrix descriptor (PTX ISA) of boxes with the 128-byte swizzle. An operand whose rows run along k: groups of 8 rows
// are 1024 bytes apart. An operand whose rows run along m or n: groups of 8 rows likewise, and boxes `next_box` bytes
// apart.
__device__ inline unsigned long long descriptor(const void *box, int next_box = 16)
{
    constexpr unsigned long long STRIDE_OFFSET = 8 * ROW_BYTES, SWIZZLE_128 = 1;
    return (__cvta_generic_to_shared(box) & 0x3ffff) >> 4 | (unsigned long long)(next_box >> 4) << 16 |
           STRIDE_OFFSET >> 4 << 32 | SWIZZLE_128 << 62;
}

#endif
