// A warp's tile of C as products of 16 x 8 x 8 elements on tensor cores: the layout of tiles of A and B in shared memory,
// the elements of each lane, the order of the products, and the epilogue.
#ifndef WARP_PRODUCTS_CUH
#define WARP_PRODUCTS_CUH

constexpr int WIDTH = 16 / sizeof(REAL);                                  // elements in 16 bytes
constexpr int MMA_ROWS = WARP_ROWS / 16, MMA_COLUMNS = WARP_COLUMNS / 8;  // products in a warp's tile
// Rows in shared memory are padded: lanes that read at the same time access different banks.
constexpr int A_PITCH = DEPTH + 4, B_PITCH = COLUMNS + 2 * WIDTH;
constexpr int STAGE = ROWS * A_PITCH + DEPTH * B_PITCH;  // elements of a stage: a tile of A, then one of B
constexpr int A_STEP = BLOCK * WIDTH / DEPTH, B_STEP = BLOCK * WIDTH / COLUMNS;  // rows that the block copies at once

static_assert(ROWS * COLUMNS * 32 == BLOCK * WARP_ROWS * WARP_COLUMNS, "a block's warps cover its tile of C");
static_assert(DEPTH % 16 == 0, "fragments of one step are loaded while another is multiplied");

struct alignas(2 * sizeof(REAL)) Pair {
    REAL of[2];
};

// A lane's operands of one step of 8 terms, as the tensor cores take them (ptx.cuh).
struct Fragments {
    REAL a[MMA_ROWS][4], b[MMA_COLUMNS][2];

    // Load terms p to p + 7 from shared memory; tile_a and tile_b are this lane's first elements of the tiles.
    __device__ void load(const REAL *tile_a, const REAL *tile_b, int p)
    {
#pragma unroll
        for (int i = 0; i < MMA_ROWS; ++i)
#pragma unroll
            for (int e = 0; e < 4; ++e)
                a[i][e] = tile_a[(i * 16 + e % 2 * 8) * A_PITCH + p + e / 2 * 4];
#pragma unroll
        for (int j = 0; j < MMA_COLUMNS; ++j)
#pragma unroll
            for (int e = 0; e < 2; ++e)
                b[j][e] = tile_b[(p + e * 4) * B_PITCH + j * 8];
    }
};

// Row and column of element e of a lane's product i, j, relative to the lane's first element of C.
__device__ inline int row_of(int i, int e)
{
    return i * 16 + e / 2 * 8;
}
__device__ inline int column_of(int j, int e)
{
    return j * 8 + e % 2;
}

// Call add(i, j) for each product of a warp's tile, in serpentine order: each operand is used twice in a row.
template <class Add> __device__ void for_each_product(Add add)
{
#pragma unroll
    for (int i = 0; i < MMA_ROWS; ++i)
#pragma unroll
        for (int j = 0; j < MMA_COLUMNS; ++j)
            add(i, i % 2 ? MMA_COLUMNS - 1 - j : j);
}

// Epilogue: C = alpha sums + beta C, for a lane's elements of its warp's tile at row y and column x of C. g and t are
// the numbers of its group of four lanes and of the lane in the group. `reads`: beta is not 0, so C is read: before it
// is written, two rows of each product at a time. The compiler cannot reorder the accesses itself, because a store might
// alias the next load. The products with alpha and beta are not in the branches of the stores: in float64, a warp waits
// for the pipe of the tensor cores each time that it comes to some. PAIRS: the block's tile is inside C, and neighbours
// can be accessed together. If not, lanes t and t ^ 2 exchange an element of their pairs, so that the four lanes of a
// row access neighbours.
template <bool PAIRS>
__device__ inline void epilogue(const REAL (&sums)[MMA_ROWS][MMA_COLUMNS][4], int m, int n, REAL alpha, REAL beta,
                                bool reads, REAL *C, int ldc, int y, int x, int g, int t)
{
    const int top = y + g, left = x + (PAIRS ? 2 * t : t % 2 * 2 + t / 2);
#pragma unroll
    for (int i = 0; i < MMA_ROWS; ++i) {
        // Call `access` with each element e or pair of row h of product j, its address, and whether it is in the first
        // `rows` rows of C.
        const auto each = [&](int rows, const auto &access) {
#pragma unroll
            for (int j = 0; j < MMA_COLUMNS; ++j)
#pragma unroll
                for (int h = 0; h < 2; ++h)
#pragma unroll
                    for (int e = 0; e < (PAIRS ? 1 : 2); ++e) {
                        const int row = top + row_of(i, 2 * h), column = left + column_of(j, 0) + 4 * e;
                        access(j, h, e, C + (size_t)row * ldc + column, PAIRS ? rows > 0 : row < rows && column < n);
                    }
        };
        Pair before[MMA_COLUMNS][2] = {};
        each(reads ? m : 0, [&](int j, int h, int e, const REAL *at, bool exists) {
            if (exists && PAIRS)
                before[j][h] = *(const Pair *)at;
            else if (exists)
                before[j][h].of[e] = *at;
        });
        Pair results[MMA_COLUMNS][2];
#pragma unroll
        for (int j = 0; j < MMA_COLUMNS; ++j)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                Pair sum = {sums[i][j][2 * h], sums[i][j][2 * h + 1]};
                if (!PAIRS) {
                    const REAL other = __shfl_xor_sync(~0u, t < 2 ? sum.of[1] : sum.of[0], 2);
                    sum = {t < 2 ? sum.of[0] : other, t < 2 ? other : sum.of[1]};
                }
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    results[j][h].of[e] = alpha * sum.of[e] + beta * before[j][h].of[e];
                    mov(results[j][h].of[e]);
                }
            }
        each(m, [&](int j, int h, int e, REAL *at, bool exists) {
            if (exists && PAIRS)
                *(Pair *)at = results[j][h];
            else if (exists)
                *at = results[j][h].of[e];
        });
    }
}

#endif
