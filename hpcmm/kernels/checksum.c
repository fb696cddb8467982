/* Checksum of a buffer: the sum of a hash of each 64-bit word and its position, modulo 2^64. A missing byte counts as 0.

   It stands for the content: results with the same checksum are taken to be equal. An exclusive or would not show two
   equal changes, or words in another order. The hash is the finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA
   2014). checksum.cu computes the same. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { LEAST_WORDS = 1 << 14 }; /* for several threads: fewer words take less time than to wake them */

static uint64_t hash(uint64_t word, uint64_t position)
{
    uint64_t x = word + (position + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

uint64_t checksum(const unsigned char *buffer, size_t bytes, int threads)
{
    const size_t words = bytes / sizeof(uint64_t);
    uint64_t sum = 0, last = 0;
#pragma omp parallel for num_threads(threads) if (words >= LEAST_WORDS) schedule(static) reduction(+ : sum)
    for (size_t i = 0; i < words; i++) {
        uint64_t word;
        memcpy(&word, buffer + i * sizeof word, sizeof word);
        sum += hash(word, i);
    }
    if (bytes % sizeof last) {
        memcpy(&last, buffer + words * sizeof last, bytes % sizeof last);
        sum += hash(last, words);
    }
    return sum;
}
