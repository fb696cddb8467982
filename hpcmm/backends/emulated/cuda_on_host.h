// Run one CUDA kernel, with unchanged source, on the host and check every memory access.
//
// A kernel's file includes this header, then the kernel, then CUDA_ON_HOST(...). harness.cpp, a library of its own, calls
// the kernel by its address. With g++'s -fsanitize=thread every load and store becomes a call of __tsan_read4 and the
// like; -fsanitize=bounds, alignment, object-size calls a handler on a violation. The sanitizers' libraries are not
// linked: runtime.cpp defines those functions. ptx_on_host.h has the functions of hpcmm/kernels/ptx.cuh.
//
// The threads of the blocks of a cluster are fibers of one host thread. Each runs to its next wait or its end. The order
// of threads, of the blocks of a cluster and of clusters is ascending, descending or random; in random order, warps
// pause at random. Errors:
//   - an access outside the arrays of the launch, the shared memory and the thread's own stack;
//   - an index past a dimension of an array with a declared size, a misaligned or null pointer;
//   - a read of uninitialized shared memory (each block's is filled with 0xff: NaN, -1);
//   - a race in shared memory: two accesses to a byte, one of them a write, that nothing orders;
//   - a divergent barrier, which not all running threads reach, or which they reach at different lines;
//   - a misaligned asynchronous copy, or one whose target is not shared memory;
//   - a hang: no thread can run. The message has the line of each wait, and for an mbarrier what is missing;
//   - an integer division by zero, a failed assertion, __trap();
//   - a kernel that does not end: more accesses, turns of loops or barriers than its arrays can need.
// A thread that has returned counts as present at barriers of its block, its warp and its cluster, as on the device.
//
// Accesses are ordered by barriers of the block, of part of it, of a warp and of the cluster, and by mbarriers:
// accesses before an arrival are ordered before accesses after the wait. Hardware that works beside the threads is
// modelled as an engine, and its accesses are checked as if a thread made them. There is one engine for the copies that
// arrive at an mbarrier, one for the TMA stores of a thread, and one for the products of a warp. An engine does its work
// at once in ascending order, as late as possible in descending order (at the wait, or when nothing else can run), and at
// either time in random order.
//   cp_async              copies by the thread itself; pending ones are lost without a wait
//   mma_*, ldmatrix_*     synchronise the lanes of the warp; TF32 operands lose their last 13 bits, and float32 sums are
//                         truncated
//   mbarrier_*            an initialization that no barrier orders before a use, more arrivals than a phase takes, bytes
//                         that differ from those expected are errors; TMA needs fence_mbarrier_init
//   cp_async_bulk_*       boxes with the swizzle of 128, 64 or 32 bytes, as many as a row of the box has, rounded to TF32
//                         if the map says so; zeros outside the matrix, and 16 bytes that are not wholly inside are not
//                         stored. Multicast to a cluster
//   wgmma_*               operands at matrix descriptors, or A in registers; every warp of a warpgroup has to start each
//                         product. An error without wgmma_fence since the last wait, or without a wait at the end
//   fence_proxy_async     an engine that reads what a thread has written without it is an error
//   setmaxnreg_*          more registers than a multiprocessor has are an error
//   *_relaxed_gpu_global  a thread's turn ends after each one, in random order after half of them, so that other blocks
//                         run between two of them
//
// The blocks of a kernel with ld_relaxed_gpu_global may wait for each other. As many of them as a cluster may have run in
// turns, and each that ends makes room for the next one in the order of blocks, as on the device. A hang is an error: no
// thread has done anything but such loads in MOST_POLLS turns. Such a kernel may have no clusters and no mbarriers.
//
// Not detected: races in global memory, and between blocks that none of these orders reveals (other clusters run one
// after the other, so none may wait for another); other violations of the memory model, such as a relaxed access that
// needs a fence; a race with a reader that is not among the last two of a byte; a pointer that runs from one static
// shared array into the next; uninitialized global memory, unless the caller fills it with NaN; registers of a product
// that are used before it is complete, except by wrong values. Not modelled: inline PTX that assembly.py does not know,
// textures, memory from malloc, fast-math, performance. A shuffle from a lane that takes no part returns NaN or other numbers that no sum
// needs; cuda_note has its line.
//
// A counted launch also counts accesses as instructions of warps: sectors of global memory, wavefronts of shared memory.
// Lanes meet again at the first place of the code that all of them reach, so the code keeps the order of the source.
//
// Names that CUDA has are in cuda_on_host::api, those of ptx.cuh in cuda_on_host::ptx, all others in cuda_on_host, so that
// a kernel may have any names of its own. include/ has headers of the CUDA toolkit.
#pragma once
#define _GLIBCXX_INCLUDE_NEXT_C_HEADERS  // C's math.h alone: libstdc++'s takes longer than the kernel to compile
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <initializer_list>

namespace cuda_on_host {

namespace api {
struct uint3 {
    unsigned x, y, z;
};
struct dim3 : uint3 {
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : uint3{x, y, z} {}
    constexpr dim3(uint3 size) : uint3(size) {}
};
}  // namespace api
using namespace api;

enum Kind { READ, WRITE, ATOMIC };
enum Order { ASCENDING, DESCENDING, RANDOM, LAST };
struct Array {  // an array in global memory
    uintptr_t begin, end;
};
struct Launch {  // parameters of a launch, from the test
    uint3 grid, block;
    int order, seed, checked;  // checked: whether reads of unwritten shared memory and races are errors
    int counted;               // whether accesses are counted, for cuda_counts
    int arrays;
    const Array *array;
    size_t dynamic_bytes;
};
constexpr size_t MOST_SHARED = 227 * 1024;
constexpr int WARP = 32;
namespace ptx {
struct __attribute__((aligned(64))) TensorMap {  // from the test: a matrix, whose elements outside are zero, and its boxes
    uint64_t begin, rows, row_bytes, row_step, element_bytes, box_rows, box_row_bytes;  // 0: TMA cannot take it
    uint64_t rounds_to_tf32, unused[8];
};
}  // namespace ptx
using namespace ptx;
struct CudaWgmma {  // a warp's part of a product of its warpgroup
    void (*multiply)(const CudaWgmma &, bool check, bool compute);
    void *c[WARP];               // sums of each lane
    unsigned registers[WARP][4];  // A, if it is in registers
    bool a_in_registers;
    unsigned long long a, b;  // matrix descriptors
    bool scale_d;
    int warp;  // of the warpgroup
};

extern "C" {
const char *cuda_launch(void (*call)(void **), void **arguments, const Launch *, char *shared, char *dynamic, uint3 cluster);
void cuda_access(const void *address, size_t size, Kind, void *place = __builtin_return_address(0));
uint3 cuda_index(int which) __attribute__((const));  // const: it changes between threads only
void cuda_block_barrier(int line);
// Returns the values of all lanes in the mask. `from`: the place in the kernel, if the caller is not inlined there.
const uint64_t *cuda_warp_exchange(unsigned mask, uint64_t value, void *from = nullptr);
uint64_t cuda_shuffle(unsigned mask, uint64_t value, int source, void *from);
unsigned cuda_lanes();  // that took part in the last exchange
int cuda_block_count(int line, int predicate, int *threads);  // a barrier; returns for how many threads it holds
[[noreturn]] void cuda_stop(const char *what, int line);  // an error of the kernel; line 0: that of the call
const char *cuda_note();  // of the last launch: why its result may be wrong
const char *cuda_counts();
void cuda_count_mma();
const uint64_t *cuda_whole_warp(const void *operands, void *from);  // the same for an address of each of 32 lanes
void cuda_cp_async(void *target, const void *source, int bytes, int valid);
void cuda_cp_async_commit_group();
void cuda_cp_async_wait_group(int pending);
const char *cuda_dynamic_shared();
void cuda_named_barrier(int id, int threads);
void cuda_relaxed(const void *address, void *value, size_t size, Kind);
void cuda_prefetch(const void *address);
void cuda_setmaxnreg(int registers);
void cuda_fence_proxy_async();
unsigned cuda_mapa(const void *address, int rank);  // rank -1: of this block
void cuda_shared_cluster(unsigned address, void *value, size_t size, Kind);
void cuda_barrier_cluster_arrive();
void cuda_barrier_cluster_wait();
void cuda_mbarrier_init(void *barrier, int arrivals);
void cuda_fence_mbarrier_init();
void cuda_mbarrier_arrive(unsigned barrier, int bytes);
void cuda_mbarrier_wait(void *barrier, int parity);
void cuda_tma_load(void *target, const TensorMap &, int column, int row, void *barrier, unsigned ranks);  // 0: this block
void cuda_tma_store(const TensorMap &, int column, int row, const void *source);
void cuda_bulk_commit_group();
void cuda_bulk_wait_group(int pending);
void cuda_wgmma_fence();
void cuda_wgmma_mma_async(const CudaWgmma &, void *place);
void cuda_wgmma_commit_group();
void cuda_wgmma_wait_group(int pending);
void cuda_read_by_wgmma(const void *address, size_t size);
}

}  // namespace cuda_on_host
extern "C" int printf(const char *, ...);

#ifndef CUDA_ON_HOST_RUNTIME  // ---- definitions for the kernel ----

extern "C" {  // as a declaration of printf in the kernel's file has it
static inline int cuda_on_host_quiet(const char *, ...) { return 0; }
}
#define printf cuda_on_host_quiet  // its output would stand among the results

#define NOT_INSTRUMENTED __attribute__((no_sanitize("thread", "undefined"), no_sanitize_coverage))
#define __global__ __attribute__((used))  // its only caller is the harness
#define __device__
#define __host__
#define __constant__
// The only storage class that is static in a function and can be extern. Without constinit g++ initializes arrays of
// classes such as __half with a flag of its own in this memory.
#define __shared__ __constinit thread_local
#define alignas(bytes) __attribute__((aligned(bytes)))  // may follow __shared__
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
#define __cluster_dims__(...)  // the library states them, for the launch
#define __grid_constant__
#define __managed__
#define __noinline__  // the headers of the C++ library have it as the name of an attribute
#define __forceinline__ inline __attribute__((always_inline))
#define threadIdx cuda_on_host::cuda_index(0)
#define blockIdx cuda_on_host::cuda_index(1)
#define blockDim cuda_on_host::cuda_index(2)
#define gridDim cuda_on_host::cuda_index(3)
#define __CUDACC__ 1
#define __CUDA_ARCH__ 900
#define __builtin_assume(condition) ((void)0)
#include "include/assert.h"

namespace cuda_on_host {

inline NOT_INSTRUMENTED int cuda_lane()
{
    return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % WARP;
}
template <class To, class From> NOT_INSTRUMENTED To cuda_bits(From x)
{
    To bits = {};
    memcpy(&bits, &x, sizeof x < sizeof bits ? sizeof x : sizeof bits);
    return bits;
}
template <class T, class F> NOT_INSTRUMENTED __attribute__((noinline)) T cuda_atomic(T *p, F change)
{
    cuda_access(p, sizeof(T), ATOMIC);
    const T old = *p;
    *p = change(old);
    return old;
}
template <class T> struct Plain { using type = T; };  // T is deduced from the address alone
template <class T> using Value = typename Plain<T>::type;

#include "api_on_host.h"
#include "ptx_on_host.h"

// What a launch needs to know of a kernel. It is data, as a kernel's file cannot be trusted: harness.cpp launches.
template <class T> constexpr unsigned cuda_kind = __is_class(T) || __is_union(T) ? 2 : 0;
template <> constexpr unsigned cuda_kind<float> = 1;
template <> constexpr unsigned cuda_kind<double> = 1;
template <int COUNT> struct CudaParameters {
    unsigned cluster[3], count, each[COUNT + 1][3];  // bytes, alignment and kind
};
template <class... P> constexpr CudaParameters<sizeof...(P)> cuda_parameters_of(void (*)(P...), uint3 cluster)
{
    return {{cluster.x, cluster.y, cluster.z}, sizeof...(P), {{sizeof(P), alignof(P), cuda_kind<P>}..., {}}};
}
extern "C" {
thread_local char cuda_any_shared;  // its address locates this library's shared memory
__attribute__((visibility("hidden"))) void *__dso_handle;  // as libraries have no start files
}

}  // namespace cuda_on_host
using namespace cuda_on_host::api;

// Follows the kernel's source; blocks of a cluster in x, y and z, or 0 for a kernel whose blocks may wait for each other.
#define CUDA_ON_HOST(kernel, ...)                                                                        \
    namespace cuda_on_host {                                                                             \
    extern "C" __attribute__((section(".cuda_parameters"), used)) const auto cuda_parameters =            \
        cuda_parameters_of(::kernel, uint3{__VA_ARGS__});                                                \
    }

#endif
