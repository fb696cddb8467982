// Memory latency, GPU rung: pointer chasing in shared memory.
//
// The block copies the elements to shared memory; then one warp follows them. Elements are byte offsets, so a step is a
// single load: its address is the element that the previous load returned. All lanes read the same address, which is a
// broadcast. Limit: a block has at most 48 KB of static shared memory.
//
// hpcmm:
//   operation: latency
//   shelf: lesson
//   change: shared memory
//   source: '004'
//   block: 256
//   capacity: 12288

extern "C" __global__ void __launch_bounds__(BLOCK) latency(const int *x, unsigned n, unsigned k, int *result)
{
    __shared__ int elements[CAPACITY];
    for (unsigned i = threadIdx.x; i < n; i += BLOCK)
        elements[i] = x[i];
    __syncthreads();
    if (threadIdx.x >= 32)
        return;
    unsigned at = 0;
#pragma unroll 16
    for (unsigned step = 0; step < k; ++step)
        at = *(const int *)((const char *)elements + at);
    if (threadIdx.x == 0)
        *result = at;
}
