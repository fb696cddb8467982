/* Checksum of a buffer: the sum of a hash of each 64-bit word and its position, modulo 2^64. A missing byte counts as 0.

   It stands for the content: results with the same checksum are taken to be equal. An exclusive or would not show two
   equal changes, or words in another order. The hash is the finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA
   2014). checksum.cu computes the same. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { PART = 1 << 14 }; /* words of a thread at a time; fewer take less time than to wake another thread */

static inline __attribute__((always_inline)) uint64_t hash(uint64_t word, uint64_t position)
{
    uint64_t x = word + (position + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

#define DEFINE_PATH(NAME, TARGET)                                                                                      \
    TARGET static uint64_t sum_##NAME(const unsigned char *buffer, size_t first, size_t end)                           \
    {                                                                                                                  \
        uint64_t sum = 0;                                                                                              \
        for (size_t i = first; i < end; i++) {                                                                         \
            uint64_t word;                                                                                             \
            memcpy(&word, buffer + i * sizeof word, sizeof word);                                                      \
            sum += hash(word, i);                                                                                      \
        }                                                                                                              \
        return sum;                                                                                                    \
    }

DEFINE_PATH(plain, )
#if defined(__x86_64__)
DEFINE_PATH(avx512, __attribute__((target("avx512f,avx512dq")))) /* multiplies 64-bit words in vectors */
#endif

uint64_t checksum(const unsigned char *buffer, size_t bytes, int threads)
{
    const size_t words = bytes / sizeof(uint64_t), parts = (words + PART - 1) / PART;
    uint64_t (*path)(const unsigned char *, size_t, size_t) = sum_plain;
    uint64_t sum = 0, last = 0;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq"))
        path = sum_avx512;
#endif
#pragma omp parallel for num_threads(threads) if (parts > 1) schedule(static) reduction(+ : sum)
    for (size_t part = 0; part < parts; part++)
        sum += path(buffer, part * PART, part + 1 < parts ? (part + 1) * PART : words);
    if (bytes % sizeof last) {
        memcpy(&last, buffer + words * sizeof last, bytes % sizeof last);
        sum += hash(last, words);
    }
    return sum;
}
