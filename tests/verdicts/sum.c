// A sum. MISTAKE selects what is wrong with it; 0, 2 and 3: nothing.
// hpcmm:
//   operation: sum
//   dtypes: [float32]
//   constants: {MISTAKE: 0}

#include <pthread.h>
#include <stddef.h>

#if MISTAKE == 1  // the sum is shared
void reduction(const float *x, size_t n, float *result, float identity, int threads)
{
    float sum = identity;
#pragma omp parallel for num_threads(threads)
    for (size_t i = 0; i < n; ++i)
        sum += x[i];
    *result = sum;
}
#elif MISTAKE >= 3  // POSIX threads; 4: they share one sum
struct part {
    const float *x;
    size_t n;
    float *sum;
};
static void *work(void *given)
{
    struct part *const part = given;
    for (size_t i = 0; i < part->n; ++i)
        *part->sum += part->x[i];
    return NULL;
}
void reduction(const float *x, size_t n, float *result, float identity, int threads)
{
    enum { PARTS = 3 };
    pthread_t thread[PARTS];
    float sums[PARTS] = {0};
    for (int i = 0; i < PARTS; ++i) {
        static struct part parts[PARTS];
        parts[i] = (struct part){x + n * i / PARTS, n * (i + 1) / PARTS - n * i / PARTS, &sums[MISTAKE == 4 ? 0 : i]};
        pthread_create(&thread[i], NULL, work, &parts[i]);
    }
    *result = identity;
    for (int i = 0; i < PARTS; ++i)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < PARTS; ++i)
        *result += sums[i];
}
#else
void reduction(const float *x, size_t n, float *result, float identity, int threads)
{
    float sum = identity;
#pragma omp parallel num_threads(threads)
    {
        float own = identity;
#pragma omp for nowait
        for (size_t i = 0; i < n; ++i)
            own += x[i];
#if MISTAKE == 2
#pragma omp atomic
#else
#pragma omp critical
#endif
        sum += own;
    }
    *result = sum;
}
#endif
