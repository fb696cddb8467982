#include "ptx.cuh"
constexpr int SPAN = SPAN_BYTES, SWIZZLE = SPAN == 128 ? 1 : SPAN == 64 ? 2 : 3;
__device__ unsigned long long descriptor(const void *box, int leading, int stride)
{
    return __cvta_generic_to_shared(box) >> 4 | (unsigned long long)(leading >> 4) << 16 |
           (unsigned long long)(stride >> 4) << 32 | (unsigned long long)SWIZZLE << 62;
}
extern "C" __global__ void product(SUM *C, const __grid_constant__ TensorMap map_a,
                                   const __grid_constant__ TensorMap map_b)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    unsigned char *const b = shared + 64 * SPAN;
    unsigned long long *const full = (unsigned long long *)(b + B_BYTES);
    if (threadIdx.x == 0) {
        mbarrier_init(full, 1);
        fence_mbarrier_init();
        mbarrier_arrive_expect_tx(full, 64 * SPAN + B_BYTES);
        cp_async_bulk_tensor_shared_global(shared, map_a, 0, 0, full);
        for (int i = 0; i < B_BOXES; ++i)
            cp_async_bulk_tensor_shared_global(b + i * (B_BYTES / B_BOXES), map_b, i * BOX_STEP, 0, full);
    }
    __syncthreads();
    mbarrier_wait(full, 0);
    SUM c[8][4];
    wgmma_fence();
    for (int p = 0; p < SPAN / 32; ++p)  // 32 bytes of terms each
        MULTIPLY(c, descriptor(shared + 32 * p, 16, 8 * SPAN), descriptor(b + B_STEP * p, B_BYTES / B_BOXES, 8 * SPAN),
                 p > 0);
    wgmma_commit_group();
    wgmma_wait_group<0>(c);
    const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
    for (int j = 0; j < 8; ++j)
        for (int i = 0; i < 4; ++i)
            C[(row + i / 2 * 8) * 64 + j * 8 + column + i % 2] = c[j][i];
}
