/* Memory latency, CPU rung: pointer chasing in memory on one thread.

   Each element is the byte offset of the next one, so a load waits for the previous load: neither out-of-order
   execution nor a prefetcher helps. A first pass warms up the caches. Limit: the latency of the level that
   holds the elements.

   hpcmm:
     operation: latency
     shelf: lesson
     change: one thread follows the elements */

void latency(const int *x, unsigned n, unsigned k, int *result, int threads)
{
    enum { WARMED = 1 << 18 }; /* elements: 1 MB */
    (void)threads;
    volatile int read;
    for (unsigned i = 0; n <= WARMED && i < n; ++i)
        read = x[i];
    (void)read;
    unsigned at = 0;
    for (unsigned step = 0; step < k; ++step)
        at = (unsigned)*(const int *)((const char *)x + at);
    *result = (int)at;
}
