/* Memory bandwidth, CPU rung: all threads read the elements repeatedly.

   Each thread reads its part of the elements, which stays in its own cache if it fits. The sum is modulo 2^32,
   and the compiler uses SIMD additions. The empty assembly statement forces a read of memory in each pass. Limit: the
   bandwidth of the level that holds the elements.

   hpcmm:
     operation: bandwidth
     shelf: lesson
     change: each thread reads a part, in every pass */
#include <stddef.h>

void bandwidth(const int *x, unsigned n, unsigned k, int *result, int threads)
{
    unsigned total = 0;
#pragma omp parallel for num_threads(threads) schedule(static, 1) reduction(+ : total)
    for (int t = 0; t < threads; ++t) {
        const size_t first = (size_t)n * t / threads, end = (size_t)n * (t + 1) / threads;
        unsigned sum = 0;
        for (unsigned pass = 0; pass < k; ++pass) {
            for (size_t i = first; i < end; ++i)
                sum += (unsigned)x[i];
            __asm__ volatile("" ::: "memory");
        }
        total += sum;
    }
    *result = (int)total;
}
