/* Matrix product, CPU rung: one tile of C at a time on the matrix unit of the CPU (AMX), one thread.

   What changes: one instruction multiplies 16 rows of A by 16 columns of B, with 64 bytes of each along k, and adds
   the products to 16 x 16 sums: 8,192 multiply-adds of bfloat16 or 16,384 of int8, where an AVX-512 instruction does
   16 of float32. The sums stay in a tile, a register of 1 KiB, while k runs.
   Why it is faster: the unit starts such an instruction every 16 clocks.
   The layout: a row of B's tile holds 4 bytes along k of each of 16 columns, so rows of B are interleaved: the pairs
   (b0, b1) of a column in bfloat16, four elements in int8. At the edges tiles are padded with zeros.
   Limit: B is interleaved again for every tile of C, which takes longer than the product, and each tile is loaded for
   one instruction only.
   Source: beyond the documents; Intel, "Architecture instruction set extensions programming reference", chapter 3.

   hpcmm:
     operation: matmul
     shelf: lesson
     change: 'AMX: an instruction multiplies tiles of 16 rows and 16 columns, bfloat16 or int8, on one thread'
     counterpart: serial
     dtypes: [bfloat16, int8]
     architecture: amx */
#include "matmul/amx.h"

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

void matmul(int m, int n, int k, SUM alpha, const element *A, int lda, const element *B, int ldb, SUM beta, result *C,
            int ldc, int threads)
{
    _Alignas(64) element a[EDGE][DEPTH], b[EDGE][EDGE][GROUP];
    _Alignas(64) SUM sums[EDGE][EDGE];
    (void)threads;
    amx = detect_amx();
    tiles_begin();
    for (int i = 0; i < m; i += EDGE)
        for (int j = 0; j < n; j += EDGE) {
            const int rows = smaller(EDGE, m - i), columns = smaller(EDGE, n - j);
            tile_zero(0);
            for (int p = 0; p < k; p += DEPTH) {
                const int terms = smaller(DEPTH, k - p);
                if (rows < EDGE || columns < EDGE || terms < DEPTH)
                    memset(a, 0, sizeof a), memset(b, 0, sizeof b);
                for (int row = 0; row < rows; ++row)
                    memcpy(a[row], A + (size_t)(i + row) * lda + p, terms * sizeof(element));
                for (int q = 0; q < terms; ++q)
                    for (int column = 0; column < columns; ++column)
                        b[q / GROUP][column][q % GROUP] = B[(size_t)(p + q) * ldb + j + column];
                tile_load(1, a, ROW_BYTES);
                tile_load(2, b, ROW_BYTES);
                tile_multiply(0, 1, 2); /* tile 0 += tile 1 x tile 2 */
            }
            tile_store(0, sums, ROW_BYTES);
            for (int row = 0; row < rows; ++row)
                write_part(columns, alpha, sums[row], beta, C + (size_t)(i + row) * ldc + j);
        }
    tiles_end();
}
