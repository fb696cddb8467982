// Keep the stream busy until all timed launches are queued, so that the time between the events includes no launch
// latency of the host.

extern "C" __global__ void spin(unsigned long long nanoseconds)
{
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - start < nanoseconds);
}
