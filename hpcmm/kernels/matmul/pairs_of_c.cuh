// Epilogue of warpgroups that write float32: C = alpha sums + beta C.
#ifndef PAIRS_OF_C_CUH
#define PAIRS_OF_C_CUH

struct alignas(8) PairOfC {
    float of[2];
};

// Update a lane's J x 2 pairs: rows `row` and `row + 8`, columns `column` + 8 j and the next one. `whole`: all pairs of the
// warpgroup are inside C and at multiples of 8 bytes. beta = 0: C is not read. A part of C is loaded before any of it
// is stored: few threads share an SM, so each needs several loads in flight.
template <int J>
__device__ void update_pairs(const float (&sums)[J][4], int m, int n, float alpha, float beta, float *C, int ldc,
                             int row, int column, bool whole)
{
    constexpr int AT_ONCE = 8;
    static_assert(J % AT_ONCE == 0, "whole parts");
    float *const corner = C + (size_t)row * ldc + column;
    if (whole) {
#pragma unroll
        for (int first = 0; first < J; first += AT_ONCE) {
            PairOfC old[AT_ONCE][2] = {};
            if (beta != 0)
#pragma unroll
                for (int j = 0; j < AT_ONCE; ++j)
#pragma unroll
                    for (int h = 0; h < 2; ++h)
                        old[j][h] = *(const PairOfC *)(corner + (size_t)(8 * h) * ldc + 8 * (first + j));
#pragma unroll
            for (int j = 0; j < AT_ONCE; ++j)
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    const float *const sum = &sums[first + j][2 * h], *const of = old[j][h].of;
                    *(PairOfC *)(corner + (size_t)(8 * h) * ldc + 8 * (first + j)) = {alpha * sum[0] + beta * of[0],
                                                                                     alpha * sum[1] + beta * of[1]};
                }
        }
    } else
#pragma unroll
        for (int j = 0; j < J; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int y = row + e / 2 * 8, x = column + 8 * j + e % 2;
                float *const c = corner + (size_t)(e / 2 * 8) * ldc + 8 * j + e % 2;
                if (y < m && x < n)
                    *c = alpha * sums[j][e] + (beta != 0 ? beta * *c : 0);
            }
}

#endif
