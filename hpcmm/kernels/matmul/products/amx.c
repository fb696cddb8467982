/* Matrix product, CPU rung: AMX on all threads, in cache blocks along a space-filling curve, with prefetches.

   What changes: threads pack A and B together, once. Each then has the same number of blocks of C, of at most
   MC x NC elements, which stay in L2 while k runs in slices of KC steps. While a slice is multiplied, the next one is
   prefetched into L2. Blocks follow Hilbert's curve: the next one is a neighbour, which shares its panels of A or of B.
   Why it is faster: a panel of B, 16 KiB for a slice, stays in L1 for all rows of a block, and memory is read ahead
   of its use. A shorter slice would load and store the sums more often, a longer one would not fit into L1.
   Limit: loads and stores of the sums between slices, and the copies, which weigh more in small products.
   Source: beyond the documents; Heinecke et al., LIBXSMM, SC 2016; Bader and Zenger, "Cache oblivious matrix
   multiplication using an element ordering based on a Peano curve", 2006.

   hpcmm:
     operation: matmul
     shelf: product
     change: 'AMX on all threads: cache blocks along a space-filling curve, with the next slice of k prefetched'
     counterpart: amx_blocked
     dtypes: [bfloat16, int8]
     architecture: amx */
#include "matmul/amx_product.h"
#include "matmul/amx_pack.h"

INLINE void part_of_thread PARAMETERS
{
    const int steps = steps_of(k);
    const struct packed a = {a_copy, divided_up(m, SIDE), steps}, b = {b_copy, divided_up(n, SIDE), steps};
    tiles_begin();
#pragma omp for collapse(2) nowait
    for (int i = 0; i < m; i += SIDE)
        for (int step = 0; step < steps; ++step)
            pack_a(smaller(SIDE, m - i), k, A + (size_t)i * lda, lda, a, i / SIDE, step);
#pragma omp for collapse(2)
    for (int step = 0; step < steps; ++step) /* the outer loop: rows of B are read from left to right */
        for (int j = 0; j < n; j += SIDE)
            pack_b(smaller(SIDE, n - j), k, B + j, ldb, b, j / SIDE, step);
    int i, j, height, width;
    for (struct walk walk = walk_of(m, n); next_block(&walk, &i, &j, &height, &width);) {
        multiply_block(a, i / SIDE, divided_up(height, SIDE), b, j / SIDE, divided_up(width, SIDE), 0, steps, true);
        write_block(height, width, alpha, sums[0], beta, C + (size_t)i * ldc + j, ldc);
    }
    tiles_end();
}

DEFINE_MATMUL(threads)
