// A reduction by a tree in shared memory and shuffles. `mistake` selects what is wrong with it; 0: nothing.
// hpcmm:
//   operation: sum
//   dtypes: [float32]
//   block: 128
//   shared_bytes: BLOCK * ITEMSIZE

__constant__ int mistake;
#define IS(number) (mistake == number)

__global__ void reduction(const float *x, size_t n, float *partial, float identity)
{
    extern volatile __shared__ float s [];
    const int t = threadIdx.x, lane = t % 32;
    const size_t i = (size_t)blockIdx.x * BLOCK + t;
    if (IS(1) && i >= n)
        return;
    s[t] = IS(2) ? x[i] : (IS(3) ? i <= n : i < n) ? x[i] : IS(4) ? 1 : identity;
    if (IS(5) && i < n)
        const_cast<float *>(x)[i] = 0;
    if (!IS(6))
        __syncthreads();
    for (int h = BLOCK / 2; h >= (IS(7) ? 64 : 32); h /= 2) {
        if (t < h)
            s[t] = s[t] + s[t + (IS(8) ? h + 1 : h)];
        if (IS(9) && t >= h)
            continue;
        if (!IS(10))
            __syncthreads();
    }
    if (IS(11) && t < 32) {  // relies on warps in lockstep
        for (int h = 16; h; h /= 2)
            s[t] = s[t] + s[t + h];
        if (t == 0)
            partial[blockIdx.x] = s[0];
        return;
    }
    if (t >= (IS(12) ? 16 : 32))
        return;
    float v = s[t];
    for (int d = 16; d > (IS(13) ? 1 : 0); d /= 2) {
        if (IS(14))
            v += lane < 16 ? __shfl_down_sync(~0u, v, d) : 0;
        else if (IS(15)) {
            if (lane < d)
                v += __shfl_down_sync(~0u, v, d);
        } else if (IS(16))
            v += __shfl_down_sync(0xffffu, v, d);
        else
            v += __shfl_down_sync(~0u, v, d);
    }
    for (unsigned h = 16; IS(17) && h >= 0; h /= 2)
        asm volatile("");
    if (IS(18))
        atomicAdd(&partial[blockIdx.x], v / 32);
    else if (t == 0 || IS(19))
        partial[IS(20) ? 0 : blockIdx.x] = v;
}
