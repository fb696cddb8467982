// A and B as pairs of FP16 matrices: scaled by powers of two, then split into high and low parts.
//
// FP16 has the 11 bits of TF32 at twice its rate, but a small range. So each row of A and each column of B is multiplied
// by the power of two that brings its largest element into [2^14, 2^15). A scaled x is high + low, both rounded to
// nearest: elements down to 2^-16 of the largest keep 22 bits or more, and smaller ones an absolute error of 2^-40 of the
// largest. An infinity or NaN turns its row or column into NaN.
//
// Along k, PART_TERMS high parts are followed by the PART_TERMS low parts of the same terms, in both matrices. The last
// terms are padded with zeros. So one box of 2 PART_TERMS terms has both parts, and rows are multiples of 16 bytes.
#ifndef FP16_PARTS_CUH
#define FP16_PARTS_CUH

#include "ptx.cuh"

struct alignas(16) Parts {  // of 8 neighbours, in FP16
    unsigned of[4];
};

// A power of two as a product, because a float32 cannot hold all that are needed.
struct alignas(8) Factors {
    float first, second;
};

__device__ inline float power_of_two(int exponent)
{
    return __uint_as_float((unsigned)(127 + exponent) << 23);
}

// Return the power of two that brings x, the bits of the largest element without sign, into [2^14, 2^15), or its inverse.
__device__ inline Factors scale(unsigned largest, int direction)
{
    const int exponent = direction * (14 + 127 - (int)(largest >> 23)), half = exponent >> 1;
    return {power_of_two(half), power_of_two(exponent - half)};
}

// Load 8 neighbours, zeros from the `valid`-th on. `aligned`: 16 bytes can be loaded at a time.
__device__ inline void load_8(float (&x)[8], const float *from, int valid, bool aligned)
{
    if (aligned && valid >= 8) {
        *(float4 *)&x[0] = *(const float4 *)from;
        *(float4 *)&x[4] = *(const float4 *)(from + 4);
    } else
#pragma unroll
        for (int e = 0; e < 8; ++e)
            x[e] = e < valid ? from[e] : 0;
}

__device__ inline unsigned size_of(float x)
{
    return __float_as_uint(x) & 0x7fffffff;
}

// Store the high parts of 8 scaled neighbours at `high` and the low ones at `low`.
__device__ inline void split_8(const float (&x)[8], const Factors (&by)[8], Parts *high, Parts *low)
{
    Parts h, l;
#pragma unroll
    for (int e = 0; e < 8; e += 2) {
        const float y = x[e] * by[e].first * by[e].second, z = x[e + 1] * by[e + 1].first * by[e + 1].second;
        const unsigned pair = cvt_rn_f16x2(y, z);
        h.of[e / 2] = pair;
        l.of[e / 2] = cvt_rn_f16x2(y - cvt_f32_f16(pair & 0xffff), z - cvt_f32_f16(pair >> 16));
    }
    *high = h;
    *low = l;
}

// Split one row of A per `threads` threads of a block, from `first_row` on. `parts` has rows of 2 k elements, k rounded
// up to PART_TERMS.
__device__ inline void split_rows(int m, int k, const float *A, int lda, Parts *parts, Factors *inverse, int first_row,
                                  int threads)
{
    __shared__ unsigned of_warp[SPLIT_BLOCK / 32];
    const int thread = threadIdx.x % threads, group = threadIdx.x / threads, row = first_row + group;
    const int valid = row < m ? k : 0, padded = (valid + PART_TERMS - 1) / PART_TERMS * PART_TERMS;
    const float *const from = A + (size_t)row * lda;
    const bool aligned = lda % 4 == 0 && (size_t)A % 16 == 0;
    unsigned largest = 0;
    float x[8];
#pragma unroll 2
    for (int p = 8 * thread; p < valid; p += 8 * threads) {
        load_8(x, from + p, valid - p, aligned);
#pragma unroll
        for (int e = 0; e < 8; ++e)
            largest = max(largest, size_of(x[e]));
    }
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2)
        largest = max(largest, __shfl_xor_sync(0xffffffff, largest, lanes));
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = largest;
    __syncthreads();
    for (int w = 0; w < threads / 32; ++w)
        largest = max(largest, of_warp[group * (threads / 32) + w]);

    const Factors up = scale(largest, 1), by[8] = {up, up, up, up, up, up, up, up};
    Parts *const target = parts + (size_t)row * (2 * padded / 8);
#pragma unroll 2
    for (int p = 8 * thread; p < padded; p += 8 * threads) {
        load_8(x, from + p, valid - p, aligned);
        Parts *const high = target + (2 * p - p % PART_TERMS) / 8;
        split_8(x, by, high, high + PART_TERMS / 8);
    }
    if (thread == 0 && row < m)
        inverse[row] = scale(largest, -1);
}

// Split SPLIT_COLUMNS columns of B per cluster, whose blocks divide the terms. `parts` has 2 k rows, k rounded up to
// PART_TERMS, of n elements, rounded up to 8.
__device__ inline void split_columns(int n, int k, const float *B, int ldb, Parts *parts, Factors *inverse,
                                     int first_column, int rank)
{
    constexpr int GROUPS = SPLIT_COLUMNS / 8, ROWS_AT_ONCE = SPLIT_BLOCK / GROUPS;  // 8 columns per thread
    __shared__ unsigned of_part[SPLIT_COLUMNS], of_column[SPLIT_COLUMNS];
    const int thread = threadIdx.x, group = thread % GROUPS, column = first_column + group * 8;
    const int blocks = (k + PART_TERMS - 1) / PART_TERMS, row_of_parts = (n + 7) / 8;
    const int begin = blocks * rank / SPLIT_PARTS * PART_TERMS, end = blocks * (rank + 1) / SPLIT_PARTS * PART_TERMS;
    const bool aligned = ldb % 4 == 0 && (size_t)B % 16 == 0;
    if (thread < SPLIT_COLUMNS)
        of_part[thread] = 0;
    unsigned largest[8] = {};
    float x[8];
#pragma unroll 2
    for (int p = begin + thread / GROUPS; p < min(end, k); p += ROWS_AT_ONCE) {
        load_8(x, B + (size_t)p * ldb + column, n - column, aligned);
#pragma unroll
        for (int e = 0; e < 8; ++e)
            largest[e] = max(largest[e], size_of(x[e]));
    }
    __syncthreads();
#pragma unroll
    for (int e = 0; e < 8; ++e) {
#pragma unroll
        for (int lanes = 16; lanes >= GROUPS; lanes /= 2)
            largest[e] = max(largest[e], __shfl_xor_sync(0xffffffff, largest[e], lanes));
        if (thread % 32 < GROUPS)
            atomicMax(&of_part[group * 8 + e], largest[e]);
    }
    barrier_cluster_arrive();
    barrier_cluster_wait();
    if (thread < SPLIT_COLUMNS) {
        unsigned of_all = of_part[thread];
        for (int other = 1; other < SPLIT_PARTS; ++other) {
            float bits;
            ld_shared_cluster(bits, mapa(&of_part[thread], (rank + other) % SPLIT_PARTS));
            of_all = max(of_all, __float_as_uint(bits));
        }
        of_column[thread] = of_all;
        if (rank == 0)
            inverse[first_column + thread] = scale(of_all, -1);
    }
    __syncthreads();

    Factors by[8];
#pragma unroll
    for (int e = 0; e < 8; ++e)
        by[e] = scale(of_column[group * 8 + e], 1);
#pragma unroll 2
    for (int p = begin + thread / GROUPS; p < end && column < n; p += ROWS_AT_ONCE) {
        load_8(x, B + (size_t)p * ldb + column, p < k ? n - column : 0, aligned);
        Parts *const high = parts + (size_t)(2 * p - p % PART_TERMS) * row_of_parts + column / 8;
        split_8(x, by, high, high + (size_t)PART_TERMS * row_of_parts);
    }
    barrier_cluster_arrive();  // no block ends before the others have read its maxima
    barrier_cluster_wait();
}

// Split A and B: the first blocks have the columns of B, up to the end of the last tile of C, the others the rows of A.
extern "C" __global__ void __cluster_dims__(SPLIT_PARTS, 1, 1) __launch_bounds__(SPLIT_BLOCK)
    split(int m, int n, int k, const float *A, int lda, const float *B, int ldb, Parts *parts_a, Parts *parts_b,
          Factors *inverse_a, Factors *inverse_b, int row_threads)
{
    const int blocks_of_b = (n + COLUMNS - 1) / COLUMNS * (COLUMNS / SPLIT_COLUMNS) * SPLIT_PARTS, block = blockIdx.x;
    if (block < blocks_of_b)
        split_columns(n, k, B, ldb, parts_b, inverse_b, block / SPLIT_PARTS * SPLIT_COLUMNS, block % SPLIT_PARTS);
    else
        split_rows(m, k, A, lda, parts_a, inverse_a, (block - blocks_of_b) * (SPLIT_BLOCK / row_threads), row_threads);
}

#endif
