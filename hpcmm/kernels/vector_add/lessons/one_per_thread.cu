// Vector sum, GPU rung: one thread adds one element.
//
// The grid is rounded up to whole blocks, and a bounds check excludes threads past the end. Neighbouring
// threads take neighbouring elements, so each warp's loads are coalesced. Limit: a thread has two loads of
// one element in flight and then ends; the cost of starting blocks grows with n.
// Source: 004 unit 1, vecAddKernel.
//
// hpcmm:
//   operation: vector_add
//   shelf: lesson
//   change: one thread adds one element
//   source: 004 unit 1

extern "C" __global__ void vector_add(const REAL *x, const REAL *y, REAL *z, size_t n)
{
    const size_t i = (size_t)blockIdx.x * BLOCK + threadIdx.x;
    if (i < n)
        z[i] = x[i] + y[i];
}
