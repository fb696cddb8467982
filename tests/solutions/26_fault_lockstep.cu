// 26. Find the fault: the last warp of 004's fifth reduction.
//
// Task: 004 relies on the lanes of a warp running in lockstep, which no GPU since Volta guarantees. Mend it, without further
// barriers of the block.
// Hints: in sdata[t] += sdata[t + 16], lane 16 may write its value before lane 0 has read it, or after. Read, wait, write, wait:
// __syncwarp() orders the lanes of a warp.
//
// hpcmm:
//   operation: sum
//   per_thread: 2
//   block: 128

__device__ void step(REAL *sdata, unsigned t, unsigned s)
{
    const REAL value = COMBINE(sdata[t], sdata[t + s]);
    __syncwarp();
    sdata[t] = value;
    __syncwarp();
}

extern "C" __global__ void reduction(const REAL *x, size_t n, REAL *partial, REAL identity)
{
    __shared__ REAL sdata[BLOCK];
    const unsigned t = threadIdx.x;
    const size_t i = (size_t)blockIdx.x * (2 * BLOCK) + t;
    const REAL first = i < n ? x[i] : identity, second = i + BLOCK < n ? x[i + BLOCK] : identity;
    sdata[t] = COMBINE(first, second);
    __syncthreads();
    for (unsigned s = BLOCK / 2; s > 32; s /= 2) {
        if (t < s)
            sdata[t] = COMBINE(sdata[t], sdata[t + s]);
        __syncthreads();
    }
    if (t < 32) {
        step(sdata, t, 32);
        step(sdata, t, 16);
        step(sdata, t, 8);
        step(sdata, t, 4);
        step(sdata, t, 2);
        step(sdata, t, 1);
    }
    if (t == 0)
        partial[blockIdx.x] = sdata[0];
}
