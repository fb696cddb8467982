// Fragments of a warp for the CPU: element e of a tile is x[e / 32] of lane e % 32, in the order of rows. Float16 and
// bfloat16 products are added in float32, TF32 loses its last 13 bits, and sums are rounded to the accumulator's type.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace nvcuda {
namespace wmma {
using cuda_on_host::WARP;
struct row_major;
struct col_major;
struct matrix_a;
struct matrix_b;
struct accumulator;
namespace precision {
struct tf32;
}
enum layout_t { mem_row_major, mem_col_major };
template <class T_> struct cuda_stored { using type = T_; };
template <> struct cuda_stored<precision::tf32> { using type = float; };
template <class L_> constexpr bool cuda_by_rows = true;
template <> constexpr bool cuda_by_rows<col_major> = false;
template <class U_, int M_, int N_, int K_> constexpr int cuda_rows = M_;
template <int M_, int N_, int K_> constexpr int cuda_rows<matrix_b, M_, N_, K_> = K_;
template <class U_, int M_, int N_, int K_> constexpr int cuda_columns = N_;
template <int M_, int N_, int K_> constexpr int cuda_columns<matrix_a, M_, N_, K_> = K_;

template <class U_, int M_, int N_, int K_, class T_, class L_ = void> struct fragment {
    using element_type = typename cuda_stored<T_>::type;
    using storage_element_type = element_type;
    static constexpr int rows = cuda_rows<U_, M_, N_, K_>, columns = cuda_columns<U_, M_, N_, K_>;
    static constexpr int num_elements = rows * columns / WARP;
    element_type x[num_elements];
};
inline NOT_INSTRUMENTED float __float_to_tf32(float x)
{
    return cuda_on_host::cuda_bits<float>(cuda_on_host::cuda_bits<unsigned>(x) & ~0x1fffu);
}
// The type in which products are added, and a factor in it
template <class E_> struct cuda_product {
    using type = float;
    static NOT_INSTRUMENTED float of(float x) { return x; }
};
template <> struct cuda_product<precision::tf32> {
    using type = float;
    static NOT_INSTRUMENTED float of(float x) { return __float_to_tf32(x); }
};
template <> struct cuda_product<double> {
    using type = double;
    static NOT_INSTRUMENTED double of(double x) { return x; }
};
template <> struct cuda_product<signed char> {
    using type = int;
    static NOT_INSTRUMENTED int of(int x) { return x; }
};
template <> struct cuda_product<unsigned char> : cuda_product<signed char> {};
template <class F_, class V_> void fill_fragment(F_ &f, V_ value)
{
    for (auto &each : f.x)
        each = typename F_::element_type(value);
}
template <class F_> NOT_INSTRUMENTED int cuda_at(int e, bool by_rows, unsigned leading)
{
    const int row = e / F_::columns, column = e % F_::columns;
    return by_rows ? row * leading + column : column * leading + row;
}
template <class F_, class T_> NOT_INSTRUMENTED void cuda_load(F_ &f, const T_ *p, unsigned leading, bool by_rows, void *place)
{
    cuda_on_host::cuda_whole_warp(p, place);
    for (int i = 0; i < F_::num_elements; ++i) {
        const T_ *const from = p + cuda_at<F_>(i * WARP + cuda_on_host::cuda_lane(), by_rows, leading);
        cuda_on_host::cuda_access(from, sizeof(T_), cuda_on_host::READ, place);
        f.x[i] = *from;
    }
}
template <class U_, int M_, int N_, int K_, class E_, class L_, class T_>
CUDA_OF_WARP void load_matrix_sync(fragment<U_, M_, N_, K_, E_, L_> &f, const T_ *p, unsigned leading)
{
    cuda_load(f, p, leading, cuda_by_rows<L_>, __builtin_return_address(0));
}
template <int M_, int N_, int K_, class T_>
CUDA_OF_WARP void load_matrix_sync(fragment<accumulator, M_, N_, K_, T_> &f, const T_ *p, unsigned leading, layout_t layout)
{
    cuda_load(f, p, leading, layout == mem_row_major, __builtin_return_address(0));
}
template <int M_, int N_, int K_, class T_>
CUDA_OF_WARP void store_matrix_sync(T_ *p, const fragment<accumulator, M_, N_, K_, T_> &f, unsigned leading, layout_t layout)
{
    using F_ = fragment<accumulator, M_, N_, K_, T_>;
    cuda_on_host::cuda_whole_warp(p, __builtin_return_address(0));
    for (int i = 0; i < F_::num_elements; ++i) {
        T_ *const to = p + cuda_at<F_>(i * WARP + cuda_on_host::cuda_lane(), layout == mem_row_major, leading);
        cuda_on_host::cuda_access(to, sizeof(T_), cuda_on_host::WRITE, __builtin_return_address(0));
        *to = f.x[i];
    }
}
template <int M_, int N_, int K_, class E_, class LA_, class LB_, class T_, class S_>
CUDA_OF_WARP void mma_sync(fragment<accumulator, M_, N_, K_, T_> &d, const fragment<matrix_a, M_, N_, K_, E_, LA_> &a,
                           const fragment<matrix_b, M_, N_, K_, E_, LB_> &b, const fragment<accumulator, M_, N_, K_, S_> &c)
{
    struct {
        const void *a, *b;
    } const own = {a.x, b.x};
    using Own = decltype(own);
    using V_ = typename cuda_stored<E_>::type;
    const uint64_t *const lanes = cuda_on_host::cuda_whole_warp(&own, __builtin_return_address(0));
    cuda_on_host::cuda_count_mma();
    for (int i = 0; i < M_ * N_ / WARP; ++i) {
        const int e = i * WARP + cuda_on_host::cuda_lane(), row = e / N_, column = e % N_;
        typename cuda_product<E_>::type sum = c.x[i];
        for (int p = 0; p < K_; ++p) {
            const int at_a = row * K_ + p, at_b = p * N_ + column;
            const auto x = ((const V_ *)((Own *)lanes[at_a % WARP])->a)[at_a / WARP];
            const auto y = ((const V_ *)((Own *)lanes[at_b % WARP])->b)[at_b / WARP];
            sum += cuda_product<E_>::of(x) * cuda_product<E_>::of(y);
        }
        d.x[i] = T_(sum);
    }
    cuda_on_host::cuda_warp_exchange(~0u, 0);  // keeps a lane's fragments until all lanes have read them
}
}  // namespace wmma
}  // namespace nvcuda
