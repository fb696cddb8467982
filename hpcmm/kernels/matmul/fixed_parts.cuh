// Where k is cut into FIXED_PARTS parts: at places that depend on k alone, so that each element of C is the same sum of
// as many sums, whatever computes it. 0: k is not cut, or where it suits a kernel.
#ifndef FIXED_PARTS_CUH
#define FIXED_PARTS_CUH

#ifndef FIXED_PARTS
#define FIXED_PARTS 0
#endif

// Return the length of a part; the last ones may be shorter, or empty. It is a multiple of the depth of any stage.
__device__ inline int part_of(int k)
{
    constexpr int MULTIPLE = 32, OF_ALL = MULTIPLE * (FIXED_PARTS > 0 ? FIXED_PARTS : 1);
    return (k + OF_ALL - 1) / OF_ALL * MULTIPLE;
}

#endif
