// 3. The sum of two vectors.
//
// Task: z = x + y, one element per thread.
// Hints: a thread finds its element from blockIdx.x, BLOCK and threadIdx.x. The grid is rounded up: the last block has
// threads without an element. Neighbouring threads take neighbouring elements, so that a warp reads 128 bytes in a row.
//
// hpcmm:
//   operation: vector_add
//   block: 256

extern "C" __global__ void vector_add(const REAL *x, const REAL *y, REAL *z, size_t n)
{
    const size_t i = threadIdx.x;  // TODO: the element of this thread in the whole grid
    if (i < n)
        z[i] = x[i];  // TODO
}
