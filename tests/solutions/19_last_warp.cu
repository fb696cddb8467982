// 19. Reduction, step 5: the last warp.
//
// Task: once 32 threads are left, use barriers of the warp (__syncwarp) in place of those of the block, and no loop.
// Hints: the steps s = 32, 16, ..., 1 are by one warp, t < 32. Its lanes need not run in lockstep: each step reads, waits with
// __syncwarp(), writes, and waits again, so that no lane writes what another has not read. All 32 lanes may take part in
// every step: what lanes beyond s write is never used.
//
// hpcmm:
//   operation: sum
//   per_thread: 2
//   block: 128

__device__ void step(REAL *values, unsigned t, unsigned s)
{
    const REAL value = COMBINE(values[t], values[t + s]);
    __syncwarp();
    values[t] = value;
    __syncwarp();
}

extern "C" __global__ void reduction(const REAL *x, size_t n, REAL *partial, REAL identity)
{
    __shared__ REAL values[BLOCK];
    const unsigned t = threadIdx.x;
    const size_t i = (size_t)blockIdx.x * (2 * BLOCK) + t;
    const REAL first = i < n ? x[i] : identity, second = i + BLOCK < n ? x[i + BLOCK] : identity;
    values[t] = COMBINE(first, second);
    __syncthreads();
    for (unsigned s = BLOCK / 2; s > 32; s /= 2) {
        if (t < s)
            values[t] = COMBINE(values[t], values[t + s]);
        __syncthreads();
    }
    if (t < 32) {
        step(values, t, 32);
        step(values, t, 16);
        step(values, t, 8);
        step(values, t, 4);
        step(values, t, 2);
        step(values, t, 1);
    }
    if (t == 0)
        partial[blockIdx.x] = values[0];
}
