// Matrix product, GPU rung: products on tensor cores, by warp-wide instructions.
//
// Compared with swizzled, a warp computes its tile of C by products of 16 x 8 x 8 elements: each lane holds its
// elements of A, B and C in registers. A is not transposed in shared memory, so aligned tiles are copied 16 bytes at a
// time. Blocks are smaller, which leaves less of the GPU idle in the last wave. Both types have the same layout of
// fragments:
//
//   - float64: IEEE arithmetic, at twice the rate of the FP64 units.
//   - float32: tensor cores read TF32, which keeps 11 of the 24 bits. Each element is split into two such parts, x =
//     big + small, and a b = small big + big small + big big: three products at a multiple of the FP32 units' rate
//     (Ootomo and Yokota, Int. J. High Perform. Comput. Appl. 36, 2022). The product small small is dropped, and so is
//     the last bit of a small part with 12 bits: up to 2^-21 |a b| of either sign. That is no more than the rounding
//     error of a long sum, but too much for a short one, which therefore does not use tensor cores. Infinite elements,
//     and elements that round to infinity, give NaN. Below 5e-35 the small part is lost, because it is subnormal.
//
// Needs compute capability 8.0. Limit: all warps of a block wait at a barrier for each tile, and SMs are idle if C has
// few tiles, or few in the last wave.
//
// hpcmm:
//   operation: matmul
//   shelf: product
//   change: 'tensor cores: float64 as is, float32 split into two TF32 parts, three products added'
//   counterpart: swizzled
//   arithmetic: {float32: three TF32 products}
//   rows: 64
//   columns: 128
//   depth: 16
//   block: 128
//   constants: {STAGES: 4, GROUP_ROWS: 8, WARP_ROWS: 32, WARP_COLUMNS: 64}
//   shared_bytes: STAGES * (ROWS * (DEPTH + 4) * ITEMSIZE + DEPTH * (COLUMNS * ITEMSIZE + 32))
//   architecture: sm_80

#include "matmul/prefetch.cuh"
#include "matmul/rasterize.cuh"
#include "matmul/warp_products.cuh"
#include "ptx.cuh"

// Sums of up to SHORT_K terms do not use tensor cores. In longer sums of random numbers, no error above half the
// rounding bound was observed.
constexpr int SHORT_K = sizeof(REAL) == 4 ? 16 : 0;

// Whether the copies of the next tile start before the products. In float64 the products keep the tensor cores busy for
// longer, and the copies are issued between them, after the barrier. In float32 early copies are faster.
constexpr bool LOAD_FIRST = sizeof(REAL) == 4;

static_assert(SHORT_K <= DEPTH, "a short sum has all its terms in the first tile");

// Load: copy tiles from global to shared memory. A thread copies WIDTH columns of A, in rows a_row, a_row + A_STEP,
// ..., and WIDTH columns of B, in rows b_row, b_row + B_STEP, ...
struct Loader {
    int m, n, k, lda, ldb, a_row, a_column, b_row, b_column, first_row, first_column;
    const REAL *A, *B;
    bool inside, fast;  // whether the block's tile is inside C; whether its loads take the fast path as far as k allows
    REAL *ring_a, *ring_b;
    int start = 0, stage = 0;  // first term of the next tile; offset of the stage that it goes to
    const REAL *b, *a;         // this thread's first elements of it

    __device__ Loader(int m, int n, int k, const REAL *A, int lda, const REAL *B, int ldb, int first_row,
                      int first_column, REAL *ring_a, REAL *ring_b)
        : m(m), n(n), k(k), lda(lda), ldb(ldb), first_row(first_row), first_column(first_column), A(A), B(B)
    {
        const int t = threadIdx.x;
        a_row = t * WIDTH / DEPTH, a_column = t * WIDTH % DEPTH;
        a = A + (size_t)(first_row + a_row) * lda + a_column;
        b_row = t * WIDTH / COLUMNS, b_column = t * WIDTH % COLUMNS;
        b = B + (size_t)b_row * ldb + first_column + b_column;
        inside = first_row + ROWS <= m && first_column + COLUMNS <= n;
        fast = inside && lda % WIDTH == 0 && ldb % WIDTH == 0 && ((size_t)A | (size_t)B) % 16 == 0;
        this->ring_a = ring_a + a_row * A_PITCH + a_column;
        this->ring_b = ring_b + b_row * B_PITCH + b_column;
    }

    // Start the copies of the next tile as one commit group. A `whole` tile, inside A and B, takes the fast path of 16
    // bytes per copy, because bounds checks would slow down the products. In other tiles elements past the ends are
    // zero.
    __device__ void load(bool whole)
    {
#pragma unroll
        for (int i = 0; i < ROWS; i += A_STEP) {
            REAL *const target = ring_a + stage + i * A_PITCH;
            if (whole)
                cp_async<16>(target, a + (long long)i * lda);
            else
#pragma unroll
                for (int e = 0; e < WIDTH; ++e) {
                    const bool valid = first_row + a_row + i < m && start + a_column + e < k;
                    cp_async<sizeof(REAL)>(target + e, valid ? a + (long long)i * lda + e : A,
                                           valid ? sizeof(REAL) : 0);
                }
        }
#pragma unroll
        for (int p = 0; p < DEPTH; p += B_STEP) {
            REAL *const target = ring_b + stage + p * B_PITCH;
            if (whole)
                cp_async<16>(target, b + (long long)p * ldb);
            else
#pragma unroll
                for (int e = 0; e < WIDTH; ++e) {
                    const bool valid = start + b_row + p < k && first_column + b_column + e < n;
                    cp_async<sizeof(REAL)>(target + e, valid ? b + (long long)p * ldb + e : B,
                                           valid ? sizeof(REAL) : 0);
                }
        }
        a += DEPTH;
        b += (size_t)DEPTH * ldb;
        start += DEPTH;
        stage = stage == (STAGES - 1) * STAGE ? 0 : stage + STAGE;
        cp_async_commit_group();
    }
};

// Split each x into big, the nearest TF32 number, and small, the exact remainder.
template <int N> __device__ void split(const float (&x)[N], float (&big)[N], float (&small)[N])
{
#pragma unroll
    for (int i = 0; i < N; ++i) {
        big[i] = __uint_as_float((__float_as_uint(x[i]) + 0x1000) & 0xffffe000);
        small[i] = x[i] - big[i];
    }
}

// Multiply: add the products of one step.
__device__ void multiply(double (&sums)[MMA_ROWS][MMA_COLUMNS][4], const double (&a)[MMA_ROWS][4],
                         const double (&b)[MMA_COLUMNS][2])
{
    for_each_product([&](int i, int j) { mma_m16n8k8_f64(sums[i][j], a[i], b[j]); });
}

// The same in float32, with TF32 parts of a and b. Tensor cores truncate sums, and a long sum would accumulate that
// error. So tensor cores add only 8 terms, from zero and small products first, and the FP32 units, which round, add the
// result to the sums. The three products of a sum depend on each other, so each has its own pass over the row.
__device__ void multiply(float (&sums)[MMA_ROWS][MMA_COLUMNS][4], const float (&a)[MMA_ROWS][4],
                         const float (&b)[MMA_COLUMNS][2])
{
    float big_b[MMA_COLUMNS][2], small_b[MMA_COLUMNS][2];
#pragma unroll
    for (int j = 0; j < MMA_COLUMNS; ++j)
        split(b[j], big_b[j], small_b[j]);
#pragma unroll
    for (int i = 0; i < MMA_ROWS; ++i) {
        float big_a[4], small_a[4], products[MMA_COLUMNS][4] = {};
        split(a[i], big_a, small_a);
        auto add = [&](const float (&part_a)[4], const float (&part_b)[MMA_COLUMNS][2]) {
#pragma unroll
            for (int j = 0; j < MMA_COLUMNS; ++j)
                mma_m16n8k8_tf32(products[j], part_a, part_b[j]);
        };
        add(small_a, big_b);
        add(big_a, small_b);
        add(big_a, big_b);
#pragma unroll
        for (int j = 0; j < MMA_COLUMNS; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e)
                sums[i][j][e] += products[j][e];
    }
}

// Multiply without tensor cores: add the products of k terms in the first tile. `rows` and `columns` are this lane's
// first row of A and its first column of B there.
__device__ void multiply_short(REAL (&sums)[MMA_ROWS][MMA_COLUMNS][4], const REAL *rows, const REAL *columns, int k)
{
    for (int p = 0; p < k; ++p)
        for_each_product([&](int i, int j) {
#pragma unroll
            for (int e = 0; e < 4; ++e)
                sums[i][j][e] += rows[row_of(i, e) * A_PITCH + p] * columns[p * B_PITCH + column_of(j, e)];
        });
}

// With two blocks on an SM, one multiplies while the other waits at its barrier.
extern "C" __global__ void __launch_bounds__(BLOCK, 2)
    matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    extern __shared__ __align__(16) unsigned char shared[];
    REAL *const ring_a = (REAL *)shared, *const ring_b = ring_a + ROWS * A_PITCH;
    const int thread = threadIdx.x, warp = thread / 32, g = thread % 32 / 4, t = thread % 4;
    const int y = warp / (COLUMNS / WARP_COLUMNS) * WARP_ROWS;
    const int x = warp % (COLUMNS / WARP_COLUMNS) * WARP_COLUMNS;
    const int2 tile = rasterize(blockIdx.y * gridDim.x + blockIdx.x, gridDim.y, gridDim.x);
    const int first_row = tile.y * ROWS, first_column = tile.x * COLUMNS;

    Loader loader(m, n, k, A, lda, B, ldb, first_row, first_column, ring_a, ring_b);
    for (int stage = 0; stage < STAGES - 1; ++stage)  // prologue: all stages but one
        loader.load(loader.fast && loader.start + DEPTH <= k);
    cp_async_wait_group<STAGES - 2>();
    __syncthreads();

    REAL sums[MMA_ROWS][MMA_COLUMNS][4] = {};
    if (k <= SHORT_K)
        multiply_short(sums, ring_a + (y + g) * A_PITCH, ring_b + x + 2 * t, k);
    else {
        Fragments fragments[2];  // double buffer: this step and the next
        const REAL *tile_a = ring_a + (y + g) * A_PITCH + t, *tile_b = ring_b + t * B_PITCH + x + g;
        fragments[0].load(tile_a, tile_b, 0);
        int stage = 0;
        auto multiply_tile = [&](bool whole) {  // mainloop: load another tile, `whole` or not, and multiply this one
            const bool load_first = LOAD_FIRST || !whole;
            if (load_first)
                loader.load(whole);
#pragma unroll
            for (int p = 0; p < DEPTH; p += 8) {
                if (p == DEPTH - 8) {
                    if (load_first)
                        cp_async_wait_group<STAGES - 2>();
                    else
                        cp_async_wait_group<STAGES - 3>();
                    __syncthreads();  // the next tile has arrived, and all threads have read this one
                    if (!load_first)
                        loader.load(whole);
                    const int step = stage == STAGES - 1 ? -(STAGES - 1) * STAGE : STAGE;
                    stage = stage == STAGES - 1 ? 0 : stage + 1;
                    tile_a += step;
                    tile_b += step;
                }
                fragments[(p / 8 + 1) % 2].load(tile_a, tile_b, (p + 8) % DEPTH);
                multiply(sums, fragments[p / 8 % 2].a, fragments[p / 8 % 2].b);
            }
        };
        while (loader.fast && loader.start + DEPTH <= k)
            multiply_tile(true);
        if (beta != 0)  // nothing else is left to load
            prefetch_tile(C, ldc, m, n, first_row, first_column, ROWS, thread, BLOCK);
        while (loader.start < k + (STAGES - 1) * DEPTH)
            multiply_tile(false);
    }
    if (loader.inside && ldc % 2 == 0 && (size_t)C % sizeof(Pair) == 0)
        epilogue<true>(sums, m, n, alpha, beta, beta != 0, C, ldc, first_row + y, first_column + x, g, t);
    else
        epilogue<false>(sums, m, n, alpha, beta, beta != 0, C, ldc, first_row + y, first_column + x, g, t);
}
