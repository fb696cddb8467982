// Matrix product, GPU rung for 16-bit types: small products, with rows of any alignment.
//
// A small product takes the time of one load that misses all caches, and of what comes before and after it. So there is
// no stage between memory and registers: each lane loads the elements that mma.sync takes from it, one by one, whatever
// the alignment of rows is. All loads of a turn of DEPTH terms are in flight at the same time. Warps of a block take
// turns, and their sums are added in shared memory, from where C is written by rows. Needs compute capability 8.0.
// Limit: each tile loads its rows of A and columns of B through the L1 cache, a few bytes at a time, and larger products
// are slower.
//
// hpcmm:
//   operation: matmul
//   shelf: product
//   change: for small products; fragments are loaded from global memory, and warps divide k
//   counterpart: short_k_mma
//   dtypes: [float16, bfloat16]
//   architecture: sm_80

#include "matmul/sixteen_bit.cuh"
#include "matmul/slices_of_c.cuh"

constexpr int M = ROWS / 16, N = COLUMNS / 8, U = DEPTH / 16;  // rows and columns of instructions; steps of a turn

extern "C" __global__ void __launch_bounds__(BLOCK)
    matmul(int m, int n, int k, float alpha, const Element *A, int lda, const Element *B, int ldb, float beta,
           Element *C, int ldc)
{
    extern __shared__ __align__(16) float shared[];
    const Slices<float> slices = (Slices<float>)shared;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, q = lane % 4;
    const int first_row = blockIdx.y * ROWS, first_column = blockIdx.x * COLUMNS;
    unsigned short old[PER_THREAD];
    if (beta != 0)
        for_each_element(C, ldc, m, n, first_row, first_column,
                         [&](const Element &c, int, int, int e) { old[e] = c.bits; });

    const Element *rows_of_a[2 * M];  // a row past the end is that of another one, whose products are not stored
#pragma unroll
    for (int i = 0; i < 2 * M; ++i)
        rows_of_a[i] = A + (size_t)min(first_row + g + 8 * i, m - 1) * lda;
    const Element *const columns_of_b = B + first_column + g;
    float sums[M][N][4] = {};
#pragma unroll 1
    for (int start = warp * DEPTH; start < k; start += SLICES * DEPTH) {
        unsigned short a[U][2 * M][4], b[U][N][4];
#pragma unroll
        for (int u = 0; u < U; ++u)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int term = min(start + 16 * u + 2 * q + e % 2 + e / 2 * 8, k - 1);
                const Element *const row_of_b = columns_of_b + (size_t)term * ldb;
#pragma unroll
                for (int i = 0; i < 2 * M; ++i)
                    a[u][i][e] = rows_of_a[i][term].bits;
#pragma unroll
                for (int j = 0; j < N; ++j)
                    b[u][j][e] = first_column + g + 8 * j < n ? row_of_b[8 * j].bits : 0;
            }
#pragma unroll
        for (int u = 0; u < U; ++u) {
            unsigned pairs_of_a[2 * M][2], pairs_of_b[N][2];
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const int left = k - (start + 16 * u + 2 * q + 8 * h);  // terms past the end are zero
                const unsigned inside = left > 1 ? ~0u : left > 0 ? 0xffff : 0;
#pragma unroll
                for (int i = 0; i < 2 * M; ++i)
                    pairs_of_a[i][h] = (a[u][i][2 * h] | (unsigned)a[u][i][2 * h + 1] << 16) & inside;
#pragma unroll
                for (int j = 0; j < N; ++j)
                    pairs_of_b[j][h] = (b[u][j][2 * h] | (unsigned)b[u][j][2 * h + 1] << 16) & inside;
            }
#pragma unroll
            for (int i = 0; i < M; ++i)
#pragma unroll
                for (int j = 0; j < N; ++j)
                    mma(sums[i][j], {pairs_of_a[2 * i][0], pairs_of_a[2 * i + 1][0], pairs_of_a[2 * i][1],
                                     pairs_of_a[2 * i + 1][1]}, pairs_of_b[j]);
        }
    }
#pragma unroll
    for (int i = 0; i < M; ++i)
#pragma unroll
        for (int j = 0; j < N; ++j)
#pragma unroll
            for (int h = 0; h < 2; ++h)
                *(float2 *)&slices[warp][16 * i + 8 * h + g][8 * j + 2 * q] =
                    make_float2(sums[i][j][2 * h], sums[i][j][2 * h + 1]);
    __syncthreads();
    for_each_element(C, ldc, m, n, first_row, first_column, [&](Element &c, int y, int x, int e) {
        c.bits = to_pair(alpha * sum_of_slices(slices, y, x) + (beta != 0 ? beta * to_float(old[e]) : 0), 0);
    });
}
