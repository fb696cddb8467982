/* Panels of A and B, and blocks of C, in bfloat16 or int8: before and after the products of amx_product.h. */
/* Of matmul, with the copies of A and B. */
#define PARAMETERS                                                                                                  \
    (int m, int n, int k, SUM alpha, const element *A, int lda, const element *B, int ldb, SUM beta, result *C,     \
     int ldc, int threads __attribute__((unused)), char *a_copy, char *b_copy)
#define ARGUMENTS (m, n, k, alpha, A, lda, B, ldb, beta, C, ldc, threads, a_copy, b_copy)

/* Copy a step of rows of A to a panel, padded with zeros. */
INLINE void pack_a(int rows, int k, const element *A, size_t lda, struct packed to, int panel, int step)
{
    char *tile = place(to, panel, step);
    const int p = step * DEPTH, terms = smaller(DEPTH, k - p);
    for (int i = 0; i < SIDE; ++i, tile += ROW_BYTES)
        if (i < rows && terms == DEPTH)
            memcpy(tile, A + i * lda + p, ROW_BYTES);
        else {
            memset(tile, 0, ROW_BYTES);
            if (i < rows)
                memcpy(tile, A + i * lda + p, terms * sizeof(element));
        }
}

/* Copy a step of columns of B to a panel, interleaved and padded with zeros. */
INLINE void pack_b(int columns, int k, const element *B, size_t ldb, struct packed to, int panel, int step)
{
    element *tile = (element *)place(to, panel, step);
    for (int half = 0; half < SIDE; half += EDGE)
        for (int q = 0; q < DEPTH; q += GROUP, tile += DEPTH) {
            const int p = step * DEPTH + q, width = smaller(EDGE, columns - half);
            if (p + GROUP <= k && width == EDGE)
                interleave(B + p * ldb + half, ldb, tile);
            else {
                element rows[GROUP][EDGE] = {0};
                for (int g = 0; g < GROUP && p + g < k && width > 0; ++g)
                    memcpy(rows[g], B + (p + g) * ldb + half, width * sizeof(element));
                interleave(rows[0], EDGE, tile);
            }
        }
}

INLINE void write_block(int rows, int columns, SUM alpha, const SUM *s, SUM beta, result *C, int ldc)
{
    for (int i = 0; i < rows; ++i)
        for (int j = 0; j < columns; j += EDGE)
            write_part(columns - j, alpha, s + sum_at(i, j), beta, C + (size_t)i * ldc + j);
}
