// The sums of the blocks of a cluster that divide k, in shared memory of each, and the elements of C that they make.
#ifndef PARTS_OF_C_CUH
#define PARTS_OF_C_CUH

#include "matmul/sixteen_bit.cuh"

struct alignas(8) Four {  // neighbours
    unsigned short of[4];
};

// Return four neighbouring sums, added up over the blocks of the cluster in the order of their ranks. `four` points to
// the sums of this block in shared memory.
__device__ inline float4 sums_of_parts(float *four)
{
    if (PARTS == 1)
        return *(const float4 *)four;
    float4 total = ld_shared_cluster_v4(mapa(four, 0));
#pragma unroll
    for (int p = 1; p < PARTS; ++p) {
        const float4 part = ld_shared_cluster_v4(mapa(four, p));
        total = make_float4(total.x + part.x, total.y + part.y, total.z + part.z, total.w + part.w);
    }
    return total;
}

// C = alpha total + beta C in four neighbours at `to`; `whole`: at a multiple of 8 bytes, else the first `count` of them.
__device__ inline void update_four(Element *to, bool whole, int count, float alpha, const float4 &total, float beta)
{
    Four of_c = {};
    if (beta != 0 && whole)
        of_c = *(const Four *)to;
    else if (beta != 0)
#pragma unroll
        for (int e = 0; e < 4; ++e)
            of_c.of[e] = e < count ? to[e].bits : 0;
    const float of[4] = {total.x, total.y, total.z, total.w};
#pragma unroll
    for (int e = 0; e < 4; e += 2) {
        const float low = alpha * of[e], high = alpha * of[e + 1];
        const unsigned pair = beta == 0 ? to_pair(low, high)
                                        : to_pair(low + beta * to_float(of_c.of[e]),
                                                  high + beta * to_float(of_c.of[e + 1]));
        of_c.of[e] = pair, of_c.of[e + 1] = pair >> 16;
    }
    if (whole)
        *(Four *)to = of_c;
    else
#pragma unroll
        for (int e = 0; e < 4; ++e)
            if (e < count)
                to[e].bits = of_c.of[e];
}

#endif
