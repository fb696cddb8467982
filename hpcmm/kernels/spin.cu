// Keep the stream busy, so that the launches to be timed are queued before the first of them starts
// and the time between the events holds no launch latency of the host.

extern "C" __global__ void spin(unsigned long long nanoseconds)
{
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - start < nanoseconds);
}
