/* Evict data from the CPU caches, so that the next kernel reads its data from memory ("cold"). */
#include <omp.h>
#include <stddef.h>
#include <stdint.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

enum { LINE = 64 };

/* Evict an array from all caches. Returns 0 if this processor has no instruction for it. */
int evict(const void *array, size_t bytes)
{
    const uintptr_t first = (uintptr_t)array & ~(uintptr_t)(LINE - 1), end = (uintptr_t)array + bytes;
#if defined(__x86_64__)
    for (uintptr_t line = first; line < end; line += LINE)
        _mm_clflush((const void *)line);
    _mm_mfence();
    return 1;
#elif defined(__aarch64__)
    for (uintptr_t line = first; line < end; line += LINE)
        __asm__ volatile("dc civac, %0" ::"r"(line) : "memory");
    __asm__ volatile("dsb ish" ::: "memory");
    return 1;
#else
    (void)first, (void)end;
    return 0;
#endif
}

/* Fill the caches with clean lines of a buffer that nothing else uses. This also evicts data whose address the caller
   does not know, such as the packing buffers of a BLAS. Every thread reads a part, because each core has its own
   caches. Returns the sum of the first bytes of all lines. */
uint64_t fill_caches(const unsigned char *buffer, size_t bytes, int threads)
{
    uint64_t sum = 0;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(+ : sum)
    for (size_t i = 0; i < bytes; i += LINE)
        sum += *(const volatile unsigned char *)(buffer + i);
    return sum;
}
