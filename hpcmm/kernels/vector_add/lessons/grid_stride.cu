// Vector sum, GPU rung: a grid of limited size strides over the vectors, several elements per thread.
//
// For any n the grid has at most as many blocks as the device can hold at once: blocks are started once, and
// indices are computed once. The stride is the whole grid, so a warp's loads stay coalesced in each iteration.
// Limit: each load fetches one element.
//
// hpcmm:
//   operation: vector_add
//   shelf: lesson
//   change: a limited grid strides over the vectors
//   counterpart: one_per_thread
//   per_thread: 4
//   max_blocks: 1056

extern "C" __global__ void vector_add(const REAL *x, const REAL *y, REAL *z, size_t n)
{
    const size_t stride = (size_t)gridDim.x * BLOCK;
    for (size_t i = (size_t)blockIdx.x * BLOCK + threadIdx.x; i < n; i += stride)
        z[i] = x[i] + y[i];
}
