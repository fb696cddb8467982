// The functions of hpcmm/kernels/ptx.cuh for the CPU, under the same names; cuda_on_host.h lists the errors that they
// report.
//
// A further instruction is a function here beside the one in ptx.cuh, and a further element type of wgmma a structure as
// CudaF16.
#define PTX_CUH  // replaces ptx.cuh
#define CUDA_PTX inline __attribute__((always_inline))  // so that the place of a call is that in the kernel

namespace ptx {

inline void add_u32(unsigned &sum, unsigned term) { sum += term; }
template <class T> void add_cc(const T *&pointer, long long bytes) { pointer = (const T *)((const char *)pointer + bytes); }
inline void mov(double &) {}
inline void mov(float &) {}
inline unsigned prmt_b32(unsigned low, unsigned high, unsigned selector) { return __byte_perm(low, high, selector); }

template <int BYTES> void cp_async(void *target, const void *source, int valid = BYTES)
{
    cuda_cp_async(target, source, BYTES, valid);
}
template <int BYTES> void cp_async(unsigned target, const void *source, bool ignored)
{
    cuda_cp_async((void *)(cuda_dynamic_shared() + target), source, BYTES, ignored ? 0 : BYTES);
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
    const uint64_t *const lanes = cuda_whole_warp(&own, __builtin_return_address(0));
    cuda_count_mma();
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

// Up to four 8 x 8 matrices from shared memory, the addresses of whose rows the lanes give.
NOT_INSTRUMENTED inline void cuda_ldmatrix(unsigned (&x)[4], const void *row, bool transposed, int count = 4)
{
    const uint64_t *const rows = cuda_whole_warp(row, __builtin_return_address(0));
    const int g = cuda_lane() / 4, t = cuda_lane() % 4;
    unsigned found[4];
    for (int j = 0; j < count; ++j) {
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
    memcpy(x, found, count * sizeof found[0]);
}
inline void ldmatrix_x4(unsigned (&x)[4], const void *row) { cuda_ldmatrix(x, row, false); }
inline void ldmatrix_x4_trans(unsigned (&x)[4], const void *row) { cuda_ldmatrix(x, row, true); }

// The reverse: element (row g, columns 2 t and 2 t + 1) of matrix j is x[j] of a lane.
NOT_INSTRUMENTED inline void cuda_stmatrix(void *row, const unsigned (&x)[4], bool transposed)
{
    const uint64_t *const rows = cuda_whole_warp(row, __builtin_return_address(0));
    const int g = cuda_lane() / 4, t = cuda_lane() % 4;
    for (int j = 0; j < 4; ++j)
        for (int e = 0; e < 2; ++e) {
            const int y = transposed ? 2 * t + e : g, column = transposed ? g : 2 * t + e;
            char *const element = (char *)rows[j * 8 + y] + column * 2;
            const unsigned short bits = x[j] >> 16 * e;
            cuda_access(element, 2, WRITE);
            memcpy(element, &bits, 2);
        }
}
inline void stmatrix_x4(void *row, const unsigned (&x)[4]) { cuda_stmatrix(row, x, false); }
inline void stmatrix_x4_trans(void *row, const unsigned (&x)[4]) { cuda_stmatrix(row, x, true); }

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
// A word holds PER elements of a row of a, or of a column of b; `add` is the arithmetic of one element.
template <int PER, class C, class F>
NOT_INSTRUMENTED void cuda_mma_words(C (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2], F add)
{
    const CudaPairs own = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
    const uint64_t *const lanes = cuda_whole_warp(&own, __builtin_return_address(0));
    cuda_count_mma();
    const int g = cuda_lane() / 4, t = cuda_lane() % 4;
    for (int i = 0; i < 4; ++i) {
        unsigned short row[8 * PER], column[8 * PER];
        for (int p = 0; p < 8 * PER; ++p) {
            const int lane = p / PER % 4, word = p / PER / 4, shift = p % PER * (32 / PER);
            row[p] = ((const CudaPairs *)lanes[g * 4 + lane])->a[word * 2 + i / 2] >> shift;
            column[p] = ((const CudaPairs *)lanes[(2 * t + i % 2) * 4 + lane])->b[word] >> shift;
        }
        c[i] = add(c[i], row, column);
    }
    cuda_warp_exchange(~0u, 0);  // keeps a lane's fragments until all lanes have read them
}
template <class F>
NOT_INSTRUMENTED void cuda_mma_16(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2], F number)
{
    cuda_mma_words<2>(c, a, b, [=](float sum, const unsigned short *row, const unsigned short *column) NOT_INSTRUMENTED {
        return cuda_sum_16(sum, row, column, number);
    });
}
inline void mma_m16n8k16_f16(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
    cuda_mma_16(c, a, b, cvt_f32_f16);
}
inline void mma_m16n8k16_bf16(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
    cuda_mma_16(c, a, b, cuda_bf16);
}
inline void mma_m16n8k32_s8(int (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
    cuda_mma_words<4>(c, a, b, [](int sum, const unsigned short *row, const unsigned short *column) NOT_INSTRUMENTED {
        for (int p = 0; p < 32; ++p)
            sum += (signed char)row[p] * (signed char)column[p];
        return sum;
    });
}


// ---- products of a warpgroup ----

// Element types: the stored bits, the number, and the type of sums.
struct CudaF16 {
    using Bits = unsigned short;
    using Number = double;
    using Sum = float;
    NOT_INSTRUMENTED static Number number(Bits bits) { return cvt_f32_f16(bits); }
};
struct CudaBf16 : CudaF16 {
    NOT_INSTRUMENTED static Number number(Bits bits) { return cuda_bf16(bits); }
};
struct CudaTf32 : CudaF16 {
    using Bits = unsigned;
    NOT_INSTRUMENTED static Number number(Bits bits) { return __uint_as_float(bits & ~0x1fffu); }
};
struct CudaS8 {
    using Bits = signed char;
    using Number = int;
    using Sum = int;
    NOT_INSTRUMENTED static Number number(Bits bits) { return bits; }
};
struct CudaU8 : CudaS8 {
    using Bits = unsigned char;
    NOT_INSTRUMENTED static Number number(Bits bits) { return bits; }
};
NOT_INSTRUMENTED inline int cuda_truncated(int sum) { return sum; }
NOT_INSTRUMENTED inline float cuda_truncated(double sum)  // as the hardware truncates, to float32
{
    const float nearest = sum;
    return fabs(nearest) > fabs(sum) ? __uint_as_float(__float_as_uint(nearest) - 1) : nearest;
}

// An operand in shared memory is K-major (neighbours in memory are terms of the sum) or MN-major (rows of A, columns of
// B). An instruction takes 32 bytes of terms.
enum CudaMajor { K_MAJOR, MN_MAJOR };
template <class T> constexpr int CUDA_TERMS = 32 / sizeof(typename T::Bits);

// Load COUNT rows of A or columns of B, from `first` on, at a matrix descriptor (PTX ISA, "Shared Memory Matrix Layout").
// A core matrix has 8 rows of 16 bytes. With a swizzle of SPAN bytes, rows of SPAN bytes lie one after the other, and the
// address bits from 4 on are combined with those from 7 on.
template <class T, int COUNT, CudaMajor MAJOR>
NOT_INSTRUMENTED void cuda_operand(typename T::Number (&to)[CUDA_TERMS<T>][COUNT], unsigned long long matrix, int first,
                                   bool check)
{
    constexpr int TERMS = CUDA_TERMS<T>, SIZE = sizeof(typename T::Bits), PER_CHUNK = 16 / SIZE;
    static_assert(MAJOR == K_MAJOR || SIZE == 2, "other types are K-major");
    const auto field = [matrix](int bit) NOT_INSTRUMENTED { return (matrix >> bit & 0x3fff) * 16; };
    const size_t start = field(0), leading = field(16), stride = field(32);
    const int spans[] = {0, 128, 64, 32}, span = spans[matrix >> 62];
    for (int chunk = 0; chunk < COUNT * TERMS / PER_CHUNK; ++chunk) {
        size_t place;
        int row, term;  // of the first element
        if (MAJOR == K_MAJOR) {
            row = chunk / 2, term = chunk % 2 * PER_CHUNK;
            const size_t r = first + row, half = chunk % 2;
            place = span ? r / 8 * stride + r % 8 * span + half * 16 : r / 8 * stride + half * leading + r % 8 * 16;
        } else {
            row = chunk % (COUNT / PER_CHUNK) * PER_CHUNK, term = chunk / (COUNT / PER_CHUNK);
            const size_t x = (first + row) * SIZE;
            place = span ? x / span * leading + term / 8 * stride + term % 8 * span + x % span
                         : x / 16 * stride + term / 8 * leading + term % 8 * 16;
        }
        place += start;
        if (span)
            place ^= (place >> 7 & (span / 16 - 1)) << 4;
        if (check)
            cuda_read_by_wgmma(cuda_dynamic_shared() + place, 16);
        typename T::Bits bits[PER_CHUNK];
        memcpy(bits, cuda_dynamic_shared() + place, 16);
        for (int e = 0; e < PER_CHUNK; ++e)
            (MAJOR == K_MAJOR ? to[term + e][row] : to[term][row + e]) = T::number(bits[e]);
    }
}

// A warp's 16 rows of a product of 64 x TERMS by TERMS x N. `check`: report the accesses; `compute`: add to the sums.
template <class T, int N, CudaMajor A, CudaMajor B> NOT_INSTRUMENTED void cuda_multiply(const CudaWgmma &w, bool check, bool compute)
{
    constexpr int TERMS = CUDA_TERMS<T>;
    static typename T::Number a[TERMS][16], b[TERMS][N];
    if (w.a_in_registers) {  // register r of a lane: TERMS / 8 neighbours in row g or g + 8, in the first or second half
        for (int lane = 0; lane < WARP; ++lane)
            for (int r = 0; r < 4; ++r)
                for (int e = 0; e < TERMS / 8; ++e) {
                    typename T::Bits bits;
                    memcpy(&bits, (const char *)&w.registers[lane][r] + e * sizeof bits, sizeof bits);
                    a[r / 2 * TERMS / 2 + lane % 4 * (TERMS / 8) + e][lane / 4 + r % 2 * 8] = T::number(bits);
                }
    } else
        cuda_operand<T, 16, A>(a, w.a, w.warp * 16, check);
    cuda_operand<T, N, B>(b, w.b, 0, check);
    for (int row = 0; compute && row < 16; ++row) {
        typename T::Number sums[N];
        const auto sum = [&](int x) NOT_INSTRUMENTED -> typename T::Sum & {
            return ((typename T::Sum *)w.c[row % 8 * 4 + x % 8 / 2])[x / 8 * 4 + row / 8 * 2 + x % 2];
        };
        for (int x = 0; x < N; ++x)
            sums[x] = w.scale_d ? sum(x) : 0;
        for (int p = 0; p < TERMS; ++p)
            for (int x = 0; x < N; ++x)
                sums[x] += a[p][row] * b[p][x];
        for (int x = 0; x < N; ++x)
            sum(x) = cuda_truncated(sums[x]);
    }
}

// Start a product: lane 0 does it for its warp. a: 4 registers of a lane, or nullptr.
template <class T, int N, CudaMajor A, CudaMajor B>
NOT_INSTRUMENTED __attribute__((noinline)) void cuda_wgmma(void *c, const void *registers, unsigned long long a, unsigned long long b, bool scale_d)
{
    void *const from = __builtin_return_address(0);
    struct Own {
        void *c;
        const void *registers;
    } const own = {c, registers};
    const uint64_t *const lanes = cuda_whole_warp(&own, from);
    if (cuda_lane() == 0) {
        CudaWgmma w = {cuda_multiply<T, N, A, B>, {}, {}, registers != nullptr, a, b, scale_d, int(threadIdx.x / WARP % 4)};
        for (int lane = 0; lane < WARP; ++lane) {
            w.c[lane] = ((const Own *)lanes[lane])->c;
            if (registers)
                memcpy(w.registers[lane], ((const Own *)lanes[lane])->registers, sizeof w.registers[lane]);
        }
        cuda_wgmma_mma_async(w, from);
    }
    cuda_warp_exchange(~0u, 0, from);  // keeps `own` of a lane until lane 0 has read it
}
template <int J> CUDA_PTX void wgmma_mma_async(float (&c)[J][4], const float (&a)[4], unsigned long long b, bool scale_d)
{
    cuda_wgmma<CudaTf32, 8 * J, K_MAJOR, K_MAJOR>(c, a, 0, b, scale_d);
}
template <int J>
CUDA_PTX void wgmma_mma_async(int (&c)[J][4], unsigned long long a, unsigned long long b, bool scale_d)
{
    cuda_wgmma<CudaS8, 8 * J, K_MAJOR, K_MAJOR>(c, nullptr, a, b, scale_d);
}
template <int J>
CUDA_PTX void wgmma_mma_async(int (&c)[J][4], const unsigned (&a)[4], unsigned long long b, bool scale_d)
{
    cuda_wgmma<CudaS8, 8 * J, K_MAJOR, K_MAJOR>(c, a, 0, b, scale_d);
}
template <bool BF16, int J>
CUDA_PTX void wgmma_mma_async(float (&c)[J][4], unsigned long long a, unsigned long long b, bool scale_d)
{
    if constexpr (BF16)
        cuda_wgmma<CudaBf16, 8 * J, K_MAJOR, MN_MAJOR>(c, nullptr, a, b, scale_d);
    else
        cuda_wgmma<CudaF16, 8 * J, K_MAJOR, MN_MAJOR>(c, nullptr, a, b, scale_d);
}
template <bool BF16, int J>
CUDA_PTX void wgmma_mma_async(float (&c)[J][4], unsigned long long a, unsigned long long b)
{
    if constexpr (BF16)
        cuda_wgmma<CudaBf16, 8 * J, MN_MAJOR, K_MAJOR>(c, nullptr, a, b, true);
    else
        cuda_wgmma<CudaF16, 8 * J, MN_MAJOR, K_MAJOR>(c, nullptr, a, b, true);
}

CUDA_PTX void wgmma_fence() { cuda_wgmma_fence(); }
CUDA_PTX void wgmma_commit_group() { cuda_wgmma_commit_group(); }
template <int PENDING, class Sum, int J> CUDA_PTX void wgmma_wait_group(Sum (&)[J][4])
{
    cuda_warp_exchange(~0u, 0);  // all lanes have started their products
    cuda_wgmma_wait_group(PENDING);
    cuda_warp_exchange(~0u, 0);  // lane 0 has waited for all
}
template <int REGISTERS> CUDA_PTX void setmaxnreg_dec() { cuda_setmaxnreg(REGISTERS); }
template <int REGISTERS> CUDA_PTX void setmaxnreg_inc() { cuda_setmaxnreg(REGISTERS); }
CUDA_PTX void fence_proxy_async() { cuda_fence_proxy_async(); }

// ---- named barriers, clusters, relaxed accesses ----

CUDA_PTX void barrier_sync(int id, int threads) { cuda_named_barrier(id, threads); }
CUDA_PTX void prefetch_global_L2(const void *address) { cuda_prefetch(address); }
template <class T> CUDA_PTX T ld_relaxed_gpu_global(const T *address)
{
    T x;
    cuda_relaxed(address, &x, sizeof x, READ);
    return x;
}
template <class T> CUDA_PTX void st_relaxed_gpu_global(T *address, T x) { cuda_relaxed(address, &x, sizeof x, WRITE); }
CUDA_PTX void barrier_cluster_arrive() { cuda_barrier_cluster_arrive(); }
CUDA_PTX void barrier_cluster_wait() { cuda_barrier_cluster_wait(); }
CUDA_PTX unsigned mapa(const void *p, int rank) { return cuda_mapa(p, rank); }
template <class T> CUDA_PTX void ld_shared_cluster(T &x, unsigned address) { cuda_shared_cluster(address, &x, sizeof x, READ); }
template <class T> CUDA_PTX void st_shared_cluster(unsigned address, T x) { cuda_shared_cluster(address, &x, sizeof x, WRITE); }
CUDA_PTX void st_shared_cluster_v4(unsigned address, float4 x) { cuda_shared_cluster(address, &x, sizeof x, WRITE); }
CUDA_PTX float4 ld_shared_cluster_v4(unsigned address)
{
    float4 x;
    cuda_shared_cluster(address, &x, sizeof x, READ);
    return x;
}
CUDA_PTX float4 ld_shared_v4(unsigned address) { return *(const float4 *)(cuda_dynamic_shared() + address); }

// ---- mbarriers and TMA ----

CUDA_PTX void mbarrier_init(unsigned long long *barrier, int arrivals) { cuda_mbarrier_init(barrier, arrivals); }
CUDA_PTX void fence_mbarrier_init() { cuda_fence_mbarrier_init(); }
CUDA_PTX void mbarrier_arrive(unsigned long long *barrier) { cuda_mbarrier_arrive(cuda_mapa(barrier, -1), 0); }
CUDA_PTX void mbarrier_arrive_expect_tx(unsigned long long *barrier, int bytes) { cuda_mbarrier_arrive(cuda_mapa(barrier, -1), bytes); }
CUDA_PTX void mbarrier_arrive_shared_cluster(unsigned barrier) { cuda_mbarrier_arrive(barrier, 0); }
CUDA_PTX void mbarrier_wait(unsigned long long *barrier, int parity) { cuda_mbarrier_wait(barrier, parity); }
CUDA_PTX void cp_async_bulk_tensor_shared_global(void *target, const TensorMap &map, int column, int row, unsigned long long *barrier)
{
    cuda_tma_load(target, map, column, row, barrier, 0);
}
CUDA_PTX void cp_async_bulk_tensor_shared_global_multicast(void *target, const TensorMap &map, int column, int row,
                                                           unsigned long long *barrier, unsigned short ranks)
{
    cuda_tma_load(target, map, column, row, barrier, ranks);
}
CUDA_PTX void cp_async_bulk_tensor_global_shared(const TensorMap &map, int column, int row, const void *source)
{
    cuda_tma_store(map, column, row, source);
}
CUDA_PTX void cp_async_bulk_prefetch_tensor(const TensorMap &, int, int) {}
CUDA_PTX void prefetch_tensormap(const TensorMap &) {}
CUDA_PTX void griddepcontrol_launch_dependents() {}
CUDA_PTX void griddepcontrol_wait() {}
CUDA_PTX void cp_async_bulk_commit_group() { cuda_bulk_commit_group(); }
template <int PENDING> CUDA_PTX void cp_async_bulk_wait_group_read() { cuda_bulk_wait_group(PENDING); }
template <int PENDING> CUDA_PTX void cp_async_bulk_wait_group() { cuda_bulk_wait_group(PENDING); }

}  // namespace ptx
