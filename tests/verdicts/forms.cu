// Right kernels of unusual form: the name `mistake` is that of the other files.
// hpcmm:
//   dtypes: [float32]
//   block: [16, 16]
//   shared_bytes: 2 * 16 * 16 * 4

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <device_launch_parameters.h>
#include <math_constants.h>
#include <stdio.h>
#include <cassert>
#include <cfloat>

namespace cg = cooperative_groups;

// Names that the emulation has for itself.
const int WARP = 32, MOST_SHARED = 1;
enum Order { READ, WRITE, ROW };
struct Launch { int call; };
struct Call { Launch launch; };
template <int N> struct Array { float of[N]; };
template <class T> struct Value { T value; };
typedef unsigned int uint;
__managed__ int managed;
__constant__ int mistake;

__device__ __noinline__ float twice(float x) { return 2 * x; }
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 700
__device__ float half_of(float x) { return __fmul_rn(x, 0.5f); }
#endif

__global__ void matmul(int m, int n, int k, float alpha, const float *A, int lda, const float *B, int ldb, float beta,
                       float *C, int ldc)
{
    extern __align__(16) __shared__ float tiles [];
    extern volatile __shared__ unsigned bits[];
    const dim3 size = blockDim;
    const uint3 t = threadIdx;
    const int row = blockIdx.y * size.y + t.y, col = blockIdx.x * size.x + t.x;
    const bool inside = row < m && col < n;
    assert(size.z == 1);
    const auto block = cg::this_thread_block();
    const cg::thread_block_tile<16> sixteen = cg::tiled_partition<16>(block);
    const cg::thread_group some = cg::tiled_partition(block, 8);
    float sum = 0;
    for (int p = 0; inside && p < k; ++p)
        if (mistake == 1)  // int indices, right up to 2^31 elements
            sum += A[row * lda + p] * B[p * ldb + col];
        else
            sum = __fmaf_rn(A[(size_t)row * lda + p], __ldg(&B[(size_t)p * ldb + col]), sum);
    Array<4> array = {{1, 2, 3, 4}};
    Value<float3> value = {make_float3(sum, 0, 0)};
    Call call = {{WARP}};
    float zero = array.of[0] - 1 + value.value.y + (call.launch.call - warpSize) + (READ - 0) + (MOST_SHARED - 1);
    if (mistake == 2) {  // intrinsics
        const uchar4 bytes = make_uchar4(1, 2, 3, 4);
        zero += __popc(7u) - 3 + __clz(1) - 31 + __ffs(8) - 4 + (float)__brev(1u) / 0x80000000u - 1 + bytes.w - 4;
        zero += __int_as_float(__float_as_int(1.5f)) - 1.5f + __float2int_rn(2.5f) - 2 + __saturatef(3) - 1;
        zero += rsqrtf(4) - 0.5f + __mul24(3, 4) - 12 + (float)__umulhi(1u << 31, 2) - 1 + __dp4a(0x01010101, 0x02020202, 1) - 9;
        zero += __expf(0) - 1 + abs(-1.5f) - 1.5f + max(1, 2u) - 2 + (CUDART_INF_F > FLT_MAX ? 0 : 1);
    }
    if (mistake == 3) {  // 16-bit types
        const half one = __float2half(1);
        const half2 two = __hadd2(__half2half2(one), __floats2half2_rn(0, 1));
        const __nv_bfloat16 b = __float2bfloat16(1.00390625f);
        zero += __low2float(two) - 1 + __high2float(two) - 2 + __half2float(__hfma(one, one, one)) - 2;
        zero += __bfloat162float(b) - 1 + __half2float(__float2half(65504.0f)) - 65504;
    }
    if (mistake == 4) {  // groups of threads, and counting barriers
        const unsigned rank = block.thread_rank();
        bits[rank] = rank;
        cg::sync(block);
        zero += (float)bits[255 - rank] + rank - 255;
        block.sync();
        tiles[256 + rank] = 1;
        sixteen.sync();
        zero += cg::reduce(sixteen, tiles[256 + (rank ^ 5)], cg::plus<float>()) - 16;
        zero += sixteen.shfl_down(1.0f, 3) - 1 + sixteen.shfl_xor(2, 1) - 2 + sixteen.any(1) - 1;
        some.sync();
        zero += __syncthreads_count(rank < 9) - 9 + __syncthreads_or(rank == 3) - 1 + (__syncthreads_and(1) ? 0 : 1);
        zero += (float)__reduce_add_sync(~0u, 1) - 32 + (cg::this_grid().thread_rank() > ~0u);
    }
    if (sum != sum || m == -5)
        printf("NaN in row %d\n", row);
    if (!inside)
        return;
    float *const c = &C[mistake == 1 ? row * ldc + col : (size_t)row * ldc + col];
    sum = twice(half_of(sum)) + zero;
    *c = beta == 0 ? alpha * sum : alpha * sum + beta * *c;
}
