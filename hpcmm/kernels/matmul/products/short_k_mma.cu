// Matrix product, GPU rung for 16-bit types: few terms, where C has most of the bytes, with rows of any alignment.
//
// With few terms, loads and stores of C take most of the time. Vectors of 16 bytes need few instructions, but a tile
// with straight edges can have them only if all rows are multiples of 16 bytes. Here the edges of a tile follow the
// memory: in each row, a tile starts at the multiple of 32 bytes, a sector, before its first column. Rows that are a
// multiple of 16 apart start equally far before it, whatever the leading dimension is. So a warp computes 16 such
// rows, and shifts the columns of B for all of them. B is transposed in shared memory, where a row is a column of B,
// and ldmatrix takes any eight rows. Their order is such that a lane gets eight neighbours of C, so C does not go
// through shared memory. With up to DEPTH terms, C is loaded at the same time as A and B. Needs compute capability
// 8.0. Limit: with more than about 45 terms a thread loads A and B in several turns, and pipelines are faster.
//
// hpcmm:
//   operation: matmul
//   shelf: product
//   change: for few terms; tiles whose edges follow the alignment of each row of C
//   counterpart: short_k_wgmma
//   dtypes: [float16, bfloat16]
//   architecture: sm_80

#include "matmul/any_rows.cuh"

constexpr int SECTOR = 32 / sizeof(Element), RESIDUES = ROWS / 16;
constexpr int GROUPS = COLUMNS / 32 / WIDE;  // of 32 columns of C: a chunk for each of four lanes of a warp
constexpr int ALIKE = 256;                   // rows: every 16th of them is shifted alike
constexpr int CHUNKS_B = COLUMNS / 8 + 2;    // of a row of B: a sector more than of C
static_assert(BLOCK == 32 * RESIDUES * WIDE && DEPTH == BOX_COLUMNS, "WIDE warps for 16 rows");

// The chunk of terms 8 c to 8 c + 7 of a column of B. Lanes of ldmatrix read columns 8 apart, and neighbours of these:
// the swizzle puts such ones in different banks.
__device__ inline unsigned char *chunk_of_column(unsigned char *columns, int x, int c)
{
    return columns + x * ROW_BYTES + (c ^ (x / 8 % 4 * 2 + x % 2)) * CHUNK_BYTES;
}

// Copy `terms` terms from `start` on with all threads: A to a box, whose row 16 w + i is row first_row + w + 16 i, and
// the transpose of B, two terms of eight columns at a time, from first_column on. Terms are rounded up to 16, and
// elements outside the matrices are zero.
__device__ inline void copy(unsigned char *shared, const Matrix &a, const Matrix &b, int first_row, int first_column,
                            int start, int terms)
{
    unsigned char *const columns = shared + ROWS * ROW_BYTES;
    const int chunks = (terms + 15) / 16 * 2, of_a = ROWS * chunks, of_b = CHUNKS_B * chunks * 4;
#pragma unroll 1
    for (int i = threadIdx.x; i < max(of_a, of_b); i += BLOCK) {
        const int y = i / chunks, term = i / CHUNKS_B * 2, x = i % CHUNKS_B * 8;
        ShiftedChunk from_a, even, odd;  // all loads are in flight before the first is awaited
        if (i < of_a)
            from_a = {a, first_row + y / 16 + y % 16 * 16, start + i % chunks * 8};
        if (i < of_b && first_column + x >= 0) {
            even = {b, start + term, first_column + x};
            odd = {b, start + term + 1, first_column + x};
        }
        if (i < of_a)
            *(Chunk *)chunk_of(shared, y, i % chunks) = from_a.shifted();
        if (i >= of_b)
            continue;
        const Chunk evens = even.shifted(), odds = odd.shifted();
#pragma unroll
        for (int e = 0; e < 8; ++e)
            *(unsigned *)(chunk_of_column(columns, x + e, term / 8) + term % 8 * sizeof(Element)) =
                evens.of[e] | (unsigned)odds.of[e] << 16;
    }
    __syncthreads();
}

// Load or store the elements x to x + 7 of a row of n elements; those outside are zero, or not stored. The loops, for
// chunks at an end of the row, shift the elements, so that they take few registers.
__device__ inline uint4 load_chunk(const Element *at, int x, int n)
{
    if (x >= 0 && x + 8 <= n)
        return *(const uint4 *)at;
    uint4 v = {};
#pragma unroll 1
    for (int e = 7; e >= 0; --e)
        v = make_uint4(v.x << 16 | (x + e >= 0 && x + e < n ? at[e].bits : 0), v.y << 16 | v.x >> 16,
                       v.z << 16 | v.y >> 16, v.w << 16 | v.z >> 16);
    return v;
}

__device__ inline void store_chunk(Element *at, int x, int n, uint4 v)
{
    if (x >= 0 && x + 8 <= n) {
        *(uint4 *)at = v;
        return;
    }
#pragma unroll 1
    for (int e = 0; e < 8; ++e) {
        if (x + e >= 0 && x + e < n)
            at[e].bits = v.x;
        v = make_uint4(v.x >> 16 | v.y << 16, v.y >> 16 | v.z << 16, v.z >> 16 | v.w << 16, v.w >> 16);
    }
}

using Sums = float[GROUPS][4][4];
using Chunks = uint4[2][GROUPS];

// Multiply up to DEPTH terms of the tiles: 16 rows from `row` on, and columns of B from `from` on.
__device__ inline void multiply_columns(Sums &sums, unsigned char *shared, int terms, int row, int from)
{
    const int lane = threadIdx.x % 32;
#pragma unroll 1
    for (int p = 0; p < terms; p += 16) {
        unsigned a[4];
        ldmatrix_x4(a, chunk_of(shared, row + lane % 16, p / 8 + lane / 16));
#pragma unroll
        for (int g = 0; g < GROUPS; ++g)
#pragma unroll
            for (int j = 0; j < 4; j += 2) {
                unsigned b[4];
                const int i = lane % 8;  // of the columns of a product, 2 q + e: column 8 q + 2 j + e of a group
                const int column = from + 32 * g + i / 2 * 8 + 2 * (j + lane / 16) + i % 2;
                ldmatrix_x4(b, chunk_of_column(shared + ROWS * ROW_BYTES, column, p / 8 + lane / 8 % 2));
                mma(sums[g][j], a, {b[0], b[1]});
                mma(sums[g][j + 1], a, {b[2], b[3]});
            }
    }
}

// Load a lane's chunks of C: of its rows, `row` and row + 128, from column x on.
__device__ inline void load_c(Chunks &chunks, const Element *at, int ldc, int row, int x, int m, int n)
{
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int g = 0; g < GROUPS; ++g)
            chunks[h][g] = row + 128 * h < m ? load_chunk(at + (ptrdiff_t)(128 * h) * ldc + 32 * g, x + 32 * g, n)
                                             : make_uint4(0, 0, 0, 0);
}

extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT)
    matmul(int m, int n, int k, float alpha, const Element *A, int lda, const Element *B, int ldb, float beta,
           Element *C, int ldc)
{
    extern __shared__ __align__(1024) unsigned char shared[];  // A, then the columns of B
    constexpr int BLOCKS = ALIKE / ROWS;                       // that share ALIKE rows
    const int lane = threadIdx.x % 32, residue = threadIdx.x / 32 / WIDE, first_column = blockIdx.x * COLUMNS;
    const int first_row = blockIdx.y / BLOCKS * ALIKE + blockIdx.y % BLOCKS * RESIDUES;
    const int row = first_row + residue + lane / 4 * 16;
    const int shift = (size_t)(C + (size_t)(first_row + residue) * ldc + first_column) / sizeof(Element) % SECTOR;
    const int column = threadIdx.x / 32 % WIDE * GROUPS * 32 - shift;  // of the warp, in the tile
    const int x = first_column + column + lane % 4 * 8;
    Element *const at = C + (ptrdiff_t)row * ldc + x;
    const Matrix from_a = {A, lda, m, k}, from_b = {B, ldb, k, n};
    Chunks old = {};
    Sums sums;
    if (k <= DEPTH) {  // C is loaded at the same time as A and B
        if (beta != 0)
            load_c(old, at, ldc, row, x, m, n);
        copy(shared, from_a, from_b, first_row, first_column - SECTOR, 0, k);
        memset(sums, 0, sizeof sums);
        multiply_columns(sums, shared, k, residue * 16, SECTOR + column);
    } else {  // sums take the registers of C
        memset(sums, 0, sizeof sums);
        for (int start = 0; start < k; start += DEPTH) {
            const int terms = min(DEPTH, k - start);
            copy(shared, from_a, from_b, first_row, first_column - SECTOR, start, terms);
            multiply_columns(sums, shared, terms, residue * 16, SECTOR + column);
            __syncthreads();  // all have read the tiles
        }
        if (beta != 0)
            load_c(old, at, ldc, row, x, m, n);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
            const unsigned was[4] = {old[h][g].x, old[h][g].y, old[h][g].z, old[h][g].w};
            unsigned pairs[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const float *const sum = &sums[g][j][2 * h];
                pairs[j] = beta != 0 ? to_pair(alpha * sum[0] + beta * to_float(was[j] & 0xffff),
                                               alpha * sum[1] + beta * to_float(was[j] >> 16))
                                     : to_pair(alpha * sum[0], alpha * sum[1]);
            }
            if (row + 128 * h < m)
                store_chunk(at + (ptrdiff_t)(128 * h) * ldc + 32 * g, x + 32 * g, n,
                            make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]));
        }
}
