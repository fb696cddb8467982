// Matrix product, GPU rung for int8: small products, in one launch.
//
// Compared with int8_transposed, no tiles pass through shared memory. A lane loads words of four neighbours in each of
// four rows of B, and transposes them in registers, so that each word has four terms of a column, as mma.sync takes
// them. The four columns belong to four instructions. As in direct_mma, fragments are loaded from global memory, and
// the warps of a block take turns of the terms and add their sums in shared memory. Needs compute capability 8.0.
// Limit: each tile loads its rows of A and columns of B through the L1 cache, and larger products are slower.
//
// hpcmm:
//   operation: matmul
//   shelf: product
//   change: 'int8: for small products; lanes load B from global memory, and warps divide k'
//   counterpart: int8_transposed
//   dtypes: [int8]
//   architecture: sm_80

#include "matmul/slices_of_c.cuh"
#include "ptx.cuh"

constexpr int M = ROWS / 16, N = COLUMNS / 32, U = DEPTH / 32;  // rows and columns of instructions; steps of a turn

// Transpose a block of 4 x 4 elements in four words: a word is a row before, and a column after.
__device__ inline void transpose_words(unsigned (&words)[4])
{
    const unsigned low[2] = {prmt_b32(words[0], words[1], 0x5140), prmt_b32(words[2], words[3], 0x5140)};
    const unsigned high[2] = {prmt_b32(words[0], words[1], 0x7362), prmt_b32(words[2], words[3], 0x7362)};
    words[0] = prmt_b32(low[0], low[1], 0x5410);
    words[1] = prmt_b32(low[0], low[1], 0x7632);
    words[2] = prmt_b32(high[0], high[1], 0x5410);
    words[3] = prmt_b32(high[0], high[1], 0x7632);
}

// Load four neighbours in a row of which `left` are left; those past the end are zero. WORDS: all are whole words.
template <bool WORDS> __device__ unsigned four(const signed char *from, int left)
{
    if (WORDS)
        return left > 0 ? *(const unsigned *)from : 0;
    unsigned word = 0;
#pragma unroll
    for (int e = 0; e < 4; ++e)
        word |= e < left ? (unsigned)(unsigned char)from[e] << 8 * e : 0;
    return word;
}

template <bool WORDS>
__device__ void product(int m, int n, int k, int alpha, const signed char *A, int lda, const signed char *B, int ldb,
                        int beta, int *C, int ldc)
{
    extern __shared__ __align__(16) int shared[];
    const Slices<int> slices = (Slices<int>)shared;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, q = lane % 4;
    const int first_row = blockIdx.y * ROWS, first_column = blockIdx.x * COLUMNS;
    int old[PER_THREAD];
    if (beta != 0)
        for_each_element(C, ldc, m, n, first_row, first_column, [&](int c, int, int, int e) { old[e] = c; });

    const signed char *rows_of_a[2 * M];  // a row past the end is that of another one, whose products are not stored
#pragma unroll
    for (int i = 0; i < 2 * M; ++i)
        rows_of_a[i] = A + (size_t)min(first_row + g + 8 * i, m - 1) * lda;
    int sums[M][4 * N][4] = {};
#pragma unroll 1
    for (int start = warp * DEPTH; start < k; start += SLICES * DEPTH) {
        unsigned a[U][2][2 * M], b[U][2][N][4];
#pragma unroll
        for (int u = 0; u < U; ++u)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const int term = start + 32 * u + 16 * h + 4 * q;
#pragma unroll
                for (int i = 0; i < 2 * M; ++i)
                    a[u][h][i] = four<WORDS>(rows_of_a[i] + term, k - term);
#pragma unroll
                for (int e = 0; e < 4; ++e) {  // a term past the end is another one, whose elements of A are zero
                    const signed char *const row = B + (size_t)min(term + e, k - 1) * ldb + first_column + 4 * g;
#pragma unroll
                    for (int j = 0; j < N; ++j)
                        b[u][h][j][e] = four<WORDS>(row + 32 * j, n - (first_column + 4 * g + 32 * j));
                }
            }
#pragma unroll
        for (int u = 0; u < U; ++u)
#pragma unroll
            for (int j = 0; j < N; ++j) {
                transpose_words(b[u][0][j]);
                transpose_words(b[u][1][j]);
#pragma unroll
                for (int e = 0; e < 4; ++e)
#pragma unroll
                    for (int i = 0; i < M; ++i)
                        mma_m16n8k32_s8(sums[i][4 * j + e], {a[u][0][2 * i], a[u][0][2 * i + 1], a[u][1][2 * i],
                                                             a[u][1][2 * i + 1]}, {b[u][0][j][e], b[u][1][j][e]});
            }
    }
    // Column g' of instruction e of a group is its column 4 g' + e: a lane has eight neighbours of C
#pragma unroll
    for (int i = 0; i < 2 * M; ++i)
#pragma unroll
        for (int j = 0; j < N; ++j)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const auto sum = [&](int e) { return sums[i / 2][4 * j + e][2 * (i % 2) + h]; };
                *(int4 *)&slices[warp][8 * i + g][32 * j + 8 * q + 4 * h] = make_int4(sum(0), sum(1), sum(2), sum(3));
            }
    __syncthreads();
    for_each_element(C, ldc, m, n, first_row, first_column, [&](int &c, int y, int x, int e) {
        c = alpha * sum_of_slices(slices, y, x) + (beta != 0 ? beta * old[e] : 0);
    });
}

extern "C" __global__ void __launch_bounds__(BLOCK)
    matmul(int m, int n, int k, int alpha, const signed char *A, int lda, const signed char *B, int ldb, int beta, int *C,
           int ldc)
{
    if ((lda | ldb | n | k) % 4 == 0 && ((size_t)A | (size_t)B) % 4 == 0)
        product<true>(m, n, k, alpha, A, lda, B, ldb, beta, C, ldc);
    else
        product<false>(m, n, k, alpha, A, lda, B, ldb, beta, C, ldc);
}
