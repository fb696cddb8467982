// Read the cycle counter of each SM beside the global timer. Two launches around other work give the SM clock during
// that work: cycles over nanoseconds of the same SM. The counters of different SMs differ.

extern "C" __global__ void read_clocks(unsigned *taken, unsigned long long (*read)[2])
{
    unsigned sm;
    unsigned long long cycles, nanoseconds;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    if (atomicExch(&taken[sm], 1u))  // an earlier block of this launch ran on this SM
        return;
    asm volatile("mov.u64 %0, %%clock64;\n\tmov.u64 %1, %%globaltimer;" : "=l"(cycles), "=l"(nanoseconds));
    read[sm][0] = cycles;
    read[sm][1] = nanoseconds;
}
