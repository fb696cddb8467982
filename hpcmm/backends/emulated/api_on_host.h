// What CUDA defines without an include, for the CPU. Included by cuda_on_host.h inside its namespace.
namespace api {

constexpr int warpSize = WARP;
using uint = unsigned;
using ushort = unsigned short;
using ulong = unsigned long;

#define CUDA_VECTOR(T, name)                                                                         \
    struct name##1 { T x; };                                                                         \
    struct alignas(2 * sizeof(T)) name##2 { T x, y; };                                               \
    struct alignas(4 * sizeof(T) > 16 ? 16 : 4 * sizeof(T)) name##4 { T x, y, z, w; };               \
    inline name##1 make_##name##1(T x) { return {x}; }                                               \
    inline name##2 make_##name##2(T x, T y) { return {x, y}; }                                       \
    inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                               \
    inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
#define CUDA_VECTORS(T, name) \
    struct name##3 { T x, y, z; }; \
    CUDA_VECTOR(T, name)
CUDA_VECTORS(signed char, char)
CUDA_VECTORS(unsigned char, uchar)
CUDA_VECTORS(short, short)
CUDA_VECTORS(unsigned short, ushort)
CUDA_VECTORS(int, int)
CUDA_VECTOR(unsigned, uint)
CUDA_VECTORS(long, long)
CUDA_VECTORS(unsigned long, ulong)
CUDA_VECTORS(long long, longlong)
CUDA_VECTORS(unsigned long long, ulonglong)
CUDA_VECTORS(float, float)
CUDA_VECTORS(double, double)

template <class T, class U> inline auto min(T a, U b) -> decltype(a + b) { return b < a ? b : a; }
template <class T, class U> inline auto max(T a, U b) -> decltype(a + b) { return a < b ? b : a; }
inline int abs(int x) { return x < 0 ? -x : x; }
inline long long abs(long long x) { return x < 0 ? -x : x; }
inline float abs(float x) { return fabsf(x); }
inline double abs(double x) { return fabs(x); }
inline float fma(float a, float b, float c) { return fmaf(a, b, c); }
inline float rsqrtf(float x) { return 1 / sqrt((double)x); }
inline double rsqrt(double x) { return 1 / sqrt(x); }
inline float __saturatef(float x) { return x > 0 ? x < 1 ? x : 1 : 0; }
// The C library declares functions of these names, and has none.
#define __expf(x) expf(x)
#define __exp10f(x) powf(10, x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __log10f(x) log10f(x)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __tanf(x) tanf(x)
#define __powf(x, y) powf(x, y)
#define __sincosf(x, s, c) (*(s) = sinf(x), *(c) = cosf(x))
inline float __fdividef(float x, float y) { return x / y; }
// Arithmetic with a stated rounding; results differ from other roundings than to the nearest by one unit.
#define CUDA_ROUNDED(mode)                                                                              \
    inline float __fadd_##mode(float x, float y) { return x + y; }                                      \
    inline float __fsub_##mode(float x, float y) { return x - y; }                                      \
    inline float __fmul_##mode(float x, float y) { return x * y; }                                      \
    inline float __fdiv_##mode(float x, float y) { return x / y; }                                      \
    inline float __frcp_##mode(float x) { return 1 / x; }                                               \
    inline float __fsqrt_##mode(float x) { return sqrtf(x); }                                           \
    inline float __fmaf_##mode(float x, float y, float z) { return fmaf(x, y, z); }                     \
    inline float __fmaf_ieee_##mode(float x, float y, float z) { return fmaf(x, y, z); }                \
    inline double __dadd_##mode(double x, double y) { return x + y; }                                   \
    inline double __dsub_##mode(double x, double y) { return x - y; }                                   \
    inline double __dmul_##mode(double x, double y) { return x * y; }                                   \
    inline double __ddiv_##mode(double x, double y) { return x / y; }                                   \
    inline double __dsqrt_##mode(double x) { return sqrt(x); }                                          \
    inline double __fma_##mode(double x, double y, double z) { return ::fma(x, y, z); }                 \
    inline float __double2float_##mode(double x) { return x; }                                          \
    inline float __int2float_##mode(int x) { return x; }                                                \
    inline float __uint2float_##mode(unsigned x) { return x; }                                          \
    inline float __ll2float_##mode(long long x) { return x; }                                           \
    inline double __ll2double_##mode(long long x) { return x; }
CUDA_ROUNDED(rn)
CUDA_ROUNDED(rz)
CUDA_ROUNDED(ru)
CUDA_ROUNDED(rd)
inline float __frsqrt_rn(float x) { return 1 / sqrtf(x); }
inline double __int2double_rn(int x) { return x; }
inline double __uint2double_rn(unsigned x) { return x; }
#define CUDA_TO_INTEGER(mode, function)                                                                 \
    inline int __float2int_##mode(float x) { return (int)function##f(x); }                              \
    inline unsigned __float2uint_##mode(float x) { return (unsigned)function##f(x); }                   \
    inline long long __float2ll_##mode(float x) { return (long long)function##f(x); }                   \
    inline int __double2int_##mode(double x) { return (int)function(x); }                               \
    inline unsigned __double2uint_##mode(double x) { return (unsigned)function(x); }                    \
    inline long long __double2ll_##mode(double x) { return (long long)function(x); }
CUDA_TO_INTEGER(rn, rint)
CUDA_TO_INTEGER(rz, trunc)
CUDA_TO_INTEGER(ru, ceil)
CUDA_TO_INTEGER(rd, floor)

inline unsigned __float_as_uint(float x) { return cuda_bits<unsigned>(x); }
inline int __float_as_int(float x) { return cuda_bits<int>(x); }
inline float __uint_as_float(unsigned x) { return cuda_bits<float>(x); }
inline float __int_as_float(int x) { return cuda_bits<float>(x); }
inline long long __double_as_longlong(double x) { return cuda_bits<long long>(x); }
inline double __longlong_as_double(long long x) { return cuda_bits<double>(x); }
inline int __double2hiint(double x) { return __double_as_longlong(x) >> 32; }
inline int __double2loint(double x) { return (int)__double_as_longlong(x); }
inline double __hiloint2double(int high, int low) { return cuda_bits<double>((uint64_t)(unsigned)high << 32 | (unsigned)low); }

inline int __mul24(int x, int y) { return (int)((unsigned)x << 8) / 256 * ((int)((unsigned)y << 8) / 256); }
inline unsigned __umul24(unsigned x, unsigned y) { return (x & 0xffffff) * (y & 0xffffff); }
inline int __mulhi(int a, int b) { return (long long)a * b >> 32; }
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned long long)a * b >> 32; }
inline long long __mul64hi(long long a, long long b) { return (__int128)a * b >> 64; }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) { return (unsigned __int128)a * b >> 64; }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x)
{
    unsigned reversed = 0;
    for (int i = 0; i < 32; ++i)
        reversed |= (x >> i & 1) << (31 - i);
    return reversed;
}
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector)  // of digits below 8
{
    const uint64_t bytes = (uint64_t)high << 32 | low;
    unsigned chosen = 0;
    for (int i = 0; i < 4; ++i)
        chosen |= unsigned(bytes >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
    return chosen;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) { return ((uint64_t)high << 32 | low) << (shift & 31) >> 32; }
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) { return ((uint64_t)high << 32 | low) >> (shift & 31); }
inline unsigned __usad(unsigned x, unsigned y, unsigned z) { return (x < y ? y - x : x - y) + z; }
inline unsigned __sad(int x, int y, unsigned z) { return (x < y ? y - x : x - y) + z; }
inline int __dp4a(int a, int b, int sum)
{
    for (int i = 0; i < 4; ++i)
        sum += (signed char)(a >> 8 * i) * (signed char)(b >> 8 * i);
    return sum;
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned sum)
{
    for (int i = 0; i < 4; ++i)
        sum += (a >> 8 * i & 255) * (b >> 8 * i & 255);
    return sum;
}

#define CUDA_LOAD(name) \
    template <class T> inline T name(const T *p) { return *p; }
CUDA_LOAD(__ldg)
CUDA_LOAD(__ldca)
CUDA_LOAD(__ldcg)
CUDA_LOAD(__ldcs)
CUDA_LOAD(__ldlu)
CUDA_LOAD(__ldcv)
#define CUDA_STORE(name) \
    template <class T> inline void name(T *p, Value<T> x) { *p = x; }
CUDA_STORE(__stcg)
CUDA_STORE(__stcs)
CUDA_STORE(__stwb)
CUDA_STORE(__stwt)

inline void __syncthreads(int line = __builtin_LINE()) { cuda_block_barrier(line); }
inline int __syncthreads_count(int predicate, int line = __builtin_LINE()) { return cuda_block_count(line, predicate != 0, nullptr); }
inline int __syncthreads_or(int predicate, int line = __builtin_LINE()) { return cuda_block_count(line, predicate != 0, nullptr) > 0; }
inline int __syncthreads_and(int predicate, int line = __builtin_LINE())
{
    int threads;
    const int count = cuda_block_count(line, predicate != 0, &threads);
    return count == threads;
}
inline void __syncwarp(unsigned mask = ~0u) { cuda_warp_exchange(mask, 0); }
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
inline void __nanosleep(unsigned) {}
inline long long clock64()
{
    static long long ticks;
    return ++ticks;
}
inline int clock() { return (int)clock64(); }
[[noreturn]] inline void __trap(int line = __builtin_LINE()) { cuda_stop("__trap()", line); }
inline size_t __cvta_generic_to_shared(const void *p) { return (const char *)p - cuda_dynamic_shared(); }
inline unsigned __activemask() { return 1u << cuda_lane(); }  // the minimum that a device may return

// Functions of a warp: not inlined, so that the return address is the place in the kernel.
#define CUDA_OF_WARP NOT_INSTRUMENTED __attribute__((noinline))
#define CUDA_SHUFFLE cuda_bits<T>(cuda_shuffle(mask, cuda_bits<uint64_t>(value), source, __builtin_return_address(0)))
template <class T> CUDA_OF_WARP T __shfl_sync(unsigned mask, T value, int from, int width = WARP)
{
    const int source = (cuda_lane() & -width) | (from & (width - 1));
    return CUDA_SHUFFLE;
}
template <class T> CUDA_OF_WARP T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = WARP)
{
    const int lane = cuda_lane(), in_group = lane & (width - 1);
    const int source = in_group + (int)distance < width ? lane + (int)distance : lane;
    return CUDA_SHUFFLE;
}
template <class T> CUDA_OF_WARP T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = WARP)
{
    const int lane = cuda_lane(), in_group = lane & (width - 1);
    const int source = in_group >= (int)distance ? lane - (int)distance : lane;
    return CUDA_SHUFFLE;
}
template <class T> CUDA_OF_WARP T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = WARP)
{
    const int lane = cuda_lane(), other = lane ^ lanes;
    const int source = (other & -width) <= (lane & -width) ? other : lane;
    return CUDA_SHUFFLE;
}
CUDA_OF_WARP inline unsigned __ballot_sync(unsigned mask, int predicate)
{
    unsigned ballot = 0;
    const uint64_t *values = cuda_warp_exchange(mask, predicate != 0, __builtin_return_address(0));
    for (int lane = 0; lane < WARP; ++lane)
        ballot |= unsigned(values[lane] == 1) << lane;
    return ballot;
}
CUDA_OF_WARP inline int __any_sync(unsigned mask, int predicate)
{
    const uint64_t *values = cuda_warp_exchange(mask, predicate != 0, __builtin_return_address(0));
    for (int lane = 0; lane < WARP; ++lane)
        if (values[lane] == 1)
            return 1;
    return 0;
}
CUDA_OF_WARP inline int __all_sync(unsigned mask, int predicate)
{
    const uint64_t *values = cuda_warp_exchange(mask, predicate == 0, __builtin_return_address(0));
    for (int lane = 0; lane < WARP; ++lane)
        if (values[lane] == 1)
            return 0;
    return 1;
}
template <class T> CUDA_OF_WARP unsigned __match_any_sync(unsigned mask, T value)
{
    unsigned match = 0;
    const uint64_t own = cuda_bits<uint64_t>(value), *values = cuda_warp_exchange(mask, own, __builtin_return_address(0));
    for (int lane = 0; lane < WARP; ++lane)
        match |= unsigned(cuda_lanes() >> lane & 1 && values[lane] == own) << lane;
    return match;
}
#define CUDA_REDUCE(name, expression)                                                                                  \
    template <class T> CUDA_OF_WARP T __reduce_##name##_sync(unsigned mask, T b)                                       \
    {                                                                                                                  \
        const uint64_t *values = cuda_warp_exchange(mask, cuda_bits<uint64_t>(b), __builtin_return_address(0));        \
        bool first = true;                                                                                             \
        for (int lane = 0; lane < WARP; ++lane)                                                                        \
            if (cuda_lanes() >> lane & 1) {                                                                            \
                const T a = cuda_bits<T>(values[lane]);                                                                \
                b = first ? a : T(expression);                                                                         \
                first = false;                                                                                         \
            }                                                                                                          \
        return b;                                                                                                      \
    }
CUDA_REDUCE(add, a + b)
CUDA_REDUCE(min, a < b ? a : b)
CUDA_REDUCE(max, a < b ? b : a)
CUDA_REDUCE(and, a & b)
CUDA_REDUCE(or, a | b)
CUDA_REDUCE(xor, a ^ b)

#define CUDA_ATOMIC(name, change)                                                                            \
    template <class T> inline T atomic##name(T *p, Value<T> v) { return cuda_atomic(p, [=](T old) { return T(change); }); } \
    template <class T> inline T atomic##name##_block(T *p, Value<T> v) { return atomic##name(p, v); }         \
    template <class T> inline T atomic##name##_system(T *p, Value<T> v) { return atomic##name(p, v); }
CUDA_ATOMIC(Add, old + v)
CUDA_ATOMIC(Sub, old - v)
CUDA_ATOMIC(Min, v < old ? v : old)
CUDA_ATOMIC(Max, old < v ? v : old)
CUDA_ATOMIC(And, old & v)
CUDA_ATOMIC(Or, old | v)
CUDA_ATOMIC(Xor, old ^ v)
CUDA_ATOMIC(Exch, v)
CUDA_ATOMIC(Inc, old >= v ? 0 : old + 1)
CUDA_ATOMIC(Dec, old == 0 || old > v ? v : old - 1)
template <class T> inline T atomicCAS(T *p, Value<T> expected, Value<T> v)
{
    return cuda_atomic(p, [=](T old) { return old == expected ? v : old; });
}
template <class T> inline T atomicCAS_block(T *p, Value<T> expected, Value<T> v) { return atomicCAS(p, expected, v); }
template <class T> inline T atomicCAS_system(T *p, Value<T> expected, Value<T> v) { return atomicCAS(p, expected, v); }

}  // namespace api
using namespace api;
