// float16 for the CPU: each operation in float32, rounded to the nearest.
#pragma once

namespace cuda_on_host::api {
// T, T2: names of the types; to, from: conversions of the bits; of, as: parts of the names of functions
#define CUDA_16_BITS(T, T2, to, from, of, as, of2, as2, both)                                                          \
    struct T {                                                                                                         \
        unsigned short bits;                                                                                           \
        T() = default;                                                                                                 \
        T(float x) : bits(to(x)) {}                                                                                    \
        T(double x) : bits(to((float)x)) {}                                                                            \
        T(int x) : bits(to((float)x)) {}                                                                               \
        T(unsigned x) : bits(to((float)x)) {}                                                                          \
        T(long long x) : bits(to((float)x)) {}                                                                         \
        operator float() const { return from(bits); }                                                                  \
        T &operator+=(T y) { return *this = T(from(bits) + from(y.bits)); }                                            \
        T &operator-=(T y) { return *this = T(from(bits) - from(y.bits)); }                                            \
        T &operator*=(T y) { return *this = T(from(bits) * from(y.bits)); }                                            \
        T &operator/=(T y) { return *this = T(from(bits) / from(y.bits)); }                                            \
    };                                                                                                                 \
    inline T operator+(const T &x, const T &y) { return T((float)x + (float)y); }                                      \
    inline T operator-(const T &x, const T &y) { return T((float)x - (float)y); }                                      \
    inline T operator*(const T &x, const T &y) { return T((float)x * (float)y); }                                      \
    inline T operator/(const T &x, const T &y) { return T((float)x / (float)y); }                                      \
    inline T operator-(const T &x) { return T(-(float)x); }                                                            \
    inline bool operator<(const T &x, const T &y) { return (float)x < (float)y; }                                      \
    inline bool operator>(const T &x, const T &y) { return (float)x > (float)y; }                                      \
    inline bool operator<=(const T &x, const T &y) { return (float)x <= (float)y; }                                    \
    inline bool operator>=(const T &x, const T &y) { return (float)x >= (float)y; }                                    \
    inline bool operator==(const T &x, const T &y) { return (float)x == (float)y; }                                    \
    inline bool operator!=(const T &x, const T &y) { return (float)x != (float)y; }                                    \
    struct alignas(4) T2 {                                                                                             \
        T x, y;                                                                                                        \
        T2() = default;                                                                                                \
        T2(T low, T high) : x(low), y(high) {}                                                                         \
    };                                                                                                                 \
    inline T __float2##of(float x) { return T(x); }                                                                    \
    inline T __float2##of##_rn(float x) { return T(x); }                                                               \
    inline T __double2##of(double x) { return T(x); }                                                                  \
    inline T __int2##of##_rn(int x) { return T(x); }                                                                   \
    inline float __##as##2float(T x) { return x; }                                                                     \
    inline int __##as##2int_rn(T x) { return (int)rintf(x); }                                                          \
    inline T __hadd(T x, T y) { return x + y; }                                                                        \
    inline T __hsub(T x, T y) { return x - y; }                                                                        \
    inline T __hmul(T x, T y) { return x * y; }                                                                        \
    inline T __hdiv(T x, T y) { return x / y; }                                                                        \
    inline T __hneg(T x) { return -x; }                                                                                \
    inline T __habs(T x) { return T(fabsf(x)); }                                                                       \
    inline T __hfma(T x, T y, T z) { return T((float)((double)(float)x * (float)y + (float)z)); }                      \
    inline T __hmax(T x, T y) { return T(fmaxf(x, y)); }                                                               \
    inline T __hmin(T x, T y) { return T(fminf(x, y)); }                                                               \
    inline bool __hlt(T x, T y) { return x < y; }                                                                      \
    inline bool __hgt(T x, T y) { return x > y; }                                                                      \
    inline bool __hle(T x, T y) { return x <= y; }                                                                     \
    inline bool __hge(T x, T y) { return x >= y; }                                                                     \
    inline bool __heq(T x, T y) { return x == y; }                                                                     \
    inline bool __hisnan(T x) { return x != x; }                                                                       \
    inline T2 make_##of2(T x, T y) { return {x, y}; }                                                                  \
    inline T2 __##as##2##of2(T x) { return {x, x}; }                                                                   \
    inline T2 __##both(T x, T y) { return {x, y}; }                                                                    \
    inline T2 __float2##of2##_rn(float x) { return {T(x), T(x)}; }                                                     \
    inline T2 __floats2##of2##_rn(float x, float y) { return {T(x), T(y)}; }                                           \
    inline T2 __float22##of2##_rn(float2 x) { return {T(x.x), T(x.y)}; }                                               \
    inline float2 __##as2##2float2(T2 x) { return {x.x, x.y}; }                                                        \
    inline T __low2##of(T2 x) { return x.x; }                                                                          \
    inline T __high2##of(T2 x) { return x.y; }                                                                         \
    inline float __low2float(T2 x) { return x.x; }                                                                     \
    inline float __high2float(T2 x) { return x.y; }                                                                    \
    inline T2 __hadd2(T2 a, T2 b) { return {a.x + b.x, a.y + b.y}; }                                                   \
    inline T2 __hsub2(T2 a, T2 b) { return {a.x - b.x, a.y - b.y}; }                                                   \
    inline T2 __hmul2(T2 a, T2 b) { return {a.x * b.x, a.y * b.y}; }                                                   \
    inline T2 __hfma2(T2 a, T2 b, T2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }                     \
    inline T2 __hmax2(T2 a, T2 b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }                                     \
    inline T2 operator+(T2 a, T2 b) { return __hadd2(a, b); }                                                          \
    inline T2 operator-(T2 a, T2 b) { return __hsub2(a, b); }                                                          \
    inline T2 operator*(T2 a, T2 b) { return __hmul2(a, b); }

CUDA_16_BITS(__half, __half2, ptx::cuda_to_f16, ptx::cvt_f32_f16, half, half, half2, half2, halves2half2)
using half = __half;
using half2 = __half2;
}  // namespace cuda_on_host::api
