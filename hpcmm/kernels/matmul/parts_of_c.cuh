// The sums of the blocks of a cluster that divide k, in shared memory of each, and the elements of C that they make.
#ifndef PARTS_OF_C_CUH
#define PARTS_OF_C_CUH

#include "matmul/sixteen_bit.cuh"

// Load the same four neighbouring elements from the sums of each block of the cluster. `four` is their address in the
// shared memory of this block.
__device__ inline void load_parts(float4 (&parts)[PARTS], float *four)
{
#pragma unroll
    for (int p = 0; p < PARTS; ++p)
        parts[p] = PARTS == 1 ? *(const float4 *)four : ld_shared_cluster_v4(mapa(four, p));
}

// Return the sums of all blocks, added up in the order of their ranks.
__device__ inline float4 total(const float4 (&parts)[PARTS])
{
    float4 sum = parts[0];
#pragma unroll
    for (int p = 1; p < PARTS; ++p)
        sum = make_float4(sum.x + parts[p].x, sum.y + parts[p].y, sum.z + parts[p].z, sum.w + parts[p].w);
    return sum;
}

// Return four neighbours of C as pairs: `whole` at a multiple of 8 bytes, else the first `count` of them.
__device__ inline uint2 load_four(const Element *from, bool whole, int count)
{
    if (whole)
        return *(const uint2 *)from;
    unsigned bits[4];
#pragma unroll
    for (int e = 0; e < 4; ++e)
        bits[e] = e < count ? from[e].bits : 0;
    return make_uint2(bits[0] | bits[1] << 16, bits[2] | bits[3] << 16);
}

// Store alpha total + beta C, of which `old` was loaded. beta = 0: `old` is not used.
__device__ inline void store_four(Element *to, bool whole, int count, float alpha, const float4 &total, float beta,
                                  uint2 old)
{
    const auto pair = [&](float first, float second, unsigned old) {
        return beta == 0 ? to_pair(alpha * first, alpha * second)
                         : to_pair(alpha * first + beta * to_float(old & 0xffff),
                                   alpha * second + beta * to_float(old >> 16));
    };
    const uint2 pairs = make_uint2(pair(total.x, total.y, old.x), pair(total.z, total.w, old.y));
    if (whole)
        *(uint2 *)to = pairs;
    else
#pragma unroll
        for (int e = 0; e < 4; ++e)
            if (e < count)
                to[e].bits = (e < 2 ? pairs.x : pairs.y) >> e % 2 * 16;
}

#endif
