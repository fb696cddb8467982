// Reduction, GPU rung: the last warp's steps are unrolled.
//
// With 32 or fewer active threads only one warp is left, and it needs no barrier of the whole block. Its
// six steps are unrolled, without a loop or a branch. The original relies on the lanes of a warp running in lockstep,
// which no GPU since Volta guarantees; here __syncwarp separates the reads of a step from its writes. A
// block has at least 64 threads. Limit: the earlier steps are still a loop with barriers.
// Source: 004 unit 5, kernel 5.
//
// hpcmm:
//   operation: sum
//   shelf: lesson
//   change: the last warp unrolled
//   counterpart: first_add
//   source: 004 kernel 5
//   per_thread: 2
//   block: 128
//   shared_bytes: BLOCK * ITEMSIZE

__device__ void step(volatile REAL *values, unsigned t, unsigned s)
{
    const REAL value = COMBINE(values[t], values[t + s]);
    __syncwarp();
    values[t] = value;
    __syncwarp();
}

extern "C" __global__ void reduction(const REAL *x, size_t n, REAL *partial, REAL identity)
{
    extern __shared__ REAL values[];  // blockDim.x elements
    const unsigned t = threadIdx.x;
    const size_t i = (size_t)blockIdx.x * (2 * blockDim.x) + t;
    const REAL first = i < n ? x[i] : identity, second = i + blockDim.x < n ? x[i + blockDim.x] : identity;
    values[t] = COMBINE(first, second);
    __syncthreads();
    for (unsigned s = blockDim.x / 2; s > 32; s /= 2) {
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
