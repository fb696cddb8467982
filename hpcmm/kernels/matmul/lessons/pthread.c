/* Matrix product, CPU rung: rows of C distributed over POSIX threads.

   What changes from the serial rung: each thread does the triple loop for a block of rows. Rows of C
   are independent, so the threads share only inputs and synchronize only at the end.
   Why it is faster: as many cores work as there are threads.
   Limit: the loop in a thread is the serial one, and threads are created for every product, which a
   small product does not amortize.
   Source: 000.

   hpcmm:
     operation: matmul
     shelf: lesson
     change: rows distributed over POSIX threads, the serial loop in each
     counterpart: serial
     source: '000'
     slow: true
     traffic: {lines: 1, elements: 1}
     all_threads: true */
#include <pthread.h>
#include <stddef.h>

struct product {
    int n, k;
    REAL alpha;
    const REAL *A;
    int lda;
    const REAL *B;
    int ldb;
    REAL beta;
    REAL *C;
    int ldc;
};

struct rows {
    const struct product *product;
    int begin, end;
    pthread_t thread;
};

static void *multiply(void *argument)
{
    const struct rows *rows = argument;
    const struct product x = *rows->product;
    for (size_t i = rows->begin; i < (size_t)rows->end; ++i)
        for (size_t j = 0; j < (size_t)x.n; ++j) {
            REAL sum = 0;
            for (size_t p = 0; p < (size_t)x.k; ++p)
                sum += x.A[i * x.lda + p] * x.B[p * x.ldb + j];
            REAL *c = &x.C[i * x.ldc + j];
            *c = x.beta == 0 ? x.alpha * sum : x.alpha * sum + x.beta * *c; /* beta = 0: C is not read */
        }
    return NULL;
}

void matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb,
            REAL beta, REAL *C, int ldc, int threads)
{
    const struct product product = {n, k, alpha, A, lda, B, ldb, beta, C, ldc};
    struct rows rows[threads];
    int started = 1; /* the caller is the first thread */
    for (int t = 0; t < threads; ++t)
        rows[t] = (struct rows){&product, (long long)m * t / threads, (long long)m * (t + 1) / threads, 0};
    while (started < threads && !pthread_create(&rows[started].thread, NULL, multiply, &rows[started]))
        ++started;
    multiply(&rows[0]);
    for (int t = started; t < threads; ++t) /* if no more threads can be created, the caller computes their rows */
        multiply(&rows[t]);
    for (int t = 1; t < started; ++t)
        pthread_join(rows[t].thread, NULL);
}
