// 17. Reduction, step 3: no bank conflicts.
//
// Task: let the threads of a step read and write neighbouring values.
// Hints: shared memory has 32 banks, and the value at i is in bank i % 32. Threads that combine values 2 s apart use every
// (2 s)-th bank only, and wait for each other. Let the first step combine the two halves of the block (s = BLOCK / 2), the
// next one those of the first half, and so on: thread t < s adds the value at t + s to its own.
//
// hpcmm:
//   operation: sum
//   block: 128

extern "C" __global__ void reduction(const REAL *x, size_t n, REAL *partial, REAL identity)
{
    __shared__ REAL values[BLOCK];
    const unsigned t = threadIdx.x;
    const size_t i = (size_t)blockIdx.x * BLOCK + t;
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
