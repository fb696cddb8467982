// Vector copy, GPU rung: one thread copies one element.
//
// As in BabelStream, whose kernels copy and mul have 1024 threads per block. The macro APPLY is the identity for copy
// and the product with a number for scale; the product costs no time in a memory-bound kernel. Limit: a thread has one
// element in flight and then ends. Source: BabelStream.
//
// hpcmm:
//   operation: copy
//   shelf: lesson
//   change: one thread copies one element
//   source: BabelStream
//   block: 1024

extern "C" __global__ void __launch_bounds__(BLOCK) copy(const REAL *x, REAL *y, size_t n, REAL scale)
{
    const size_t i = (size_t)blockIdx.x * BLOCK + threadIdx.x;
    if (i < n)
        y[i] = APPLY(x[i]);
}
