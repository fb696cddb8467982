/* Evict data from the CPU caches, so that the next kernel reads its data from memory ("cold"); measure the clock. */
#include <omp.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

enum {
    LINE = 64,
    LEAST_LINES = 4096, /* for several threads: they take as long to wake as one takes to evict these */
};

#if defined(__x86_64__)
static int has_clflushopt(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_CLFLUSHOPT);
}

/* Evictions of different lines overlap, unlike those by clflush. */
__attribute__((target("clflushopt"))) static void evict_overlapping(uintptr_t first, uintptr_t end)
{
    for (uintptr_t line = first; line < end; line += LINE)
        _mm_clflushopt((void *)line);
    _mm_sfence();
}

static void evict_in_order(uintptr_t first, uintptr_t end)
{
    for (uintptr_t line = first; line < end; line += LINE)
        _mm_clflush((const void *)line);
    _mm_mfence();
}
#endif

/* Evict an array from all caches; on x86 every thread evicts a part of a long one. Returns 0 if this processor has no
   instruction for it. */
int evict(const void *array, size_t bytes, int threads)
{
    const uintptr_t first = (uintptr_t)array & ~(uintptr_t)(LINE - 1), end = (uintptr_t)array + bytes;
#if defined(__x86_64__)
    void (*const part)(uintptr_t, uintptr_t) = has_clflushopt() ? evict_overlapping : evict_in_order;
    const uintptr_t lines = (end - first + LINE - 1) / LINE;
    if (lines < LEAST_LINES)
        threads = 1;
    const uintptr_t each = (lines + threads - 1) / threads * LINE;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int i = 0; i < threads; i++) {
        const uintptr_t from = first + i * each, to = from + each;
        part(from, to < end ? to : end);
    }
    return 1;
#elif defined(__aarch64__)
    (void)threads;
    for (uintptr_t line = first; line < end; line += LINE)
        __asm__ volatile("dc civac, %0" ::"r"(line) : "memory");
    __asm__ volatile("dsb ish" ::: "memory");
    return 1;
#else
    (void)first, (void)end, (void)threads;
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

/* Return the clock of a core in Hz, from additions that each wait for the previous one, one clock; 0 if unknown. The
   shortest of several times counts: others include interrupts, or a core that was still asleep. */
double core_clock(void)
{
    enum { TIMES = 20, ADDITIONS = 100000 };
    double most = 0;
#if defined(__x86_64__) || defined(__aarch64__)
    for (int time = 0; time < TIMES; ++time) {
        struct timespec first, last;
        uint64_t x = 1;
        clock_gettime(CLOCK_MONOTONIC, &first);
        for (int i = 0; i < ADDITIONS / 10; ++i)
#if defined(__x86_64__)
            __asm__ volatile(".rept 10\n add %0, %0\n .endr" : "+r"(x));
#else
            __asm__ volatile(".rept 10\n add %0, %0, %0\n .endr" : "+r"(x));
#endif
        clock_gettime(CLOCK_MONOTONIC, &last);
        const double seconds = (last.tv_sec - first.tv_sec) + 1e-9 * (last.tv_nsec - first.tv_nsec);
        most = ADDITIONS / seconds > most ? ADDITIONS / seconds : most;
    }
#endif
    return most;
}
