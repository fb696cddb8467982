// Run one CUDA kernel, with unchanged source, on the host and check every memory access.
//
// A kernel's file includes this header, then the kernel, then CUDA_ON_HOST(...). With g++'s
// -fsanitize=thread every load and store becomes a call of __tsan_read4 and the like; -fsanitize=bounds,
// alignment, object-size calls a handler on a violation. The sanitizers' libraries are not linked: this
// header defines those functions, compiled once into a library with -DCUDA_ON_HOST_RUNTIME.
//
// The threads of a block are fibers of one host thread. Each runs to its next barrier or its end. The order
// of threads is ascending, descending or random, in each phase between barriers, and so is the order of
// blocks. Errors:
//   - an access outside the arrays of the launch, the shared memory and the thread's own stack;
//   - an index past a dimension of an array with a declared size, a misaligned or null pointer;
//   - a read of uninitialized shared memory (each block's is filled with 0xff: NaN, -1);
//   - a race in shared memory: two threads access a byte, one of them writes, and no barrier orders them;
//   - a divergent barrier, which not all running threads reach, or which they reach at different lines;
//   - a misaligned asynchronous copy, or one whose target is not shared memory;
//   - no end after MOST_ACCESSES accesses.
// A thread that has returned counts as present at every barrier, as on the device.
//
// The kernels' PTX is in hpcmm/kernels/ptx.cuh. This header defines the same functions for the CPU, and that file's
// include guard, so that including it has no effect:
//   cp_async                        copies at once in ascending order, at the wait in descending order, and at either
//                                   time in random order
//   mma_*, ldmatrix_*               synchronise the lanes of the warp; TF32 operands lose their last 13 bits, and
//                                   float32 sums are truncated
//   wgmma_mma_async_*               reads shared memory and completes at once: a missing wait goes unnoticed
//   wgmma_*group, *fence*           have no effect
//   barrier_cluster_*, mapa         are of clusters of one block
//   barrier_sync                    ends the process: a barrier of part of a block is not modelled
//
// Not detected: races in global memory and between blocks that none of these orders reveals (blocks run one after
// the other, so no block may wait for another); violations of the memory model (fences do nothing); a race with a
// reader that is not among the last two of a byte; a pointer that runs from one static shared array into the next;
// uninitialized global memory, unless the caller fills it with NaN. Not modelled: inline PTX in a kernel, textures,
// limits of registers and memory, fast-math, performance.
#pragma once
#define _GLIBCXX_INCLUDE_NEXT_C_HEADERS  // C's math.h alone: libstdc++'s takes longer than the kernel to compile
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum Kind { READ, WRITE, ATOMIC };
enum Order { ASCENDING, DESCENDING, RANDOM };
struct uint3 {
    unsigned x, y, z;
};
struct dim3 : uint3 {
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : uint3{x, y, z} {}
};
struct Array {  // an array in global memory
    uintptr_t begin, end;
};
struct Launch {  // parameters of a launch, from the test
    uint3 grid, block;
    int order, seed, checked;  // checked: whether reads of unwritten shared memory and races are errors
    int arrays;
    const Array *array;
    size_t dynamic_bytes;
};
constexpr size_t MOST_SHARED = 227 * 1024;
constexpr int WARP = 32;

extern "C" {
const char *cuda_launch(void (*call)(void **), void **arguments, const Launch *, char *shared, char *dynamic);
void cuda_access(const void *address, size_t size, Kind, void *place = __builtin_return_address(0));
uint3 cuda_index(int which) __attribute__((const));  // const: it changes between threads only
void cuda_block_barrier(int line);
const uint64_t *cuda_warp_exchange(unsigned mask, uint64_t value);  // returns the values of all lanes in the mask
void cuda_cp_async(void *target, const void *source, int bytes, int valid);
void cuda_cp_async_commit_group();
void cuda_cp_async_wait_group(int pending);
const char *cuda_dynamic_shared();
}

#ifndef CUDA_ON_HOST_RUNTIME  // ---- definitions for the kernel ----

#define NOT_INSTRUMENTED __attribute__((no_sanitize("thread", "undefined")))
#define __global__ __attribute__((noinline))  // not inlined into a caller without instrumentation
#define __device__
#define __host__
#define __constant__
#define __shared__ thread_local  // the only storage class that is static in a function and can be extern
#define alignas(bytes) __attribute__((aligned(bytes)))  // may follow __shared__
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __forceinline__ inline __attribute__((always_inline))
#define threadIdx cuda_index(0)
#define blockIdx cuda_index(1)
#define blockDim cuda_index(2)
#define gridDim cuda_index(3)
constexpr int warpSize = WARP;

#define CUDA_VECTOR(T, name, bytes)                                                                  \
    struct alignas(2 * bytes) name##2 { T x, y; };                                                   \
    struct alignas(4 * bytes > 16 ? 16 : 4 * bytes) name##4 { T x, y, z, w; };                       \
    inline name##2 make_##name##2(T x, T y) { return {x, y}; }                                       \
    inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
CUDA_VECTOR(int, int, 4)
CUDA_VECTOR(unsigned, uint, 4)
CUDA_VECTOR(float, float, 4)
CUDA_VECTOR(double, double, 8)

template <class T, class U> inline auto min(T a, U b) -> decltype(a + b) { return b < a ? b : a; }
template <class T, class U> inline auto max(T a, U b) -> decltype(a + b) { return a < b ? b : a; }
inline unsigned __float_as_uint(float x) { unsigned bits; memcpy(&bits, &x, sizeof x); return bits; }
inline float __uint_as_float(unsigned bits) { float x; memcpy(&x, &bits, sizeof x); return x; }
inline float fma(float a, float b, float c) { return fmaf(a, b, c); }
template <class T> inline T __ldg(const T *p) { return *p; }
template <class T> inline T __ldca(const T *p) { return *p; }
template <class T> inline T __ldcg(const T *p) { return *p; }
inline double __hiloint2double(int high, int low)
{
    const int words[] = {low, high};
    double x;
    memcpy(&x, words, sizeof x);
    return x;
}

inline void __syncthreads(int line = __builtin_LINE()) { cuda_block_barrier(line); }
inline void __syncwarp(unsigned mask = ~0u) { cuda_warp_exchange(mask, 0); }
inline void __threadfence() {}
inline void __threadfence_block() {}
inline int cuda_lane() { return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % WARP; }
inline unsigned __activemask() { return 1u << cuda_lane(); }  // the minimum that a device may return

template <class T> NOT_INSTRUMENTED T cuda_shuffle(unsigned mask, T value, int source)
{
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    memcpy(&value, &cuda_warp_exchange(mask, bits)[source], sizeof value);
    return value;
}
template <class T> T __shfl_sync(unsigned mask, T value, int source, int width = WARP)
{
    return cuda_shuffle(mask, value, (cuda_lane() & -width) | (source & (width - 1)));
}
template <class T> T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = WARP)
{
    const int lane = cuda_lane(), in_group = lane & (width - 1);
    return cuda_shuffle(mask, value, in_group + (int)distance < width ? lane + (int)distance : lane);
}
template <class T> T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = WARP)
{
    const int lane = cuda_lane(), in_group = lane & (width - 1);
    return cuda_shuffle(mask, value, in_group >= (int)distance ? lane - (int)distance : lane);
}
template <class T> T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = WARP)
{
    const int lane = cuda_lane(), source = lane ^ lanes;
    return cuda_shuffle(mask, value, (source & -width) <= (lane & -width) ? source : lane);
}
NOT_INSTRUMENTED inline unsigned __ballot_sync(unsigned mask, int predicate)
{
    unsigned ballot = 0;
    const uint64_t *values = cuda_warp_exchange(mask, predicate != 0);
    for (int lane = 0; lane < WARP; ++lane)
        ballot |= unsigned(values[lane] == 1) << lane;
    return ballot;
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, !predicate) == 0; }

#define PTX_CUH  // the following functions replace those of ptx.cuh

inline void add_u32(unsigned &sum, unsigned term) { sum += term; }
inline unsigned prmt_b32(unsigned low, unsigned high, unsigned selector)  // of digits below 8
{
    const uint64_t bytes = (uint64_t)high << 32 | low;
    unsigned chosen = 0;
    for (int i = 0; i < 4; ++i)
        chosen |= unsigned(bytes >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
    return chosen;
}

template <int BYTES> void cp_async(void *target, const void *source, int valid = BYTES)
{
    cuda_cp_async(target, source, BYTES, valid);
}
inline void cp_async_commit_group() { cuda_cp_async_commit_group(); }
template <int PENDING> void cp_async_wait_group() { cuda_cp_async_wait_group(PENDING); }

// c += a b over the fragments of a warp, 16 x 8 x 8; `add` is the arithmetic of one element.
template <class T> struct CudaFragments {
    T a[4], b[2];
};
template <class T, class F>
NOT_INSTRUMENTED void cuda_mma(T (&c)[4], const T (&a)[4], const T (&b)[2], F add)
{
    const CudaFragments<T> own = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
    const uint64_t *const lanes = cuda_warp_exchange(~0u, (uintptr_t)&own);
    const int g = cuda_lane() / 4, t = cuda_lane() % 4;
    for (int i = 0; i < 4; ++i) {
        T row[8], column[8];
        for (int p = 0; p < 8; ++p) {
            row[p] = ((const CudaFragments<T> *)lanes[g * 4 + p % 4])->a[p / 4 * 2 + i / 2];
            column[p] = ((const CudaFragments<T> *)lanes[(2 * t + i % 2) * 4 + p % 4])->b[p / 4];
        }
        c[i] = add(c[i], row, column);
    }
    cuda_warp_exchange(~0u, 0);  // keeps a lane's fragments until all lanes have read them
}
inline void mma_m16n8k8_f64(double (&c)[4], const double (&a)[4], const double (&b)[2])
{
    cuda_mma(c, a, b, [](double sum, const double *row, const double *column) NOT_INSTRUMENTED {
        for (int p = 0; p < 8; ++p)
            sum = ::fma(row[p], column[p], sum);
        return sum;
    });
}
inline void mma_m16n8k16_f64(double (&c)[4], const double (&a)[8], const double (&b)[4])
{
    mma_m16n8k8_f64(c, *(const double(*)[4])a, *(const double(*)[2])b);
    mma_m16n8k8_f64(c, *(const double(*)[4])(a + 4), *(const double(*)[2])(b + 2));
}
NOT_INSTRUMENTED inline float cuda_sum_tf32(float start, const float *row, const float *column)
{
    const auto tf32 = [](float x) NOT_INSTRUMENTED { return (double)__uint_as_float(__float_as_uint(x) & ~0x1fffu); };
    double sum = start;
    for (int p = 0; p < 8; ++p)
        sum += tf32(row[p]) * tf32(column[p]);
    const float nearest = sum;
    return fabs(nearest) > fabs(sum) ? nextafterf(nearest, 0) : nearest;
}
inline void mma_m16n8k8_tf32(float (&c)[4], const float (&a)[4], const float (&b)[2])
{
    cuda_mma(c, a, b, cuda_sum_tf32);
}

// 16-bit elements: a number of each type to float32, and to the nearest.
NOT_INSTRUMENTED inline float cvt_f32_f16(unsigned short bits)
{
    const int exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
    const float size = exponent == 31   ? __uint_as_float(0x7f800000 | fraction << 13)
                       : exponent == 0 ? fraction * 0x1p-24f
                                       : __uint_as_float((exponent + 112) << 23 | fraction << 13);
    return bits >> 15 ? -size : size;
}
NOT_INSTRUMENTED inline float cuda_bf16(unsigned short bits) { return __uint_as_float((unsigned)bits << 16); }
NOT_INSTRUMENTED inline unsigned cuda_to_f16(float x)
{
    const unsigned sign = __float_as_uint(x) >> 31 << 15, bits = __float_as_uint(x) & 0x7fffffff;
    if (bits > 0x7f800000)
        return 0x7fff;
    if (bits >= 0x477ff000)  // from 65520 on
        return sign | 0x7c00;
    if (bits < 0x38800000) {  // a subnormal number: adding 0.5 leaves multiples of 2^-24
        return sign | (__float_as_uint(__uint_as_float(bits) + 0.5f) - 0x3f000000);
    }
    return sign | (bits - 0x38000000 + 0xfff + (bits >> 13 & 1)) >> 13;
}
NOT_INSTRUMENTED inline unsigned cuda_to_bf16(float x)
{
    const unsigned bits = __float_as_uint(x);
    return x != x ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
inline unsigned cvt_rn_f16x2(float first, float second) { return cuda_to_f16(first) | cuda_to_f16(second) << 16; }
inline unsigned cvt_rn_bf16x2(float first, float second) { return cuda_to_bf16(first) | cuda_to_bf16(second) << 16; }

// Four 8 x 8 matrices from shared memory, the addresses of whose rows the lanes give.
NOT_INSTRUMENTED inline void cuda_ldmatrix(unsigned (&x)[4], const void *row, bool transposed)
{
    const uint64_t *const rows = cuda_warp_exchange(~0u, (uintptr_t)row);
    const int g = cuda_lane() / 4, t = cuda_lane() % 4;
    unsigned found[4];
    for (int j = 0; j < 4; ++j) {
        unsigned short pair[2];
        for (int e = 0; e < 2; ++e) {
            const int y = transposed ? 2 * t + e : g, column = transposed ? g : 2 * t + e;
            const char *const element = (const char *)rows[j * 8 + y] + column * 2;
            cuda_access(element, 2, READ);
            memcpy(&pair[e], element, 2);
        }
        found[j] = pair[0] | (unsigned)pair[1] << 16;
    }
    cuda_warp_exchange(~0u, 0);
    memcpy(x, found, sizeof found);
}
inline void ldmatrix_x4(unsigned (&x)[4], const void *row) { cuda_ldmatrix(x, row, false); }
inline void ldmatrix_x4_trans(unsigned (&x)[4], const void *row) { cuda_ldmatrix(x, row, true); }

// A sum of 16 products, truncated to float32.
template <class F> NOT_INSTRUMENTED float cuda_sum_16(float start, const unsigned short *row, const unsigned short *column, F number)
{
    double sum = start;
    for (int p = 0; p < 16; ++p)
        sum += (double)number(row[p]) * number(column[p]);
    const float nearest = sum;
    return fabs(nearest) > fabs(sum) ? nextafterf(nearest, 0) : nearest;
}
struct CudaPairs {
    unsigned a[4], b[2];
};
template <class F>
NOT_INSTRUMENTED void cuda_mma_16(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2], F number)
{
    const CudaPairs own = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
    const uint64_t *const lanes = cuda_warp_exchange(~0u, (uintptr_t)&own);
    const int g = cuda_lane() / 4, t = cuda_lane() % 4;
    for (int i = 0; i < 4; ++i) {
        unsigned short row[16], column[16];
        for (int p = 0; p < 16; ++p) {
            const int lane = p % 8 / 2, shift = p % 2 * 16;
            row[p] = ((const CudaPairs *)lanes[g * 4 + lane])->a[p / 8 * 2 + i / 2] >> shift;
            column[p] = ((const CudaPairs *)lanes[(2 * t + i % 2) * 4 + lane])->b[p / 8] >> shift;
        }
        c[i] = cuda_sum_16(c[i], row, column, number);
    }
    cuda_warp_exchange(~0u, 0);  // keeps a lane's fragments until all lanes have read them
}
inline void mma_m16n8k16_f16(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
    cuda_mma_16(c, a, b, cvt_f32_f16);
}
inline void mma_m16n8k16_bf16(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
    cuda_mma_16(c, a, b, cuda_bf16);
}

// A warp's 16 rows of a warpgroup's product. B is read at its matrix descriptor, without a swizzle.
inline size_t __cvta_generic_to_shared(const void *p) { return (const char *)p - cuda_dynamic_shared(); }
NOT_INSTRUMENTED inline void wgmma_mma_async_m64n128k8_tf32(float (&c)[16][4], const float (&a)[4],
                                                            unsigned long long b, bool scale_d)
{
    float rows[2][8];
    const uint64_t *const lanes = cuda_warp_exchange(~0u, (uintptr_t)&a);
    const int g = cuda_lane() / 4, t = cuda_lane() % 4;
    for (int p = 0; p < 8; ++p)
        for (int i = 0; i < 2; ++i)
            rows[i][p] = ((const float *)lanes[g * 4 + p % 4])[p / 4 * 2 + i];
    cuda_warp_exchange(~0u, 0);
    const auto bytes = [b](int field) NOT_INSTRUMENTED { return (b >> field & 0x3fff) * 16; };
    for (int j = 0; j < 16; ++j)
        for (int side = 0; side < 2; ++side) {
            float column[8];
            for (int p = 0; p < 8; ++p) {
                const char *const element = cuda_dynamic_shared() + bytes(0) + p / 4 * bytes(16) + j * bytes(32) +
                                            (2 * t + side) * 16 + p % 4 * 4;
                cuda_access(element, 4, READ);
                memcpy(&column[p], element, 4);
            }
            for (int i = 0; i < 2; ++i)
                c[j][2 * i + side] = cuda_sum_tf32(scale_d ? c[j][2 * i + side] : 0, rows[i], column);
        }
}

// An element of an operand with 128-byte rows: bits 4 to 6 of its place are exchanged by bits 7 to 9 (swizzle).
NOT_INSTRUMENTED inline unsigned short cuda_swizzled(unsigned long long matrix, size_t offset)
{
    size_t place = (matrix & 0x3fff) * 16 + offset;
    if (matrix >> 62 == 1)
        place ^= place >> 3 & 0x70;
    unsigned short element;
    cuda_access(cuda_dynamic_shared() + place, 2, READ);
    memcpy(&element, cuda_dynamic_shared() + place, 2);
    return element;
}
// A warp's 16 rows of a warpgroup's product of 16-bit elements, A by rows and B by rows, at their matrix descriptors.
template <int J, class F>
NOT_INSTRUMENTED void cuda_wgmma_16(float (&c)[J][4], unsigned long long a, unsigned long long b, bool scale_d, F number)
{
    const auto bytes = [](unsigned long long matrix, int field) NOT_INSTRUMENTED { return (matrix >> field & 0x3fff) * 16; };
    const int warp = (threadIdx.x / WARP) % 4, g = cuda_lane() / 4, t = cuda_lane() % 4;
    unsigned short rows[2][16];
    for (int i = 0; i < 2; ++i)
        for (int p = 0; p < 16; ++p)
            rows[i][p] = cuda_swizzled(a, (warp * 2 + i) * bytes(a, 32) + g * 128 + p * 2);
    for (int j = 0; j < J; ++j)
        for (int side = 0; side < 2; ++side) {
            const int x = j * 8 + 2 * t + side;
            unsigned short column[16];
            for (int p = 0; p < 16; ++p)
                column[p] = cuda_swizzled(b, x / 64 * bytes(b, 16) + p / 8 * bytes(b, 32) + p % 8 * 128 + x % 64 * 2);
            for (int i = 0; i < 2; ++i) {
                float &sum = c[j][2 * i + side];
                sum = cuda_sum_16(scale_d ? sum : 0, rows[i], column, number);
            }
        }
}
#define CUDA_WGMMA_16(N)                                                                                             \
    inline void wgmma_mma_async_m64n##N##k16_f16(float (&c)[N / 8][4], unsigned long long a, unsigned long long b,    \
                                                 bool scale_d)                                                       \
    {                                                                                                                \
        cuda_wgmma_16(c, a, b, scale_d, cvt_f32_f16);                                                                \
    }                                                                                                                \
    inline void wgmma_mma_async_m64n##N##k16_bf16(float (&c)[N / 8][4], unsigned long long a, unsigned long long b,   \
                                                  bool scale_d)                                                      \
    {                                                                                                                \
        cuda_wgmma_16(c, a, b, scale_d, cuda_bf16);                                                                  \
    }
CUDA_WGMMA_16(64)
CUDA_WGMMA_16(128)
CUDA_WGMMA_16(256)
inline void wgmma_fence() {}
inline void wgmma_commit_group() {}
template <int PENDING, int J> void wgmma_wait_group(float (&)[J][4]) {}
inline void fence_proxy_async() {}

// A cluster of one block.
inline void barrier_cluster_arrive() {}
inline void barrier_cluster_wait() { __syncthreads(); }
inline unsigned mapa(const void *p, int) { return __cvta_generic_to_shared(p); }
template <class T> void ld_shared_cluster(T &x, unsigned address) { x = *(const T *)(cuda_dynamic_shared() + address); }
inline void st_shared_cluster_v4(unsigned address, const float4 &x) { *(float4 *)(cuda_dynamic_shared() + address) = x; }
inline void barrier_sync(int, int) { __builtin_trap(); }  // named barriers are not modelled

template <class T, class F> NOT_INSTRUMENTED __attribute__((noinline)) T cuda_atomic(T *p, F change)
{
    cuda_access(p, sizeof(T), ATOMIC);
    const T old = *p;
    *p = change(old);
    return old;
}
template <class T> struct Plain { using type = T; };  // T is deduced from the address alone
template <class T> using Value = typename Plain<T>::type;
template <class T> T atomicAdd(T *p, Value<T> v) { return cuda_atomic(p, [=](T old) { return old + v; }); }
template <class T> T atomicMin(T *p, Value<T> v) { return cuda_atomic(p, [=](T old) { return min(old, v); }); }
template <class T> T atomicMax(T *p, Value<T> v) { return cuda_atomic(p, [=](T old) { return max(old, v); }); }
template <class T> T atomicExch(T *p, Value<T> v) { return cuda_atomic(p, [=](T) { return v; }); }
template <class T> T atomicCAS(T *p, Value<T> expected, Value<T> v)
{
    return cuda_atomic(p, [=](T old) { return old == expected ? v : old; });
}
inline unsigned atomicInc(unsigned *p, unsigned last)
{
    return cuda_atomic(p, [=](unsigned old) { return old >= last ? 0 : old + 1; });
}

// Call a kernel with the addresses of its arguments, as cuLaunchKernel does.
template <class... P> struct Call {
    NOT_INSTRUMENTED Call(void (*kernel)(P...), P... arguments) { kernel(arguments...); }
};
template <class... P> NOT_INSTRUMENTED void cuda_call(void (*kernel)(P...), void **arguments)
{
    Call<P...>{kernel, *(P *)*arguments++...};  // braces keep the order
}
template <class... P> NOT_INSTRUMENTED int cuda_sizes(void (*)(P...), int *sizes)
{
    ((*sizes++ = sizeof(P)), ...);
    return sizeof...(P);
}
thread_local char cuda_any_shared;  // its address locates this library's shared memory

// Follows the kernel's source; `dynamic` is its extern __shared__ array or nullptr.
#define CUDA_ON_HOST(kernel, dynamic)                                                                        \
    extern "C" int parameter_sizes(int *sizes) { return cuda_sizes(kernel, sizes); }                         \
    extern "C" NOT_INSTRUMENTED const char *launch(void **arguments, const Launch *launch)                   \
    {                                                                                                        \
        cuda_any_shared = 0;                                                                                 \
        void (*const call)(void **) = [](void **each) NOT_INSTRUMENTED { cuda_call(kernel, each); };         \
        return cuda_launch(call, arguments, launch, &cuda_any_shared, (char *)dynamic);                      \
    }

#else  // ---- runtime ----

#include <link.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <ucontext.h>

namespace {

constexpr int MOST_THREADS = 1024, MOST_BLOCKS = 1 << 20, MOST_COPIES = 256;
constexpr size_t STACK = 64 * 1024, MARGIN = 1 << 20;
constexpr long MOST_ACCESSES = 1L << 26;

enum State { READY, AT_BLOCK_BARRIER, AT_WARP_BARRIER, RETURNED };
struct Copy {  // a pending asynchronous copy
    char *target;
    const char *source;
    int bytes, valid, group;
    uintptr_t place;
};
struct Thread {
    State state;
    int line;           // line of the block barrier it waits at
    unsigned mask;      // mask of the warp barrier it waits at
    uint64_t value;     // its value in a warp exchange
    uint64_t got[WARP];
    unsigned seen[WARP];  // time up to which the accesses of each lane of its warp are ordered before its own
    Copy copy[MOST_COPIES];
    int copies, group;  // group: number of the open commit group
    bool has_stack;
    ucontext_t start;
    jmp_buf here;
};
struct Byte {  // a byte of shared memory: its last write and its last reads by two threads, with times and places
    unsigned written, read, other_read;
    unsigned written_at, read_at, other_read_at;
    short writer, reader, other_reader;
    bool atomic;
};

Thread thread[MOST_THREADS];
int threads, current = -1;  // current: -1 while no thread of a kernel runs
jmp_buf scheduler;
char *stacks;
uint3 index_of[4];  // threadIdx, blockIdx, blockDim, gridDim

const Launch *launched;
void (*call_kernel)(void **);
void **kernel_arguments;
char *shared_begin, *shared_end, *dynamic_begin;
uintptr_t globals_begin, globals_end;  // variables and constants of the kernel's file
uintptr_t library_begin, place;  // place: of the current access in the kernel's code, 0 if unknown

Byte *bytes;
unsigned now = 1, block_start, block_barrier;  // times count barriers
long accesses;
unsigned random_state;
char message[512];

unsigned random_below(unsigned n) { return ((random_state = random_state * 1664525 + 1013904223) >> 8) % n; }

void put_in_order(int *list, int n)
{
    for (int i = 0; i < n; ++i)
        list[i] = launched->order == DESCENDING ? n - 1 - i : i;
    for (int i = n; launched->order == RANDOM && i > 1; --i) {
        const int j = random_below(i), last = list[i - 1];
        list[i - 1] = list[j], list[j] = last;
    }
}

// End the launch with a message; called from a kernel's thread it does not return.
void fail(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    size_t length = vsnprintf(message, sizeof message, format, values);
    va_end(values);
    const uint3 b = index_of[1], t = index_of[0];
    if (current >= 0) {
        if (place)
            length += snprintf(message + length, sizeof message - length, " @0x%zx", place - library_begin);
        snprintf(message + length, sizeof message - length, " by thread (%u, %u, %u) of block (%u, %u, %u)", t.x, t.y,
                 t.z, b.x, b.y, b.z);
        _longjmp(scheduler, 1);
    }
}

void wait(State state)
{
    thread[current].state = state;
    if (!_setjmp(thread[current].here))
        _longjmp(scheduler, 1);
}

void fiber()
{
    for (;; wait(RETURNED))
        call_kernel(kernel_arguments);
}

// Run thread i until it waits. makecontext starts a fiber; _setjmp and _longjmp switch fibers without system calls.
__attribute__((noinline)) void resume(int i)
{
    Thread &t = thread[current = i];
    const uint3 size = index_of[2];
    index_of[0] = {i % size.x, i / size.x % size.y, i / size.x / size.y};
    if (_setjmp(scheduler) == 0) {
        if (t.has_stack)
            _longjmp(t.here, 1);
        t.has_stack = true;
        getcontext(&t.start);
        t.start.uc_stack.ss_sp = stacks + i * STACK;
        t.start.uc_stack.ss_size = STACK;
        makecontext(&t.start, fiber, 0);
        setcontext(&t.start);
    }
    current = -1;
}

// Release all threads if all running threads wait at the same line.
bool release_block()
{
    int first = -1;
    for (int i = 0; i < threads; ++i) {
        const Thread &t = thread[i];
        if (t.state == RETURNED)
            continue;
        if (t.state != AT_BLOCK_BARRIER)
            return false;
        first = first < 0 ? i : first;
        if (t.line != thread[first].line)
            fail("divergent __syncthreads(): thread %d waits in line %d, thread %d in line %d", first,
                 thread[first].line, i, t.line);
    }
    block_barrier = ++now;
    for (int i = 0; i < threads; ++i)
        if (thread[i].state == AT_BLOCK_BARRIER)
            thread[i].state = READY;
    return first >= 0;
}

// Release thread i and the lanes in its mask if all of them that have not returned wait with the same mask.
bool release_warp(int i)
{
    const unsigned mask = thread[i].mask;
    Thread *const warp = thread + i / WARP * WARP;
    const int lanes = threads - i / WARP * WARP < WARP ? threads - i / WARP * WARP : WARP;
    uint64_t values[WARP];
    unsigned seen[WARP] = {};
    memset(values, 0xff, sizeof values);  // the value of a lane that takes no part
    for (int lane = 0; lane < lanes; ++lane)
        if (mask >> lane & 1 && warp[lane].state != RETURNED) {
            if (warp[lane].state != AT_WARP_BARRIER || warp[lane].mask != mask)
                return false;
            values[lane] = warp[lane].value;
        }
    ++now;
    for (int lane = 0; lane < lanes; ++lane)
        for (int other = 0; mask >> lane & 1 && other < WARP; ++other) {
            const unsigned known = mask >> other & 1 ? now : warp[lane].seen[other];
            seen[other] = known > seen[other] ? known : seen[other];
        }
    for (int lane = 0; lane < lanes; ++lane)
        if (mask >> lane & 1 && warp[lane].state != RETURNED) {
            memcpy(warp[lane].got, values, sizeof values);
            memcpy(warp[lane].seen, seen, sizeof seen);
            warp[lane].state = READY;
        }
    return true;
}

// Return true if no error was found.
bool run_block()
{
    static int order[MOST_THREADS];
    memset(shared_begin, 0xff, shared_end - shared_begin);
    block_start = block_barrier = ++now;
    for (int i = 0; i < threads; ++i)
        thread[i].state = READY, thread[i].copies = thread[i].group = 0;
    for (bool progress = true; progress && !message[0];) {
        progress = false;
        put_in_order(order, threads);
        for (int i = 0; i < threads; ++i)
            if (thread[order[i]].state == READY && !message[0])
                resume(order[i]);
        for (int i = 0; i < threads; ++i)
            if (thread[i].state == AT_WARP_BARRIER && release_warp(i))
                progress = true;
        progress = progress || release_block();
    }
    for (int i = 0; i < threads && !message[0]; ++i)
        if (thread[i].state != RETURNED)
            fail("thread %d of block (%u, %u, %u) waits for ever at a barrier of its %s", i, index_of[1].x,
                 index_of[1].y, index_of[1].z, thread[i].state == AT_BLOCK_BARRIER ? "block" : "warp");
    return !message[0];
}

// Called for each library: find the one whose thread-local variables hold the marker.
int find_library(dl_phdr_info *library, size_t, void *marker)
{
    shared_begin = shared_end = nullptr, globals_begin = ~(uintptr_t)0, library_begin = library->dlpi_addr;
    for (int i = 0; i < library->dlpi_phnum; ++i) {
        const ElfW(Phdr) &part = library->dlpi_phdr[i];
        const uintptr_t begin = library->dlpi_addr + part.p_vaddr;
        if (part.p_type == PT_LOAD)  // in ascending order
            globals_begin = begin < globals_begin ? begin : globals_begin, globals_end = begin + part.p_memsz;
        if (part.p_type == PT_TLS && library->dlpi_tls_data)
            shared_begin = (char *)library->dlpi_tls_data, shared_end = shared_begin + part.p_memsz;
    }
    return shared_begin && shared_begin <= marker && marker < shared_end;
}

// Whether an access by thread `by` at time `when` is ordered before the current thread.
bool ordered(unsigned when, int by)
{
    return by == current || when < block_barrier ||
           (by / WARP == current / WARP && when < thread[current].seen[by % WARP]);
}

void check_shared(size_t offset, size_t size, Kind kind)
{
    const unsigned here = place - library_begin;
    for (Byte *b = bytes + offset; b < bytes + offset + size; ++b) {
        if (kind != WRITE && b->written < block_start)
            fail("read of shared memory that nothing has written,");
        int other = kind == ATOMIC && b->atomic || ordered(b->written, b->writer) ? -1 : b->writer;
        unsigned other_at = b->written_at;
        if (kind == READ) {
            if (b->reader != current)
                b->other_read = b->read, b->other_reader = b->reader, b->other_read_at = b->read_at;
            b->read = now, b->reader = current, b->read_at = here;
        } else {
            if (!ordered(b->read, b->reader))
                other = b->reader, other_at = b->read_at;
            if (!ordered(b->other_read, b->other_reader))
                other = b->other_reader, other_at = b->other_read_at;
            b->written = now, b->writer = current, b->atomic = kind == ATOMIC, b->written_at = here;
        }
        if (other >= 0)
            fail("race in shared memory: no barrier between an access @0x%x by thread %d and a %s", other_at, other,
                 kind == READ ? "read" : "write");
    }
}

void access(uintptr_t begin, size_t size, Kind kind)
{
    const auto within = [=](const void *from, const void *to) {
        return begin >= (uintptr_t)from && begin + size <= (uintptr_t)to;
    };
    if (++accesses > MOST_ACCESSES)
        fail("no end after %ld accesses", MOST_ACCESSES);
    if (within(shared_begin, shared_end)) {
        char *const unused = dynamic_begin + launched->dynamic_bytes;
        if (!dynamic_begin || begin + size <= (uintptr_t)unused || begin >= (uintptr_t)dynamic_begin + MOST_SHARED) {
            if (launched->checked)
                check_shared(begin - (uintptr_t)shared_begin, size, kind);
            return;
        }
    }
    for (int i = 0; i < launched->arrays; ++i)
        if (within((void *)launched->array[i].begin, (void *)launched->array[i].end))
            return;
    if (within(stacks + current * STACK, stacks + (current + 1) * STACK) ||
        within((void *)globals_begin, (void *)globals_end))
        return;
    const char *const what = kind == READ ? "read" : "write";
    if (within(shared_begin - MOST_SHARED, shared_end + MOST_SHARED))
        fail("%s of %zu bytes out of bounds, of shared memory,", what, size);
    for (int i = 0; i < launched->arrays; ++i) {
        const Array &near = launched->array[i];
        if (begin + MARGIN > near.begin && begin < near.end + MARGIN)
            fail("%s of %zu bytes out of bounds, at byte %td of the %td of array %d,", what, size,
                 (intptr_t)(begin - near.begin), (intptr_t)(near.end - near.begin), i);
    }
    fail("%s of %zu bytes out of bounds", what, size);
}

void perform(const Copy &copy)
{
    place = copy.place;
    if (copy.valid)
        access((uintptr_t)copy.source, copy.valid, READ);
    access((uintptr_t)copy.target, copy.bytes, WRITE);
    memcpy(copy.target, copy.source, copy.valid);
    memset(copy.target + copy.valid, 0, copy.bytes - copy.valid);
}

}  // namespace

extern "C" {

void cuda_cp_async(void *target, const void *source, int bytes, int valid)
{
    Thread &t = thread[current];
    place = (uintptr_t)__builtin_return_address(0);
    if ((char *)target < shared_begin || (char *)target >= shared_end)
        fail("asynchronous copy to no shared memory");
    if ((uintptr_t)target % bytes || valid && (uintptr_t)source % bytes)
        fail("misaligned asynchronous copy");
    const Copy copy = {(char *)target, (const char *)source, bytes, valid, t.group, place};
    if (launched->order == ASCENDING || launched->order == RANDOM && random_below(2))
        perform(copy);
    else if (t.copies == MOST_COPIES)
        fail("more than %d asynchronous copies under way", MOST_COPIES);
    else
        t.copy[t.copies++] = copy;
}

void cuda_cp_async_commit_group() { ++thread[current].group; }

void cuda_cp_async_wait_group(int pending)
{
    Thread &t = thread[current];
    int left = 0;
    for (int i = 0; i < t.copies; ++i)
        if (t.copy[i].group < t.group - pending)
            perform(t.copy[i]);
        else
            t.copy[left++] = t.copy[i];
    t.copies = left;
}

void cuda_access(const void *address, size_t size, Kind kind, void *from)
{
    place = (uintptr_t)from;
    access((uintptr_t)address, size, kind);
}

uint3 cuda_index(int which) { return index_of[which]; }

void cuda_block_barrier(int line)
{
    thread[current].line = line;
    wait(AT_BLOCK_BARRIER);
}

const uint64_t *cuda_warp_exchange(unsigned mask, uint64_t value)
{
    place = (uintptr_t)__builtin_return_address(0);
    if (!(mask >> current % WARP & 1))
        fail("the mask %08x of a warp barrier lacks the calling lane,", mask);
    thread[current].mask = mask;
    thread[current].value = value;
    wait(AT_WARP_BARRIER);
    return thread[current].got;
}

const char *cuda_dynamic_shared() { return dynamic_begin; }

const char *cuda_launch(void (*call)(void **), void **arguments, const Launch *launch, char *shared, char *dynamic)
{
    static int order[MOST_BLOCKS];
    static size_t size;  // of `bytes`
    const int map = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    if (!stacks)
        stacks = (char *)mmap(nullptr, MOST_THREADS * STACK, PROT_READ | PROT_WRITE, map, -1, 0);
    message[0] = 0, current = -1, accesses = 0, place = 0;
    launched = launch, call_kernel = call, kernel_arguments = arguments;
    random_state = launch->seed;
    const uint3 grid = index_of[3] = launch->grid, block = index_of[2] = launch->block;
    const uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z;
    threads = block.x * block.y * block.z;
    if (threads < 1 || threads > MOST_THREADS || blocks < 1 || blocks > MOST_BLOCKS)
        return "a launch that the device or this tool refuses";
    dl_iterate_phdr(find_library, shared);
    dynamic_begin = dynamic;
    if (size < size_t(shared_end - shared_begin)) {
        size = shared_end - shared_begin;
        bytes = (Byte *)mmap(nullptr, size * sizeof(Byte), PROT_READ | PROT_WRITE, map, -1, 0);
    }
    put_in_order(order, blocks);
    for (unsigned i = 0; i < blocks; ++i) {
        const unsigned b = order[i];
        index_of[1] = {b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y};
        if (!run_block()) {
            for (Thread &t : thread)
                t.has_stack = false;  // discards the state of the threads
            return message;
        }
    }
    return nullptr;
}

// Hooks that g++ calls on each access ...
#define HOOK(name, kind, size, ...)                        \
    void name(__VA_ARGS__)                                 \
    {                                                      \
        place = (uintptr_t)__builtin_return_address(0);    \
        access(address, size, kind);                       \
    }
#define CUDA_HOOKS(bytes)                                     \
    HOOK(__tsan_read##bytes, READ, bytes, uintptr_t address)  \
    HOOK(__tsan_write##bytes, WRITE, bytes, uintptr_t address)
CUDA_HOOKS(1)
CUDA_HOOKS(2)
CUDA_HOOKS(4)
CUDA_HOOKS(8)
CUDA_HOOKS(16)
HOOK(__tsan_read_range, READ, size, uintptr_t address, size_t size)
HOOK(__tsan_write_range, WRITE, size, uintptr_t address, size_t size)
void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}

// ... and handlers of violations of its bounds, alignment and object-size checks
struct Place {
    const char *file;
    unsigned line, column;
    const void *type;
    unsigned char log_alignment;  // for type mismatches only
};
void __ubsan_handle_out_of_bounds(const Place *place, intptr_t index)
{
    ::place = 0;
    fail("index %td out of bounds in line %u", (intptr_t)index, place->line);
}
void __ubsan_handle_type_mismatch_v1(const Place *place, uintptr_t pointer)
{
    ::place = 0;
    const bool misaligned = pointer & ((1ul << place->log_alignment) - 1);
    fail("%s pointer in line %u", misaligned ? "misaligned" : pointer ? "out of bounds" : "null", place->line);
}
}
#endif
