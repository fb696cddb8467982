// The lanes of a warp in a tile on the FMA units: fma_tile.cuh and fma_columns.cuh.
#ifndef FMA_LANES_CUH
#define FMA_LANES_CUH

struct alignas(16) Vector {
    float of[4];
};

constexpr __device__ int common_divisor(int a, int b)
{
    return b == 0 ? a : common_divisor(b, a % b);
}

// Column x and row y of this lane among the lanes of its warp. Lanes that differ only in bit 1 read the same words of
// A, lanes that differ only in bit 0 the same words of B: half a warp then loads its 16 bytes per lane in one wavefront
// of shared memory.
__device__ inline int2 place_of_lane()
{
    const int lane = threadIdx.x % 32;
    if (LANE_ROWS == 4)
        return make_int2(lane / 2 % 2 + lane / 4 % 4 * 2, lane % 2 + lane / 16 * 2);
    if (LANE_ROWS == 8)
        return make_int2(lane / 2 % 2 + lane / 8 % 2 * 2, lane % 2 + lane / 4 % 2 * 2 + lane / 16 * 4);
    return make_int2(lane / 2 % 2, lane % 2 + lane / 4 * 2);
}

#endif
