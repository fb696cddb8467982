/* The eight tiles of AMX: instructions where the processor and the operating system have them, else the same in C.

   A tile has 16 rows of 64 bytes. tile_multiply adds a product to a tile of 16 x 16 sums: 16 rows of A, each with 64
   bytes along k, times 16 columns of B. A row of B's tile has the next 4 bytes along k of all columns: B is interleaved.
   An element is bfloat16 with sums in float32, or int8 with sums in int32.

   HPCMM_SIMD=emulated selects the C code, for tests. */
#ifndef HPCMM_AMX_H
#define HPCMM_AMX_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
#define INLINE static inline __attribute__((always_inline))

#define JOIN(a, b) JOIN_EXPANDED(a, b)
#define JOIN_EXPANDED(a, b) a##b
#ifndef SUM
#define SUM ACCUMULATOR
#endif
#define IS_INT8 JOIN(IS_INT8_, SUM)
#define IS_INT8_int 1
#define IS_INT8_float 0
#if IS_INT8
typedef int8_t element;
typedef uint8_t element_bits;
typedef int32_t result;
#else
typedef uint16_t element, element_bits, result; /* the bits of bfloat16: gcc 12 does not have the type */
#endif
enum {
    EDGE = 16,                            /* rows and columns of a tile of sums */
    ROW_BYTES = 64,                       /* of a tile */
    TILE_BYTES = EDGE * ROW_BYTES,        /* a tile of sums has as many */
    GROUP = 4 / sizeof(element),          /* neighbours along k in a row of B's tile */
    DEPTH = ROW_BYTES / sizeof(element),  /* terms of a product of tiles */
};

#if !IS_INT8
INLINE float to_float(uint16_t bits)
{
    const uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}
#endif

/* Loops of a constant number of rounds over local arrays: the compiler makes vector instructions of them. */

/* C = alpha s + beta C for 16 elements, rounded to nearest, ties to even; beta = 0: C is not read. */
INLINE void write_row(SUM alpha, const SUM *s, SUM beta, result *c)
{
    result row[EDGE] = {0};
    if (beta != 0)
        memcpy(row, c, sizeof row);
    for (int j = 0; j < EDGE; ++j) {
#if IS_INT8
        row[j] = alpha * s[j] + beta * row[j];
#else
        const float sum = alpha * s[j] + beta * to_float(row[j]);
        uint32_t bits;
        memcpy(&bits, &sum, sizeof bits);
        row[j] = sum == sum ? (bits + 0x7fff + (bits >> 16 & 1)) >> 16 : 0x7fc0;
#endif
    }
    memcpy(c, row, sizeof row);
}

/* The same for a part of a row, of at most 16 elements. */
INLINE void write_part(int width, SUM alpha, const SUM *s, SUM beta, result *c)
{
    result part[EDGE] = {0};
    if (width >= EDGE)
        write_row(alpha, s, beta, c);
    else {
        if (beta != 0)
            memcpy(part, c, width * sizeof *c);
        write_row(alpha, s, beta, part);
        memcpy(c, part, width * sizeof *c);
    }
}

/* Copy GROUP rows of 16 columns to a row of a tile of B, with the elements of a column side by side. */
INLINE void interleave(const element *from, size_t ld, element *to)
{
    uint32_t words[EDGE];
    for (int j = 0; j < EDGE; ++j) {
        words[j] = 0;
        for (int g = 0; g < GROUP; ++g)
            words[j] |= (uint32_t)(element_bits)from[g * ld + j] << 8 * (int)sizeof(element) * g;
    }
    memcpy(to, words, sizeof words);
}

/* --- detection */

/* Whether AMX computes in this type here: the processor has it, the system saves its registers, and it grants them. */
static bool detect_amx(void)
{
    const char *wanted = getenv("HPCMM_SIMD");
    if (wanted && strcmp(wanted, "amx"))
        return false;
#if defined(__linux__) && defined(__x86_64__)
    enum { OSXSAVE = 1 << 27, AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24, AMX_INT8 = 1 << 25, TILES = 3 << 17 };
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18 };
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & OSXSAVE))
        return false;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & AMX_TILE) || !(d & (IS_INT8 ? AMX_INT8 : AMX_BF16)))
        return false;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & TILES) == TILES && !syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA);
#else
    return false;
#endif
}

const char *path(void)
{
    return detect_amx() ? "amx" : "emulated";
}

/* --- tiles */

static bool amx; /* what path() found; set by matmul */
static _Thread_local _Alignas(64) unsigned char emulated[8][TILE_BYTES]; /* tiles without AMX */

/* Give a thread eight tiles of full size. */
static void tiles_begin(void)
{
#if defined(__x86_64__)
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } shape = {.palette = 1};
    for (int tile = 0; tile < 8; ++tile)
        shape.row_bytes[tile] = ROW_BYTES, shape.rows[tile] = EDGE;
    if (amx)
        __asm__ volatile("ldtilecfg %0" ::"m"(shape));
#endif
}

static void tiles_end(void)
{
#if defined(__x86_64__)
    if (amx)
        __asm__ volatile("tilerelease");
#endif
}

static void emulated_multiply(int c, int a, int b)
{
    SUM sums[EDGE][EDGE];
    element left[EDGE][DEPTH], right[EDGE][EDGE][GROUP];
    memcpy(sums, emulated[c], sizeof sums);
    memcpy(left, emulated[a], sizeof left);
    memcpy(right, emulated[b], sizeof right);
    for (int i = 0; i < EDGE; ++i)
        for (int p = 0; p < DEPTH; ++p)
            for (int j = 0; j < EDGE; ++j)
#if IS_INT8
                sums[i][j] += left[i][p] * right[p / GROUP][j][p % GROUP];
#else
                sums[i][j] += to_float(left[i][p]) * to_float(right[p / GROUP][j][p % GROUP]);
#endif
    memcpy(emulated[c], sums, sizeof sums);
}

static void emulated_copy(int tile, const void *from, void *to, size_t stride)
{
    for (int i = 0; i < EDGE; ++i)
        if (to)
            memcpy((char *)to + i * stride, emulated[tile] + i * ROW_BYTES, ROW_BYTES);
        else
            memcpy(emulated[tile] + i * ROW_BYTES, (const char *)from + i * stride, ROW_BYTES);
}

/* The number of a tile is part of its instruction, so these are macros. A stride is in bytes. */
#if defined(__x86_64__)
#define PRODUCT_float "tdpbf16ps"
#define PRODUCT_int "tdpbssd"
#define EITHER(emulation, ...)             \
    do {                                   \
        if (amx)                           \
            __asm__ volatile(__VA_ARGS__); \
        else                               \
            emulation;                     \
    } while (0)
#else
#define EITHER(emulation, ...) \
    do {                       \
        (void)amx;             \
        emulation;             \
    } while (0)
#endif
#define tile_zero(t) EITHER(memset(emulated[t], 0, TILE_BYTES), "tilezero %%tmm" #t::)
#define tile_load(t, from, stride)                                                    \
    EITHER(emulated_copy(t, from, NULL, stride), "tileloadd (%0,%1), %%tmm" #t ::"r"(from), "r"((size_t)(stride)) \
           : "memory")
#define tile_store(t, to, stride)                                                      \
    EITHER(emulated_copy(t, NULL, to, stride), "tilestored %%tmm" #t ", (%0,%1)" ::"r"(to), "r"((size_t)(stride)) \
           : "memory")
#define tile_multiply(c, a, b) \
    EITHER(emulated_multiply(c, a, b), JOIN(PRODUCT_, SUM) " %%tmm" #b ", %%tmm" #a ", %%tmm" #c::)
#endif
