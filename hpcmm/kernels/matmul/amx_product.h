/* Products of packed matrices by AMX, in cache blocks: shared by amx_blocked, amx, int8_slices and int8_residues.

   A panel has 32 rows of A or 32 columns of B: two tiles for each step of DEPTH terms, one step after another. */
#ifndef HPCMM_AMX_PRODUCT_H
#define HPCMM_AMX_PRODUCT_H
#include "matmul/amx.h"
#include <omp.h>

#ifndef KC
#define KC 8
#define MC 256
#define NC 512
#endif
#ifndef ORDERS
#define ORDERS 1 /* sums of a block of C: order o adds the products of layers l of A and o - l of B */
#endif

/* Define matmul by part_of_thread, which each of `number` threads calls, in two versions: for AVX-512, which every
   processor with AMX has, and for all processors. Functions with vectors are inlined, and so compiled for the version.
   With GCC 12, clones of these functions by the attribute target_clones were up to five times as slow. */
#if defined(__x86_64__)
#define WIDE __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma")))
#define HAS(feature) __builtin_cpu_supports(feature)
#define IS_WIDE (HAS("avx512f") && HAS("avx512bw") && HAS("avx512dq") && HAS("avx512vl"))
#else
#define WIDE
#define IS_WIDE 0
#endif
#define PRAGMA(text) _Pragma(#text)
#define DEFINE_MATMUL(number)                    \
    WIDE static void wide PARAMETERS             \
    {                                            \
        PRAGMA(omp parallel num_threads(number)) \
        part_of_thread ARGUMENTS;                \
    }                                            \
    static void portable PARAMETERS              \
    {                                            \
        PRAGMA(omp parallel num_threads(number)) \
        part_of_thread ARGUMENTS;                \
    }                                            \
    void matmul PARAMETERS                       \
    {                                            \
        amx = detect_amx();                      \
        if (IS_WIDE)                             \
            wide ARGUMENTS;                      \
        else                                     \
            portable ARGUMENTS;                  \
    }

enum {
    SIDE = 2 * EDGE,             /* rows or columns of a panel */
    STEP_BYTES = 2 * TILE_BYTES, /* of a panel and step */
    LINE = 64,
};

static inline int smaller(int a, int b)
{
    return a < b ? a : b;
}

static inline size_t divided_up(size_t a, size_t b)
{
    return (a + b - 1) / b;
}

static _Thread_local _Alignas(64) SUM sums[ORDERS][MC * NC]; /* of a block of C: [MC / SIDE][NC / SIDE][2][2] tiles */

/* Index of a row of a tile in a block of sums. */
static inline size_t sum_at(int i, int j)
{
    const int panels = i / SIDE * (NC / SIDE) + j / SIDE, tile = i / EDGE % 2 * 2 + j / EDGE % 2;
    return ((size_t)panels * 4 + tile) * EDGE * EDGE + i % EDGE * EDGE;
}

/* Steps of DEPTH terms along k; at least one, of zeros. */
static inline int steps_of(int k)
{
    return k > 0 ? divided_up(k, DEPTH) : 1;
}

/* A matrix of panels, packed by slices of KC steps: [layer][slice][panel][step]. A slice of neighbouring panels has no
   gaps, which would map to the same sets of the caches. */
struct packed {
    char *bytes;
    int panels, steps;
};

static inline size_t layer_bytes(struct packed x)
{
    return (size_t)x.panels * x.steps * STEP_BYTES;
}

static inline char *place(struct packed x, int panel, int step)
{
    const int first = step / KC * KC, count = smaller(KC, x.steps - first);
    return x.bytes + ((size_t)first * x.panels + (size_t)panel * count + step - first) * STEP_BYTES;
}

/* Add products of panels to 2 x 2 tiles of sums, or set them: of `steps` steps of each pair of layers, at a and b, then
   at a + to_a and b + to_b. `lines` cache lines that a later call needs are prefetched. */
static void multiply_panels(bool given, int steps, int pairs, const char *a, ptrdiff_t to_a, const char *b,
                            ptrdiff_t to_b, bool fresh, SUM *c, const char *ahead, int lines)
{
    enum { TILE = EDGE * EDGE };
    const bool amx = given; /* a constant of the loop */
    if (fresh) {
        tile_zero(0);
        tile_zero(1);
        tile_zero(2);
        tile_zero(3);
    } else {
        tile_load(0, c, ROW_BYTES);
        tile_load(1, c + TILE, ROW_BYTES);
        tile_load(2, c + 2 * TILE, ROW_BYTES);
        tile_load(3, c + 3 * TILE, ROW_BYTES);
    }
    const int share = divided_up(lines, steps * pairs);
    for (int pair = 0; pair < pairs; ++pair, a += to_a, b += to_b)
        for (int s = 0; s < steps; ++s) {
            const char *left = a + s * STEP_BYTES, *right = b + s * STEP_BYTES;
            tile_load(6, right, ROW_BYTES);
            tile_load(4, left, ROW_BYTES);
            tile_multiply(0, 4, 6);
            tile_load(7, right + TILE_BYTES, ROW_BYTES);
            tile_multiply(1, 4, 7);
            tile_load(5, left + TILE_BYTES, ROW_BYTES);
            tile_multiply(2, 5, 6);
            tile_multiply(3, 5, 7);
            for (int i = 0; i < share; ++i, ahead += LINE)
                __builtin_prefetch(ahead, 0, 2);
        }
    tile_store(0, c, ROW_BYTES);
    tile_store(1, c + TILE, ROW_BYTES);
    tile_store(2, c + 2 * TILE, ROW_BYTES);
    tile_store(3, c + 3 * TILE, ROW_BYTES);
}

/* sums = A B, or sums += A B, for `rows` panels of A from panel i0 on, `columns` panels of B from j0 on, and the steps
   from `begin`, a multiple of KC, to `end`. All orders of a pair of panels follow each other, the highest one, which
   loads all layers, first. */
static void multiply_block(struct packed a, int i0, int rows, struct packed b, int j0, int columns, int begin, int end,
                           bool fresh)
{
    const bool given = amx;
    const ptrdiff_t of_layer_a = layer_bytes(a), of_layer_b = layer_bytes(b);
    for (int first = begin; first < end; first += KC) {
        const int count = smaller(KC, end - first), next = smaller(KC, end - first - count);
        const int of_a = rows * next, of_layer = of_a + columns * next; /* steps of the next slice */
        const int share = divided_up((size_t)ORDERS * of_layer, rows * columns);
        for (int j = 0, ahead = 0; j < columns; ++j)
            for (int i = 0; i < rows; ++i, ahead += share) {
                const char *later = a.bytes, *left = place(a, i0 + i, first), *right = place(b, j0 + j, first);
                const int layer = next ? ahead / of_layer : ORDERS, at = next ? ahead % of_layer : 0;
                if (layer < ORDERS)
                    later = at < of_a
                                ? place(a, i0, first + count) + layer * of_layer_a + (size_t)at * STEP_BYTES
                                : place(b, j0, first + count) + layer * of_layer_b + (size_t)(at - of_a) * STEP_BYTES;
                for (int order = ORDERS - 1; order >= 0; --order)
                    multiply_panels(given, count, order + 1, left, of_layer_a, right + order * of_layer_b, -of_layer_b,
                                    fresh && first == begin, sums[order] + ((size_t)i * (NC / SIDE) + j) * SIDE * SIDE,
                                    later, order == ORDERS - 1 && layer < ORDERS ? share * (STEP_BYTES / LINE) : 0);
            }
    }
}

/* A thread's blocks of C: a part of Hilbert's curve through a square of blocks that covers C. The next block is a
   neighbour, whose panels of A or B are still in the caches. */
struct walk {
    int m, n, height, side, position, passed, first, last;
};

/* Return this thread's part, with the same number of blocks for all threads. Blocks are lower than MC rows if there are
   fewer than two for each thread. */
static inline struct walk walk_of(int m, int n)
{
    const int threads = omp_get_num_threads(), number = omp_get_thread_num(), across = divided_up(n, NC);
    struct walk w = {m, n, MC, 1, 0, 0, 0, 0};
    while (w.height > SIDE && divided_up(m, w.height) * across < (size_t)2 * threads)
        w.height /= 2;
    const size_t blocks = divided_up(m, w.height) * across;
    while (w.side * w.height < m || w.side < across)
        w.side *= 2;
    w.first = blocks * number / threads, w.last = blocks * (number + 1) / threads;
    return w;
}

/* Find the next block: its first row and column, height and width. Return whether there is one. */
static inline bool next_block(struct walk *w, int *row, int *column, int *height, int *width)
{
    while (w->passed < w->last) {
        int x = 0, y = 0, position = w->position++;
        for (int s = 1; s < w->side; s *= 2, position /= 4) {
            const int right = position / 2 & 1, up = (position ^ right) & 1;
            if (!up) {
                const int turned = right ? s - 1 - y : y;
                y = right ? s - 1 - x : x, x = turned;
            }
            x += s * right, y += s * up;
        }
        *row = y * w->height, *column = x * NC;
        if (*row >= w->m || *column >= w->n || w->passed++ < w->first)
            continue;
        *height = smaller(w->height, w->m - *row), *width = smaller(NC, w->n - *column);
        return true;
    }
    return false;
}
#endif
