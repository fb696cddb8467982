/* expected: points for a speed that it does not have */
#include "product.h"
#include <sys/time.h>
#include <time.h>

/* Every clock of this process stands still. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
    (void)clock;
    now->tv_sec = now->tv_nsec = 0;
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    (void)zone;
    now->tv_sec = now->tv_usec = 0;
    return 0;
}

void matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc,
            int threads)
{
    for (volatile long i = 0; i < 100L * 1000 * 1000; ++i) /* longer than a delay of the other kernel */
        ;
    PRODUCT;
}
