// Vector sum, GPU rung: a grid of limited size strides over the vectors, several elements a thread.
//
// The blocks are as many as the device can hold at once, whatever n is: they are started once, and their
// indices are computed once. The stride is the whole grid, so a warp's loads stay coalesced in each round.
// Limit: each load brings one element.

extern "C" __global__ void vector_add(const REAL *x, const REAL *y, REAL *z, size_t n)
{
    const size_t stride = (size_t)gridDim.x * BLOCK;
    for (size_t i = (size_t)blockIdx.x * BLOCK + threadIdx.x; i < n; i += stride)
        z[i] = x[i] + y[i];
}
