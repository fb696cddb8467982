// One function for each PTX instruction that CUDA C++ does not provide, with the name in the PTX ISA.
//
// All PTX of the rungs is here. backends/emulated/cuda_on_host.h defines the same functions for a CPU, and this guard.
#ifndef PTX_CUH
#define PTX_CUH

// ---- arithmetic ----

// sum += term; the compiler does not remove it.
__device__ inline void add_u32(unsigned &sum, unsigned term)
{
    asm volatile("add.u32 %0, %0, %1;" : "+r"(sum) : "r"(term));
}

// Move a pointer by two additions of 32 bits. Of one of 64 bits the compiler may make a multiply-add, on the FMA units.
template <class T> __device__ void add_cc(const T *&pointer, long long bytes)
{
    asm volatile("{.reg .b32 low, high, x, y; mov.b64 {low, high}, %0; mov.b64 {x, y}, %1; "
                 "add.cc.u32 low, low, x; addc.u32 high, high, y; mov.b64 %0, {low, high};}"
                 : "+l"(pointer)
                 : "l"(bytes));
}

// x = x, here: the compiler does not move the computation of x into a branch that uses it.
__device__ inline void mov(double &x)
{
    asm volatile("mov.f64 %0, %0;" : "+d"(x));
}

__device__ inline void mov(float &x)
{
    asm volatile("mov.f32 %0, %0;" : "+f"(x));
}

// Return four of the bytes of low (0 to 3) and high (4 to 7), selected by the lowest four digits of the selector.
// __byte_perm clears the fourth bit of each digit first, which is another instruction.
__device__ inline unsigned prmt_b32(unsigned low, unsigned high, unsigned selector)
{
    unsigned chosen;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(chosen) : "r"(low), "r"(high), "r"(selector));
    return chosen;
}

// ---- asynchronous copies, compute capability 8.0 ----

// Start a copy of BYTES (4, 8 or 16) from global to shared memory. It reads the first `valid` bytes of the source and
// writes zeros for the rest. Copies of 16 bytes bypass the L1 cache.
template <int BYTES> __device__ void cp_async(void *target, const void *source, int valid = BYTES)
{
    const unsigned address = __cvta_generic_to_shared(target);
    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(source), "r"(valid));
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address), "l"(source), "n"(BYTES),
                     "r"(valid));
}

// The same to an address in shared memory. With `ignored`, the source is not read, and all bytes are zero.
template <int BYTES> __device__ void cp_async(unsigned target, const void *source, bool ignored)
{
    if constexpr (BYTES == 16)
        asm volatile("{.reg .pred p; setp.ne.s32 p, %2, 0; "
                     "cp.async.cg.shared.global [%0], [%1], 16, p;}" ::"r"(target),
                     "l"(source), "r"((int)ignored));
    else
        asm volatile("{.reg .pred p; setp.ne.s32 p, %3, 0; "
                     "cp.async.ca.shared.global [%0], [%1], %2, p;}" ::"r"(target),
                     "l"(source), "n"(BYTES), "r"((int)ignored));
}

// Commit this thread's copies since its last commit as one group.
__device__ inline void cp_async_commit_group()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Wait until at most PENDING of this thread's latest groups are incomplete.
template <int PENDING> __device__ void cp_async_wait_group()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// ---- tensor cores: products of a warp, compute capability 8.0 ----
//
// c += a b, with a of 16 x 8, b of 8 x 8 and c of 16 x 8 elements. With g = lane / 4 and t = lane % 4 a lane holds
//   a[0 .. 3]: rows g, g + 8, g, g + 8 in columns t, t, t + 4, t + 4
//   b[0 .. 1]: rows t, t + 4 in column g
//   c[0 .. 3]: rows g, g, g + 8, g + 8 in columns 2 t, 2 t + 1, 2 t, 2 t + 1

// c += a b of 8 x 4 and 4 x 8 elements. A lane holds a in row g, column t, b in row t, column g, and c in row g,
// columns 2 t and 2 t + 1.
__device__ inline void mma_m8n8k4_f64(double &c0, double &c1, double a, double b)
{
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+d"(c0), "+d"(c1)
        : "d"(a), "d"(b));
}

// One instruction from compute capability 9.0 on, four of m8n8k4 before.
__device__ inline void mma_m16n8k8_f64(double (&c)[4], const double (&a)[4], const double (&b)[2])
{
#if __CUDA_ARCH__ >= 900
    asm("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
        : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
#else
#pragma unroll
    for (int i = 0; i < 4; ++i)
        mma_m8n8k4_f64(c[i % 2 * 2], c[i % 2 * 2 + 1], a[i], b[i / 2]);
#endif
}

// The same with 16 terms, compute capability 9.0: a[4 .. 7] and b[2 .. 3] are the same elements 8 terms later.
__device__ inline void mma_m16n8k16_f64(double (&c)[4], const double (&a)[8], const double (&b)[4])
{
    asm("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7, %8, %9, %10, %11}, "
        "{%12, %13, %14, %15}, {%0, %1, %2, %3};"
        : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
        : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]), "d"(a[7]), "d"(b[0]), "d"(b[1]),
          "d"(b[2]), "d"(b[3]));
}

// TF32 operands, float32 sums. The hardware ignores the last 13 bits of a and b and truncates sums.
__device__ inline void mma_m16n8k8_tf32(float (&c)[4], const float (&a)[4], const float (&b)[2])
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])),
          "r"(__float_as_uint(a[3])), "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
}

// ---- tensor cores: 16-bit elements, compute capability 8.0 ----

// Load four matrices of 8 x 8 16-bit elements from shared memory. Lane i gives the address of row i % 8 of matrix i /
// 8, 16 bytes. With g = lane / 4 and t = lane % 4, x[j] gets the elements in row g and columns 2 t, 2 t + 1 of matrix
// j.
__device__ inline void ldmatrix_x4(unsigned (&x)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"((unsigned)__cvta_generic_to_shared(row))
                 : "memory");
}

// The same, transposed: x[j] gets the elements in rows 2 t, 2 t + 1 and column g of matrix j.
__device__ inline void ldmatrix_x4_trans(unsigned (&x)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"((unsigned)__cvta_generic_to_shared(row))
                 : "memory");
}

// Store four matrices to shared memory, with addresses and elements as ldmatrix_x4. Compute capability 9.0.
__device__ inline void stmatrix_x4(void *row, const unsigned (&x)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                     (unsigned)__cvta_generic_to_shared(row)),
                 "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
                 : "memory");
}

// The same, transposed, as ldmatrix_x4_trans.
__device__ inline void stmatrix_x4_trans(void *row, const unsigned (&x)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                     (unsigned)__cvta_generic_to_shared(row)),
                 "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
                 : "memory");
}

// c += a b, with a of 16 x 16, b of 16 x 8 and c of 16 x 8 elements. A register of a or b holds two elements, the first
// one in its low half:
//   a[0 .. 3]: rows g, g + 8, g, g + 8 in columns 2 t, 2 t + 1 (0, 1) and 2 t + 8, 2 t + 9 (2, 3)
//   b[0 .. 1]: rows 2 t, 2 t + 1 and 2 t + 8, 2 t + 9 in column g
//   c[0 .. 3]: rows g, g, g + 8, g + 8 in columns 2 t, 2 t + 1, 2 t, 2 t + 1
__device__ inline void mma_m16n8k16_f16(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ inline void mma_m16n8k16_bf16(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// c += a b, with a of 16 x 32, b of 32 x 8 and c of 16 x 8 elements. A register of a or b holds four elements, the first
// one in its lowest byte: of a, columns 4 t to 4 t + 3 (0, 1) and 4 t + 16 to 4 t + 19 (2, 3), and of b such rows.
__device__ inline void mma_m16n8k32_s8(int (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Convert two numbers to the nearest 16-bit ones: `first` in the low half of the result.
__device__ inline unsigned cvt_rn_f16x2(float first, float second)
{
    unsigned pair;
    asm("cvt.rn.f16x2.f32 %0, %2, %1;" : "=r"(pair) : "f"(first), "f"(second));
    return pair;
}

__device__ inline unsigned cvt_rn_bf16x2(float first, float second)
{
    unsigned pair;
    asm("cvt.rn.bf16x2.f32 %0, %2, %1;" : "=r"(pair) : "f"(first), "f"(second));
    return pair;
}

__device__ inline float cvt_f32_f16(unsigned short bits)
{
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}

// ---- tensor cores: products of a warpgroup, compute capability 9.0 only ----

// Order earlier accesses to registers and shared memory before the following products.
__device__ inline void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// Start c = a b + (scale_d ? c : 0), or c += a b. c has 64 x N elements, N = 8 J, and b has N columns. Warp w of the
// warpgroup has rows 16 w to 16 w + 15: with g = lane / 4 and t = lane % 4 a lane holds
//   c[j][0 .. 3]: rows g, g, g + 8, g + 8 in columns 8 j + 2 t, 8 j + 2 t + 1, 8 j + 2 t, 8 j + 2 t + 1
// b, and a if it is no array, are in shared memory, at matrix descriptors.
//
// X has N, and the numbers of the operands of an asm statement that follow its N / 2 sums.
#define WIDTHS(X) \
    X(8, 4, 5) X(16, 8, 9) X(24, 12, 13) X(32, 16, 17) X(40, 20, 21) X(48, 24, 25) X(56, 28, 29) X(64, 32, 33) \
    X(72, 36, 37) X(80, 40, 41) X(88, 44, 45) X(96, 48, 49) X(104, 52, 53) X(112, 56, 57) X(120, 60, 61) \
    X(128, 64, 65) X(136, 68, 69) X(144, 72, 73) X(152, 76, 77) X(160, 80, 81) X(168, 84, 85) X(176, 88, 89) \
    X(184, 92, 93) X(192, 96, 97) X(200, 100, 101) X(208, 104, 105) X(216, 108, 109) X(224, 112, 113) \
    X(232, 116, 117) X(240, 120, 121) X(248, 124, 125) X(256, 128, 129)
#define FEW_WIDTHS(X) \
    X(32, 16, 17, 18, 19, 20, 21) X(64, 32, 33, 34, 35, 36, 37) X(128, 64, 65, 66, 67, 68, 69) \
    X(192, 96, 97, 98, 99, 100, 101) X(256, 128, 129, 130, 131, 132, 133)
// The N / 2 sums of a lane as operands, and their numbers
#define FOURS_8 FOUR(0)
#define FOURS_16 FOURS_8, FOUR(1)
#define FOURS_24 FOURS_16, FOUR(2)
#define FOURS_32 FOURS_24, FOUR(3)
#define FOURS_40 FOURS_32, FOUR(4)
#define FOURS_48 FOURS_40, FOUR(5)
#define FOURS_56 FOURS_48, FOUR(6)
#define FOURS_64 FOURS_56, FOUR(7)
#define FOURS_72 FOURS_64, FOUR(8)
#define FOURS_80 FOURS_72, FOUR(9)
#define FOURS_88 FOURS_80, FOUR(10)
#define FOURS_96 FOURS_88, FOUR(11)
#define FOURS_104 FOURS_96, FOUR(12)
#define FOURS_112 FOURS_104, FOUR(13)
#define FOURS_120 FOURS_112, FOUR(14)
#define FOURS_128 FOURS_120, FOUR(15)
#define FOURS_136 FOURS_128, FOUR(16)
#define FOURS_144 FOURS_136, FOUR(17)
#define FOURS_152 FOURS_144, FOUR(18)
#define FOURS_160 FOURS_152, FOUR(19)
#define FOURS_168 FOURS_160, FOUR(20)
#define FOURS_176 FOURS_168, FOUR(21)
#define FOURS_184 FOURS_176, FOUR(22)
#define FOURS_192 FOURS_184, FOUR(23)
#define FOURS_200 FOURS_192, FOUR(24)
#define FOURS_208 FOURS_200, FOUR(25)
#define FOURS_216 FOURS_208, FOUR(26)
#define FOURS_224 FOURS_216, FOUR(27)
#define FOURS_232 FOURS_224, FOUR(28)
#define FOURS_240 FOURS_232, FOUR(29)
#define FOURS_248 FOURS_240, FOUR(30)
#define FOURS_256 FOURS_248, FOUR(31)
#define SUMS_8 "%0, %1, %2, %3"
#define SUMS_16 SUMS_8 ", %4, %5, %6, %7"
#define SUMS_24 SUMS_16 ", %8, %9, %10, %11"
#define SUMS_32 SUMS_24 ", %12, %13, %14, %15"
#define SUMS_40 SUMS_32 ", %16, %17, %18, %19"
#define SUMS_48 SUMS_40 ", %20, %21, %22, %23"
#define SUMS_56 SUMS_48 ", %24, %25, %26, %27"
#define SUMS_64 SUMS_56 ", %28, %29, %30, %31"
#define SUMS_72 SUMS_64 ", %32, %33, %34, %35"
#define SUMS_80 SUMS_72 ", %36, %37, %38, %39"
#define SUMS_88 SUMS_80 ", %40, %41, %42, %43"
#define SUMS_96 SUMS_88 ", %44, %45, %46, %47"
#define SUMS_104 SUMS_96 ", %48, %49, %50, %51"
#define SUMS_112 SUMS_104 ", %52, %53, %54, %55"
#define SUMS_120 SUMS_112 ", %56, %57, %58, %59"
#define SUMS_128 SUMS_120 ", %60, %61, %62, %63"
#define SUMS_136 SUMS_128 ", %64, %65, %66, %67"
#define SUMS_144 SUMS_136 ", %68, %69, %70, %71"
#define SUMS_152 SUMS_144 ", %72, %73, %74, %75"
#define SUMS_160 SUMS_152 ", %76, %77, %78, %79"
#define SUMS_168 SUMS_160 ", %80, %81, %82, %83"
#define SUMS_176 SUMS_168 ", %84, %85, %86, %87"
#define SUMS_184 SUMS_176 ", %88, %89, %90, %91"
#define SUMS_192 SUMS_184 ", %92, %93, %94, %95"
#define SUMS_200 SUMS_192 ", %96, %97, %98, %99"
#define SUMS_208 SUMS_200 ", %100, %101, %102, %103"
#define SUMS_216 SUMS_208 ", %104, %105, %106, %107"
#define SUMS_224 SUMS_216 ", %108, %109, %110, %111"
#define SUMS_232 SUMS_224 ", %112, %113, %114, %115"
#define SUMS_240 SUMS_232 ", %116, %117, %118, %119"
#define SUMS_248 SUMS_240 ", %120, %121, %122, %123"
#define SUMS_256 SUMS_248 ", %124, %125, %126, %127"
#define FOUR(j) "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3])

// TF32: a has 64 x 8 elements in registers, a[0 .. 3]: rows g, g + 8, g, g + 8 in columns t, t, t + 4, t + 4. b has its
// rows along k (K-major).
template <int J>
__device__ void wgmma_mma_async(float (&c)[J][4], const float (&a)[4], unsigned long long b, bool scale_d)
{
#define X(N, A0, A1, A2, A3, B, SCALE_D)                                                                          \
    if constexpr (8 * J == N)                                                                                     \
        asm volatile("{\n.reg .pred scale_d;\nsetp.ne.b32 scale_d, %" #SCALE_D ", 0;\n"                           \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k8.f32.tf32.tf32 {" SUMS_##N "}, {%" #A0 ", %" #A1    \
                     ", %" #A2 ", %" #A3 "}, %" #B ", scale_d, 1, 1;\n}"                                          \
                     : FOURS_##N                                                                                  \
                     : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])),        \
                       "r"(__float_as_uint(a[3])), "l"(b), "r"((int)scale_d));
    static_assert(J == 4 || (J % 8 == 0 && J <= 32), "a width above");
    FEW_WIDTHS(X)
#undef X
}

// 16-bit elements: a of 64 x 16 has its rows along k (K-major), and b its rows along N (MN-major).
template <bool BF16, int J>
__device__ void wgmma_mma_async(float (&c)[J][4], unsigned long long a, unsigned long long b, bool scale_d)
{
#define OF_TYPE(N, type, A, B, SCALE_D)                                                                             \
    asm volatile("{\n.reg .pred scale_d;\nsetp.ne.b32 scale_d, %" #SCALE_D ", 0;\n"                                 \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #type "." #type " {" SUMS_##N "}, %" #A ", %" #B \
                 ", scale_d, 1, 1, 0, 1;\n}"                                                                        \
                 : FOURS_##N                                                                                        \
                 : "l"(a), "l"(b), "r"((int)scale_d))
#define X(N, A, B, SCALE_D, P3, P4, P5)      \
    if constexpr (8 * J == N) {              \
        if constexpr (BF16)                  \
            OF_TYPE(N, bf16, A, B, SCALE_D); \
        else                                 \
            OF_TYPE(N, f16, A, B, SCALE_D);  \
    }
    static_assert(J == 4 || (J % 8 == 0 && J <= 32), "a width above");
    FEW_WIDTHS(X)
#undef X
#undef OF_TYPE
}

// The same for a transposed product: a has its columns along 64 (MN-major), and b its columns along k (K-major).
template <bool BF16, int J>
__device__ void wgmma_mma_async(float (&c)[J][4], unsigned long long a, unsigned long long b)
{
#define OF_TYPE(N, type, A, B)                                                                                      \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #type "." #type " {" SUMS_##N "}, %" #A ", %" #B \
                 ", 1, 1, 1, 1, 0;"                                                                                 \
                 : FOURS_##N                                                                                        \
                 : "l"(a), "l"(b))
#define X(N, A, B)                  \
    if constexpr (8 * J == N) {     \
        if constexpr (BF16)         \
            OF_TYPE(N, bf16, A, B); \
        else                        \
            OF_TYPE(N, f16, A, B);  \
    }
    static_assert(J <= 32, "a width above");
    WIDTHS(X)
#undef X
#undef OF_TYPE
}

// Commit this warpgroup's products since its last commit as one group.
__device__ inline void wgmma_commit_group()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Wait until at most PENDING of this warpgroup's latest groups are incomplete. c is an operand so that the compiler
// does not read the sums earlier.
template <int PENDING, int J> __device__ void wgmma_wait_group(float (&c)[J][4])
{
#define X(N, PENDING_AT, P1)  \
    if constexpr (8 * J == N) \
        asm volatile("wgmma.wait_group.sync.aligned %" #PENDING_AT ";" : FOURS_##N : "n"(PENDING) : "memory");
    WIDTHS(X)
#undef X
}

#undef FOUR
#define FOUR(j) "+r"(c[j][0]), "+r"(c[j][1]), "+r"(c[j][2]), "+r"(c[j][3])

template <int PENDING, int J> __device__ void wgmma_wait_group(int (&c)[J][4])
{
#define X(N, PENDING_AT, P1, P2, P3, P4, P5) \
    if constexpr (8 * J == N)                \
        asm volatile("wgmma.wait_group.sync.aligned %" #PENDING_AT ";" : FOURS_##N : "n"(PENDING) : "memory");
    static_assert(J == 4 || (J % 8 == 0 && J <= 32), "a width above");
    FEW_WIDTHS(X)
#undef X
}

// int8: a of 64 x 32 and b have their rows along k (K-major). c has int32 elements; sums wrap.
template <int J>
__device__ void wgmma_mma_async(int (&c)[J][4], unsigned long long a, unsigned long long b, bool scale_d)
{
#define X(N, A, B, SCALE_D, P3, P4, P5)                                                                       \
    if constexpr (8 * J == N)                                                                                 \
        asm volatile("{\n.reg .pred scale_d;\nsetp.ne.b32 scale_d, %" #SCALE_D ", 0;\n"                       \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k32.s32.s8.s8 {" SUMS_##N "}, %" #A ", %" #B     \
                     ", scale_d;\n}"                                                                          \
                     : FOURS_##N                                                                              \
                     : "l"(a), "l"(b), "r"((int)scale_d));
    static_assert(J == 4 || (J % 8 == 0 && J <= 32), "a width above");
    FEW_WIDTHS(X)
#undef X
}

// The same with a of 64 x 32 in registers, a[0 .. 3]: rows g, g + 8, g, g + 8 in columns 4 t to 4 t + 3, the last two 16
// columns further.
template <int J>
__device__ void wgmma_mma_async(int (&c)[J][4], const unsigned (&a)[4], unsigned long long b, bool scale_d)
{
#define X(N, A0, A1, A2, A3, B, SCALE_D)                                                                      \
    if constexpr (8 * J == N)                                                                                 \
        asm volatile("{\n.reg .pred scale_d;\nsetp.ne.b32 scale_d, %" #SCALE_D ", 0;\n"                       \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k32.s32.s8.s8 {" SUMS_##N "}, {%" #A0 ", %" #A1  \
                     ", %" #A2 ", %" #A3 "}, %" #B ", scale_d;\n}"                                            \
                     : FOURS_##N                                                                              \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)scale_d));
    static_assert(J == 4 || (J % 8 == 0 && J <= 32), "a width above");
    FEW_WIDTHS(X)
#undef X
}

#undef FOUR
#undef FEW_WIDTHS
#undef WIDTHS

// Release registers of this warpgroup, or request more: REGISTERS per thread from here on.
template <int REGISTERS> __device__ void setmaxnreg_dec()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

template <int REGISTERS> __device__ void setmaxnreg_inc()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

// Make this thread's writes to shared memory visible to later products of a warpgroup, once a barrier has ordered them.
__device__ inline void fence_proxy_async()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---- shared memory by its 32-bit addresses ----

// Load 16 bytes from an address of shared memory.
__device__ inline float4 ld_shared_v4(unsigned address)
{
    float4 x;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "r"(address));
    return x;
}

// ---- named barriers ----

// Wait until `threads` threads of the block have arrived at barrier `id`. Barrier 0 is that of __syncthreads().
__device__ inline void barrier_sync(int id, int threads)
{
    asm volatile("barrier.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---- relaxed accesses to global memory, compute capability 7.0 ----
//
// Each access is of a whole word in the L2 cache, whatever other blocks do with it. It does not order other accesses.

__device__ inline unsigned ld_relaxed_gpu_global(const unsigned *address)
{
    unsigned x;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(address) : "memory");
    return x;
}

__device__ inline unsigned long long ld_relaxed_gpu_global(const unsigned long long *address)
{
    unsigned long long x;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(x) : "l"(address) : "memory");
    return x;
}

__device__ inline void st_relaxed_gpu_global(unsigned *address, unsigned x)
{
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(address), "r"(x) : "memory");
}

__device__ inline void st_relaxed_gpu_global(unsigned long long *address, unsigned long long x)
{
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(address), "l"(x) : "memory");
}

// ---- prefetching, compute capability 8.0 ----

// Prefetch the cache line at an address of global memory into the L2 cache.
__device__ inline void prefetch_global_L2(const void *address)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

// ---- clusters and distributed shared memory, compute capability 9.0 ----

// Arrive at the barrier of the cluster. Earlier accesses are visible to the other threads after their wait.
__device__ inline void barrier_cluster_arrive()
{
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

__device__ inline void barrier_cluster_wait()
{
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Map an address of shared memory to the block of rank `rank`, as an address in the cluster's shared-memory window.
__device__ inline unsigned mapa(const void *address, int rank)
{
    unsigned remote;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"((unsigned)__cvta_generic_to_shared(address)), "r"(rank));
    return remote;
}

// Store to the shared memory of any block of the cluster.
__device__ inline void st_shared_cluster(unsigned address, float x)
{
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(address), "f"(x) : "memory");
}

__device__ inline void st_shared_cluster(unsigned address, double x)
{
    asm volatile("st.shared::cluster.f64 [%0], %1;" ::"r"(address), "d"(x) : "memory");
}

// The same for 16 bytes.
__device__ inline void st_shared_cluster_v4(unsigned address, const float4 &x)
{
    asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w)
                 : "memory");
}

// Load from the shared memory of any block of the cluster.
__device__ inline void ld_shared_cluster(float &x, unsigned address)
{
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(x) : "r"(address) : "memory");
}

__device__ inline void ld_shared_cluster(double &x, unsigned address)
{
    asm volatile("ld.shared::cluster.f64 %0, [%1];" : "=d"(x) : "r"(address) : "memory");
}

// The same for 16 bytes.
__device__ inline float4 ld_shared_cluster_v4(unsigned address)
{
    float4 x;
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "r"(address)
                 : "memory");
    return x;
}

// ---- mbarriers and the tensor memory accelerator (TMA), compute capability 9.0 ----
//
// A phase of an mbarrier ends when the number of arrivals given at its initialization and all expected bytes have
// arrived. A phase is identified by its parity, from 0.

__device__ inline void mbarrier_init(unsigned long long *barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"((unsigned)__cvta_generic_to_shared(barrier)),
                 "r"(arrivals));
}

// Make initialized mbarriers visible to the cluster and to TMA; a barrier of the block or the cluster has to follow.
__device__ inline void fence_mbarrier_init()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void mbarrier_arrive(unsigned long long *barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"((unsigned)__cvta_generic_to_shared(barrier))
                 : "memory");
}

// Arrive, and add `bytes` to the bytes that this phase expects.
__device__ inline void mbarrier_arrive_expect_tx(unsigned long long *barrier, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                     (unsigned)__cvta_generic_to_shared(barrier)),
                 "r"(bytes)
                 : "memory");
}

// Arrive at an mbarrier of any block of the cluster, at its address from mapa.
__device__ inline void mbarrier_arrive_shared_cluster(unsigned barrier)
{
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Wait until the phase of this parity has ended.
__device__ inline void mbarrier_wait(unsigned long long *barrier, int parity)
{
    unsigned ended;
    do
        asm volatile("{\n.reg .pred ended;\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\nselp.u32 %0, 1, 0, ended;\n}"
                     : "=r"(ended)
                     : "r"((unsigned)__cvta_generic_to_shared(barrier)), "r"(parity)
                     : "memory");
    while (!ended);
}

// A tensor map as cuTensorMapEncodeTiled makes it: a matrix, and the box of it that one copy moves.
struct alignas(64) TensorMap {
    unsigned long long opaque[16];
};

// Start a copy of a box to shared memory; its bytes arrive at the mbarrier. Elements outside the matrix are zero.
__device__ inline void cp_async_bulk_tensor_shared_global(void *target, const TensorMap &map, int column, int row,
                                            unsigned long long *barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], "
                 "[%2];" ::"r"((unsigned)__cvta_generic_to_shared(target)),
                 "l"(&map), "r"((unsigned)__cvta_generic_to_shared(barrier)), "r"(column), "r"(row)
                 : "memory");
}

// The same, to the same address in every block of the cluster whose bit is set in `ranks`; the bytes arrive at the
// mbarrier of each block.
__device__ inline void cp_async_bulk_tensor_shared_global_multicast(void *target, const TensorMap &map, int column, int row,
                                                      unsigned long long *barrier, unsigned short ranks)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"((unsigned)__cvta_generic_to_shared(target)),
                 "l"(&map), "r"((unsigned)__cvta_generic_to_shared(barrier)), "r"(column), "r"(row), "h"(ranks)
                 : "memory");
}

// Start a copy of a box from shared memory. Elements outside the matrix are not written.
__device__ inline void cp_async_bulk_tensor_global_shared(const TensorMap &map, int column, int row, const void *source)
{
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&map),
                 "r"((unsigned)__cvta_generic_to_shared(source)), "r"(column), "r"(row)
                 : "memory");
}

// Prefetch a box into the L2 cache.
__device__ inline void cp_async_bulk_prefetch_tensor(const TensorMap &map, int column, int row)
{
    asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %2}];" ::"l"(&map), "r"(column), "r"(row)
                 : "memory");
}

// Allow the next launch, if it overlaps this one, to begin when all blocks have called this or ended.
__device__ inline void griddepcontrol_launch_dependents()
{
    asm volatile("griddepcontrol.launch_dependents;");
}

// Wait until the launch that this one overlaps has ended, and its stores are visible; at once if it overlaps none.
__device__ inline void griddepcontrol_wait()
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

// Prefetch a tensor map into the cache from which TMA reads it.
__device__ inline void prefetch_tensormap(const TensorMap &map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Commit this thread's stores since its last commit as one group.
__device__ inline void cp_async_bulk_commit_group()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Wait until at most PENDING of this thread's latest groups have not read their shared memory.
template <int PENDING> __device__ void cp_async_bulk_wait_group_read()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}

// Wait until at most PENDING of this thread's latest groups are incomplete.
template <int PENDING> __device__ void cp_async_bulk_wait_group()
{
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(PENDING) : "memory");
}

#endif
