/* expected: wrong result */
#include "product.h"
#include <pthread.h>

static struct {
    int m, n, k, lda, ldb, ldc;
    REAL alpha, beta, *C;
    const REAL *A, *B;
} job;

static void *work(void *unused)
{
    for (volatile long i = 0; i < 1000L * 1000 * 1000; ++i) /* most of the time is not counted */
        ;
    product(job.m, job.n, job.k, job.alpha, job.A, job.lda, job.B, job.ldb, job.beta, job.C, job.ldc);
    return unused;
}

void matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc,
            int threads)
{
    pthread_t thread;
    job.m = m, job.n = n, job.k = k, job.lda = lda, job.ldb = ldb, job.ldc = ldc;
    job.alpha = alpha, job.beta = beta, job.A = A, job.B = B, job.C = C;
    pthread_create(&thread, 0, work, 0);
}
