/* Flush an array from all CPU caches, so that the next kernel reads it from memory ("cold"). */
#include <stddef.h>
#include <stdint.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

enum { LINE = 64 };

/* Returns 0 if this processor has no instruction for it. */
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
