// 18. Reduction, step 4: the first addition while loading.
//
// Task: a block has 2 BLOCK elements now (per_thread: 2). Each thread loads two and combines them before it writes to shared
// memory.
// Hints: half of the threads of step 3 never combine anything. With two elements per thread, half as many blocks do the same
// work. Block b begins at element 2 BLOCK b; thread t takes the elements t and t + BLOCK of it, so that both loads of a warp
// are coalesced. Each of the two may be beyond the end.
//
// hpcmm:
//   operation: sum
//   per_thread: 2
//   block: 128

extern "C" __global__ void reduction(const REAL *x, size_t n, REAL *partial, REAL identity)
{
    __shared__ REAL values[BLOCK];
    const unsigned t = threadIdx.x;
    const size_t i = (size_t)blockIdx.x * BLOCK + t;  // TODO
    values[t] = i < n ? x[i] : identity;
    __syncthreads();
    for (unsigned s = BLOCK / 2; s > 0; s /= 2) {
        if (t < s)
            values[t] = COMBINE(values[t], values[t + s]);
        __syncthreads();
    }
    if (t == 0)
        partial[blockIdx.x] = values[0];
}
