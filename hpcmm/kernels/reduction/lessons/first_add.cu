// Reduction, GPU rung: the first combination is done while loading.
//
// With one element per thread, half of the threads never combine anything. Here each thread loads two
// elements and combines them before it writes to shared memory: half the blocks do the same work, and
// each thread has two loads in flight. Limit: loop and address instructions, and a barrier in each step.
// Source: 004 unit 5, kernel 4.
//
// hpcmm:
//   operation: sum
//   shelf: lesson
//   change: first combination while loading
//   counterpart: sequential
//   source: 004 kernel 4
//   per_thread: 2
//   block: 128
//   shared_bytes: BLOCK * ITEMSIZE

extern "C" __global__ void reduction(const REAL *x, size_t n, REAL *partial, REAL identity)
{
    extern __shared__ REAL values[];  // blockDim.x elements
    const unsigned t = threadIdx.x;
    const size_t i = (size_t)blockIdx.x * (2 * blockDim.x) + t;
    const REAL first = i < n ? x[i] : identity, second = i + blockDim.x < n ? x[i + blockDim.x] : identity;
    values[t] = COMBINE(first, second);
    __syncthreads();
    for (unsigned s = blockDim.x / 2; s > 0; s /= 2) {
        if (t < s)
            values[t] = COMBINE(values[t], values[t + s]);
        __syncthreads();
    }
    if (t == 0)
        partial[blockIdx.x] = values[0];
}
