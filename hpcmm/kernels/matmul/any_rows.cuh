// Rows of 16-bit elements of any alignment: loads of chunks that start anywhere, and C through boxes of a warp.
#ifndef ANY_ROWS_CUH
#define ANY_ROWS_CUH

#include "matmul/boxes.cuh"

constexpr int Q = COLUMNS / BOX_COLUMNS;
constexpr int WARP_BOX = 16 * ROW_BYTES;  // bytes of a warp's box of C

// The elements (row, column) to (row, column + 7) of a matrix, as the two vectors of 16 bytes that hold them. They are
// only loaded here, so that the loads of several chunks are in flight at the same time.
struct ShiftedChunk {
    uint4 low = {}, high = {};
    int shift = 0, valid = 0;  // elements of `low` before the first one; elements inside the matrix

    __device__ ShiftedChunk() {}
    __device__ ShiftedChunk(const Matrix &from, int row, int column)
        : valid(row < from.rows ? max(0, min(8, from.columns - column)) : 0)
    {
        if (valid == 0)
            return;
        const Element *const first = from.elements + (size_t)row * from.ld + column;
        shift = (size_t)first % sizeof(Chunk) / sizeof(Element);
        low = vector(from, first - shift);
        if (shift + valid > 8)
            high = vector(from, first - shift + 8);
    }

    // Load a vector at a multiple of 16 bytes. Elements before and behind the matrix are zero.
    __device__ static uint4 vector(const Matrix &from, const Element *at)
    {
        const Element *const end = from.elements + (size_t)(from.rows - 1) * from.ld + from.columns;
        if (at >= from.elements && at + 8 <= end)
            return *(const uint4 *)at;
        uint4 v = {};
#pragma unroll 1  // rare, so in little code
        for (int e = 7; e >= 0; --e)
            v = make_uint4(v.x << 16 | (at + e >= from.elements && at + e < end ? at[e].bits : 0), v.y << 16 | v.x >> 16,
                           v.z << 16 | v.y >> 16, v.w << 16 | v.z >> 16);
        return v;
    }

    // The elements; those outside the matrix are zero.
    __device__ Chunk shifted() const
    {
        unsigned words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
        for (int w = 0; w < 6; ++w)
            words[w] = shift & 4 ? words[w + 2] : words[w];
#pragma unroll
        for (int w = 0; w < 5; ++w)
            words[w] = shift & 2 ? words[w + 1] : words[w];
#pragma unroll
        for (int w = 0; w < 4; ++w) {
            words[w] = shift & 1 ? prmt_b32(words[w], words[w + 1], 0x5432) : words[w];
            words[w] &= 2 * w + 1 < valid ? ~0u : 2 * w < valid ? 0xffff : 0;
        }
        const uint4 all = make_uint4(words[0], words[1], words[2], words[3]);
        return *(const Chunk *)&all;
    }
};

// Call move(y, x, inside) for the chunks at (y, x) of 16 x 64 elements from (row, column) on, with 32 lanes.
template <class Move>
__device__ inline void for_each_chunk(const Matrix &c, int row, int column, const Move &move)
{
#pragma unroll 4
    for (int i = threadIdx.x % 32; i < 16 * BOX_COLUMNS / 8; i += 32) {
        const int y = i / (BOX_COLUMNS / 8), x = i % (BOX_COLUMNS / 8) * 8;
        move(y, x, row + y < c.rows && column + x < c.columns);
    }
}

// Store 16 x 64 elements from (row, column) on, at `to`, from a box: a row per turn, as pairs at multiples of 4 bytes.
__device__ inline void store_pairs(const Matrix &c, Element *to, unsigned char *box, int row, int column)
{
    const int lane = threadIdx.x % 32;
#pragma unroll 2
    for (int y = 0; y < 16 && row + y < c.rows; ++y, to += c.ld) {
        const int odd = (size_t)to / sizeof(Element) % 2, x = 2 * lane + odd;
        const auto at = [&](int x) { return (unsigned)((const Chunk *)chunk_of(box, y, x / 8))->of[x % 8]; };
        const int width = min(BOX_COLUMNS, c.columns - column);
        if (x + 1 < width)
            *(unsigned *)(to + x) = at(x) | at(x + 1) << 16;
        else if (x < width)
            to[x].bits = at(x);
        if (odd && lane == 0 && width > 0)
            to[0].bits = at(0);
    }
}

// C = alpha sums + beta C in a warp's 16 rows, through a box of 16 x 64 elements in shared memory, so that lanes access
// neighbours in C. `VECTORS`: rows of C are whole chunks at multiples of 16 bytes.
template <bool READ, bool VECTORS, int J>
__device__ void update_rows(const float (&sums)[J][4], float alpha, float beta, const Matrix &c, unsigned char *box,
                            int row, int column)
{
    const int lane = threadIdx.x % 32;
    Element *to = (Element *)c.elements + (size_t)row * c.ld + column;
#pragma unroll
    for (int q = 0; q < Q; ++q, column += BOX_COLUMNS, to += BOX_COLUMNS) {
        if (READ) {
            if (VECTORS)
                for_each_chunk(c, row, column, [&](int y, int x, bool inside) {
                    *(Chunk *)chunk_of(box, y, x / 8) = inside ? *(const Chunk *)(to + (size_t)y * c.ld + x) : Chunk{};
                });
            else
#pragma unroll 1
                for (int first = 0; first < 16; first += 8) {
                    unsigned short elements[16];  // all loads are in flight before the first is awaited
#pragma unroll
                    for (int e = 0; e < 16; ++e) {
                        const int y = first + e / 2, x = e % 2 * 32 + lane;
                        const bool inside = row + y < c.rows && column + x < c.columns;
                        elements[e] = inside ? to[(size_t)y * c.ld + x].bits : 0;
                    }
#pragma unroll
                    for (int e = 0; e < 16; ++e) {
                        const int y = first + e / 2, x = e % 2 * 32 + lane;
                        ((Chunk *)chunk_of(box, y, x / 8))->of[x % 8] = elements[e];
                    }
                }
            __syncwarp();
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            unsigned char *const chunk = chunk_of(box, lane % 16, 2 * i + lane / 16);
            unsigned pairs[4] = {};
            if (READ)
                ldmatrix_x4(pairs, chunk);
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const float *const pair = &sums[q * 8 + 2 * i + j / 2][j % 2 * 2];
                pairs[j] = READ ? to_pair(alpha * pair[0] + beta * to_float(pairs[j] & 0xffff),
                                          alpha * pair[1] + beta * to_float(pairs[j] >> 16))
                                : to_pair(alpha * pair[0], alpha * pair[1]);
            }
            stmatrix_x4(chunk, pairs);
        }
        __syncwarp();
        if (VECTORS)
            for_each_chunk(c, row, column, [&](int y, int x, bool inside) {
                if (inside)
                    *(Chunk *)(to + (size_t)y * c.ld + x) = *(const Chunk *)chunk_of(box, y, x / 8);
            });
        else
            store_pairs(c, to, box, row, column);
        __syncwarp();
    }
}

// The same for any beta and alignment.
template <int J>
__device__ void update_rows(const float (&sums)[J][4], float alpha, float beta, const Matrix &c, unsigned char *box,
                            int row, int column)
{
    const bool vectors = c.columns % 8 == 0 && aligned(c.elements, c.ld);
    if (vectors && beta != 0)
        update_rows<true, true>(sums, alpha, beta, c, box, row, column);
    else if (vectors)
        update_rows<false, true>(sums, alpha, beta, c, box, row, column);
    else if (beta != 0)
        update_rows<true, false>(sums, alpha, beta, c, box, row, column);
    else
        update_rows<false, false>(sums, alpha, beta, c, box, row, column);
}

#endif
