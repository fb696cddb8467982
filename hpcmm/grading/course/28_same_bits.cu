// 28. The same bits for any number of blocks.
//
// Here the number of blocks does not follow from n: a launch may have any. partial has an element for each tile of 2 * BLOCK
// elements of x, the last of which may be shorter, and at least one; a next launch adds up these. Blocks take tiles in turn.
// The skeleton is right, but each block adds up all its tiles before it stores a sum. So the number of blocks decides which
// elements are added first, and with it how the sum is rounded.
//
// Task: let partial[i] be the sum of tile i, in the same order whichever block computes it.
// Hints: a loop over the tiles of this block, with the tree inside. Barriers separate the tiles, too. If n is 0, partial[0] is
// the identity. The grader compares the bits of several numbers of blocks.
//
// hpcmm:
//   operation: sum
//   per_thread: 2
//   block: 128

extern "C" __global__ void reduction(const REAL *x, size_t n, REAL *partial, REAL identity)
{
    __shared__ REAL values[BLOCK];
    const unsigned t = threadIdx.x;
    const size_t tiles = n == 0 ? 1 : (n + 2 * BLOCK - 1) / (2 * BLOCK);
    values[t] = identity;
    for (size_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {  // TODO: a sum of each tile
        const size_t i = tile * (2 * BLOCK) + t;
        const REAL first = i < n ? x[i] : identity, second = i + BLOCK < n ? x[i + BLOCK] : identity;
        const REAL both = COMBINE(first, second);
        values[t] = COMBINE(values[t], both);
    }
    __syncthreads();
    for (unsigned s = BLOCK / 2; s > 0; s /= 2) {
        if (t < s)
            values[t] = COMBINE(values[t], values[t + s]);
        __syncthreads();
    }
    if (t == 0)
        for (size_t tile = blockIdx.x; tile < tiles; tile += gridDim.x)
            partial[tile] = tile < gridDim.x ? values[0] : identity;
}
