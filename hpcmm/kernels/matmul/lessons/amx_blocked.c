/* Matrix product, CPU rung: AMX on packed panels, 2 x 2 tiles of C at a time, one thread.

   What changes: a panel of 32 rows of A and all of B are copied once, in the order in which tiles are loaded. Four
   tiles of sums share two tiles of A and two of B.
   Why it is faster: B is interleaved once instead of once for each tile of rows, and a loaded tile serves two
   instructions. A tile takes 8 clocks to load and an instruction 16, so the loads no longer limit.
   Limit: for a large k, the panels do not stay in the L1 and L2 caches, and one core computes.
   Source: beyond the documents; Georganas et al., "Tensor processing primitives", SC 2021.

   hpcmm:
     operation: matmul
     shelf: lesson
     change: A and B packed once in the order of tiles, 2 x 2 tiles of C share their operands
     counterpart: amx_tile
     dtypes: [bfloat16, int8]
     architecture: amx */
#include "matmul/amx_product.h"
#include "matmul/amx_pack.h"

INLINE void part_of_thread PARAMETERS
{
    const int steps = steps_of(k);
    const struct packed a = {a_copy, 1, steps}, b = {b_copy, divided_up(n, SIDE), steps};
    tiles_begin();
    for (int step = 0; step < steps; ++step) /* the outer loop: rows of B are read from left to right */
        for (int j = 0; j < n; j += SIDE)
            pack_b(smaller(SIDE, n - j), k, B + j, ldb, b, j / SIDE, step);
    for (int i = 0; i < m; i += SIDE) {
        for (int step = 0; step < steps; ++step)
            pack_a(smaller(SIDE, m - i), k, A + (size_t)i * lda, lda, a, 0, step);
        for (int j = 0; j < n; j += SIDE) {
            multiply_block(a, 0, 1, b, j / SIDE, 1, 0, steps, true);
            write_block(smaller(SIDE, m - i), smaller(SIDE, n - j), alpha, sums[0], beta, C + (size_t)i * ldc + j, ldc);
        }
    }
    tiles_end();
}

DEFINE_MATMUL(1)
