// A warp multiplies 16 x 8 by the instructions of tensor cores, whose fragments are loaded from copies in shared memory
#include <cuda_fp16.h>
__device__ uint32_t address(const void *p)
{
    uint32_t x;
    asm("{ .reg .u64 long; cvta.to.shared.u64 long, %1; cvt.u32.u64 %0, long; }" : "=r"(x) : "l"(p));
    return x;
}
__device__ void copy16(void *to, const void *from)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], %2;\n" ::"r"(address(to)), "l"(from), "n"(16)
                 : "memory");
}
__global__ void product(const half *A, const half *B, OUT *C, int M, int N, int K)
{
    __shared__ __align__(16) half a[16][16], b[16][8];
    int lane = threadIdx.x, i = blockIdx.y * 16, j = blockIdx.x * 8;
    SUMS;
    for (int k = 0; k < K; k += 16) {
        copy16(&a[lane / 2][lane % 2 * 8], A + (i + lane / 2) * K + k + lane % 2 * 8);
        if (lane < 16) copy16(b[lane], B + (k + lane) * N + j);
        asm volatile("cp.async.commit_group;\n" ::);
        asm volatile("cp.async.wait_group %0;" ::"n"(0));
        __syncthreads();
        uint32_t x[4], y[2];
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])  // of A
                     : "r"(address(&a[lane % 16][lane / 16 * 8])));
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                     : "=r"(y[0]), "=r"(y[1]) : "r"(address(b[lane % 16])));
        MULTIPLY;
        __syncthreads();
    }
    STORE;
}
int main() { product<<<dim3(8, 4), 32>>>(a, b, c, 64, 64, 64); }
