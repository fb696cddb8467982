/* Reduction, CPU rung: a tree of combinations that depends on n alone, for any number of threads and, by all_reduce,
   of ranks.

   The same tree as in invariant.cu, and the same bits. The vector is divided into tiles of 4 KiB, each of
   8 rows. The rows of a tile are combined as a binary tree by index: 0 and 1, 2 and 3, then pairs of these,
   and so on. So are then its columns, and the values of all tiles. Missing elements count as the identity.
   Rows are long, so the compiler uses SIMD instructions and keeps the order. Threads share out aligned groups
   of 2^j tiles, whose values do not depend on who computes them. Limit: memory bandwidth.

   hpcmm:
     operation: sum
     shelf: product
     change: a tree of combinations that depends on n alone, for any number of threads and ranks
     counterpart: openmp
     leaf_bytes: 4096
     traffic: {lines: 0, elements: 1}
     all_threads: true */
#include <stddef.h>

enum { LEAF = 4096 / sizeof(REAL), ROWS = 8, COLUMNS = LEAF / ROWS, MOST_GROUPS = 4096 };

/* Combine values as a binary tree by index, in place; the missing ones change nothing. */
static REAL tree(REAL *values, size_t count)
{
    for (size_t s = 1; s < count; s *= 2)
        for (size_t i = 0; i + s < count; i += 2 * s)
            values[i] = COMBINE(values[i], values[i + s]);
    return values[0];
}

/* Return the value of a tile. Combined with the identity, it is not -0. */
static REAL of_tile(const REAL *x, REAL identity)
{
    REAL values[COLUMNS];
    for (int c = 0; c < COLUMNS; ++c) {
        REAL four[ROWS / 2], two[2];
        for (int r = 0; r < ROWS / 2; ++r)
            four[r] = COMBINE(x[2 * r * COLUMNS + c], x[(2 * r + 1) * COLUMNS + c]);
        for (int r = 0; r < 2; ++r)
            two[r] = COMBINE(four[2 * r], four[2 * r + 1]);
        values[c] = COMBINE(two[0], two[1]);
    }
    for (int left = COLUMNS / 2; left; left /= 2)
        for (int c = 0; c < left; ++c)
            values[c] = COMBINE(values[2 * c], values[2 * c + 1]);
    return COMBINE(identity, values[0]);
}

/* Return the value of the aligned group of 2^j tiles from `first` on. */
static REAL of_group(const REAL *x, size_t n, size_t first, size_t tiles, REAL identity)
{
    REAL waiting[64]; /* values of groups of 1, 2, 4, ... tiles; the bits of the index tell which ones there are */
    REAL value = identity;
    for (size_t i = 0; i < tiles; ++i) {
        const size_t start = (first + i) * LEAF;
        value = identity;
        if (start + LEAF <= n)
            value = of_tile(x + start, identity);
        else if (start < n) {
            REAL padded[LEAF];
            for (size_t e = 0; e < LEAF; ++e)
                padded[e] = start + e < n ? x[start + e] : identity;
            value = of_tile(padded, identity);
        }
        int level = 0;
        for (; i >> level & 1; ++level)
            value = COMBINE(waiting[level], value);
        waiting[level] = value;
    }
    return value;
}

void reduction(const REAL *x, size_t n, REAL *result, REAL identity, int threads)
{
    const size_t tiles = (n + LEAF - 1) / LEAF;
    size_t group = 1;
    while ((tiles + group - 1) / group > MOST_GROUPS)
        group *= 2;
    const size_t groups = (tiles + group - 1) / group;
    REAL values[MOST_GROUPS] = {identity};
#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t i = 0; i < groups; ++i)
        values[i] = of_group(x, n, i * group, group, identity);
    *result = tree(values, groups);
}
