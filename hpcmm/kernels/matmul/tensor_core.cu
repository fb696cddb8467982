// Matrix product, GPU rung: the tensor cores multiply, a whole warp an instruction.
//
// As swizzled, but a warp's tile is made of products 16 x 8 x 8 that its lanes compute together: each lane
// brings its elements of A and B in registers and keeps its elements of C there. A stays row by row in
// shared memory, so that it comes in copies of 16 bytes where it is aligned. Blocks are smaller, which leaves
// less of the GPU idle at the end. The instruction takes the same elements from the same lanes in both types:
//
//   float64: its arithmetic is IEEE's, and twice as fast as that of the other units.
//   float32: tensor cores read TF32, of which only 11 bits of the 24 are left. So each element is split into
//   two such parts, x = big + small, and a b = small big + big small + big big: three products that run at
//   a multiple of the other units' rate (Ootomo and Yokota, Int. J. High Perform. Comput. Appl. 36, 2022).
//   What is dropped, small small and the last bit of an odd small, is up to 2^-21 of |a b| and of either
//   sign: of a long sum no more than its own rounding, but too much of a short one, which therefore goes
//   without tensor cores. An infinite element gives NaN, as does one that rounds to infinity;
//   below 5e-35 the small part is lost, as it is subnormal.
//
// Needs compute capability 8.0.

struct alignas(2 * sizeof(REAL)) Pair {
    REAL of[2];
};

// Start a copy of BYTES from global to shared memory; only the first `valid` are read, the rest is zero.
template <int BYTES> __device__ void copy_async(void *target, const void *source, int valid)
{
    const unsigned address = __cvta_generic_to_shared(target);
    if constexpr (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(source), "r"(valid));
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address), "l"(source), "n"(BYTES),
                     "r"(valid));
}

// The copies that this thread started since the last call are one group from now on.
__device__ void end_group()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Wait until no more than PENDING of this thread's groups are under way.
template <int PENDING> __device__ void wait_for_groups()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// Add a product 16 x 8 x 8 to c by the tensor cores. Lane 4 g + t has of A rows g and g + 8 at columns t and
// t + 4, of B rows t and t + 4 at column g, of C rows g and g + 8 at columns 2 t and 2 t + 1.
__device__ void multiply_add(double (&c)[4], const double (&a)[4], const double (&b)[2])
{
#if __CUDA_ARCH__ >= 900
    asm("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
        : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
#else
#pragma unroll
    for (int i = 0; i < 4; ++i)  // 8 x 8 x 4 at a time: the upper and the lower rows, at t and at t + 4
        asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
            : "+d"(c[i % 2 * 2]), "+d"(c[i % 2 * 2 + 1])
            : "d"(a[i]), "d"(b[i / 2]));
#endif
}

// The same of TF32 numbers, added in float32; the last 13 bits of a and b are not looked at.
__device__ void multiply_add_tf32(float (&c)[4], const float (&a)[4], const float (&b)[2])
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])),
          "r"(__float_as_uint(a[3])), "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
}

// Split each x into big, the nearest number of TF32, and small, which is exact.
template <int N> __device__ void split(const float (&x)[N], float (&big)[N], float (&small)[N])
{
#pragma unroll
    for (int i = 0; i < N; ++i) {
        big[i] = __uint_as_float((__float_as_uint(x[i]) + 0x1000) & 0xffffe000);
        small[i] = x[i] - big[i];
    }
}

// Call add(i, j) for each product of a warp's tile, to and fro: an operand is used twice in a row.
template <int HIGH, int WIDE, class Add> __device__ void for_each_product(Add add)
{
#pragma unroll
    for (int i = 0; i < HIGH; ++i)
#pragma unroll
        for (int j = 0; j < WIDE; ++j)
            add(i, i % 2 ? WIDE - 1 - j : j);
}

// Add all products of a warp's tile, of 8 terms each.
template <int HIGH, int WIDE>
__device__ void multiply_tile(double (&c)[HIGH][WIDE][4], const double (&a)[HIGH][4], const double (&b)[WIDE][2])
{
    for_each_product<HIGH, WIDE>([&](int i, int j) { multiply_add(c[i][j], a[i], b[j]); });
}

// The same of float32 by the parts of a and b. Tensor cores cut off what the other units round, always towards
// zero, which a long sum would gather: so these only add up 8 terms from zero, the small products first, and
// the others add that to c. Each of the three has a pass of its own, as the next product that adds to the same
// sum must wait until the one before is done.
template <int HIGH, int WIDE>
__device__ void multiply_tile(float (&c)[HIGH][WIDE][4], const float (&a)[HIGH][4], const float (&b)[WIDE][2])
{
    float big_b[WIDE][2], small_b[WIDE][2];
#pragma unroll
    for (int j = 0; j < WIDE; ++j)
        split(b[j], big_b[j], small_b[j]);
#pragma unroll
    for (int i = 0; i < HIGH; ++i) {
        float big_a[4], small_a[4], sums[WIDE][4] = {};
        split(a[i], big_a, small_a);
        auto add = [&](const float (&part_a)[4], const float (&part_b)[WIDE][2]) {
#pragma unroll
            for (int j = 0; j < WIDE; ++j)
                multiply_add_tf32(sums[j], part_a, part_b[j]);
        };
        add(small_a, big_b);
        add(big_a, small_b);
        add(big_a, big_b);
#pragma unroll
        for (int j = 0; j < WIDE; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e)
                c[i][j][e] += sums[j][e];
    }
}

// Sums of up to so many terms go without tensor cores. Longer ones, of random numbers, were never seen to have
// more than half of the error that rounding may cause.
constexpr int SHORT = sizeof(REAL) == 4 ? 16 : 0;

// In float64, whose products keep the tensor cores busy for longer, the copies' instructions find their time between
// them, behind the barrier; in float32 the sooner they are started the better.
constexpr bool FETCH_FIRST = sizeof(REAL) == 4;

// Two blocks an SM keep it busy while one waits at its barrier.
extern "C" __global__ void __launch_bounds__(BLOCK, 2)
    matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    constexpr int WIDTH = 16 / sizeof(REAL);
    constexpr int HIGH = WARP_ROWS / 16, WIDE = WARP_COLUMNS / 8;  // products of a warp's tile
    // Rows in shared memory are padded so that no two lanes that read at the same time meet in a bank.
    constexpr int A_PITCH = DEPTH + 4, B_PITCH = COLUMNS + 2 * WIDTH;
    constexpr int STAGE = ROWS * A_PITCH + DEPTH * B_PITCH;
    constexpr int A_STEP = BLOCK * WIDTH / DEPTH, B_STEP = BLOCK * WIDTH / COLUMNS;  // rows copied at once
    static_assert(ROWS * COLUMNS * 32 == BLOCK * WARP_ROWS * WARP_COLUMNS, "a block's warps cover its part of C");
    static_assert(DEPTH % 16 == 0, "parts of one step are loaded while the other is multiplied");
    static_assert(SHORT <= DEPTH, "a short sum has all its terms in the first tile");
    extern __shared__ __align__(16) unsigned char shared[];
    REAL *const ring = (REAL *)shared;
    const int thread = threadIdx.x, warp = thread / 32, g = thread % 32 / 4, t = thread % 4;
    const int y = warp / (COLUMNS / WARP_COLUMNS) * WARP_ROWS;
    const int x = warp % (COLUMNS / WARP_COLUMNS) * WARP_COLUMNS;
    const int block = blockIdx.y * gridDim.x + blockIdx.x, of_group = GROUP * gridDim.x;
    const int group_row = block / of_group * GROUP, group_rows = min(GROUP, gridDim.y - group_row);
    const int first_row = (group_row + block % of_group % group_rows) * ROWS;
    const int first_column = block % of_group / group_rows * COLUMNS;

    // what this thread copies of each tile: WIDTH columns of A in rows a_row, a_row + A_STEP, ...
    const int a_row = thread * WIDTH / DEPTH, a_column = thread * WIDTH % DEPTH;
    const REAL *a = A + (size_t)(first_row + a_row) * lda + a_column;
    // and WIDTH columns of B in rows b_row, b_row + B_STEP, ...
    const int b_row = thread * WIDTH / COLUMNS, b_column = thread * WIDTH % COLUMNS;
    const REAL *b = B + (size_t)b_row * ldb + first_column + b_column;

    // Start the copy of the next tile into the next stage. One that lies within A and B comes 16 bytes at a time,
    // without any further question: what is asked here takes time from the products. Of any other, what is past the
    // ends is zero.
    const bool inside = first_row + ROWS <= m && first_column + COLUMNS <= n;
    const bool within =
        inside && lda % WIDTH == 0 && ldb % WIDTH == 0 && (size_t)A % 16 == 0 && (size_t)B % 16 == 0;
    REAL *const target_a = ring + a_row * A_PITCH + a_column;
    REAL *const target_b = ring + ROWS * A_PITCH + b_row * B_PITCH + b_column;
    int next = 0, filled = 0;
    auto fetch_tiles = [&](bool whole) {
#pragma unroll
        for (int i = 0; i < ROWS; i += A_STEP) {
            REAL *const target = target_a + filled + i * A_PITCH;
            if (whole)
                copy_async<16>(target, a + (long long)i * lda, 16);
            else
#pragma unroll
                for (int e = 0; e < WIDTH; ++e) {
                    const bool valid = first_row + a_row + i < m && next + a_column + e < k;
                    copy_async<sizeof(REAL)>(target + e, valid ? a + (long long)i * lda + e : A,
                                             valid ? sizeof(REAL) : 0);
                }
        }
#pragma unroll
        for (int p = 0; p < DEPTH; p += B_STEP) {
            REAL *const target = target_b + filled + p * B_PITCH;
            if (whole)
                copy_async<16>(target, b + (long long)p * ldb, 16);
            else
#pragma unroll
                for (int e = 0; e < WIDTH; ++e) {
                    const bool valid = next + b_row + p < k && first_column + b_column + e < n;
                    copy_async<sizeof(REAL)>(target + e, valid ? b + (long long)p * ldb + e : B,
                                             valid ? sizeof(REAL) : 0);
                }
        }
        a += DEPTH;
        b += (size_t)DEPTH * ldb;
        next += DEPTH;
        filled = filled == (STAGES - 1) * STAGE ? 0 : filled + STAGE;
        end_group();
    };
    for (int stage = 0; stage < STAGES - 1; ++stage)
        fetch_tiles(within && next + DEPTH <= k);
    wait_for_groups<STAGES - 2>();
    __syncthreads();

    REAL sums[HIGH][WIDE][4] = {};
    // element e of product i, j: its row and its column, from y + g and x + 2 t on
    auto row_of = [](int i, int e) { return i * 16 + e / 2 * 8; };
    auto column_of = [](int j, int e) { return j * 8 + e % 2; };
    if (k <= SHORT) {
        const REAL *const rows = ring + (y + g) * A_PITCH, *const columns = ring + ROWS * A_PITCH + x + 2 * t;
        for (int p = 0; p < k; ++p)
            for_each_product<HIGH, WIDE>([&](int i, int j) {
#pragma unroll
                for (int e = 0; e < 4; ++e)
                    sums[i][j][e] += rows[row_of(i, e) * A_PITCH + p] * columns[p * B_PITCH + column_of(j, e)];
            });
    } else {
        REAL part_a[2][HIGH][4], part_b[2][WIDE][2];  // of this step and of the next
        const REAL *tile_a = ring + (y + g) * A_PITCH + t, *tile_b = ring + ROWS * A_PITCH + t * B_PITCH + x + g;
        auto load = [&](int p) {
#pragma unroll
            for (int i = 0; i < HIGH; ++i)
#pragma unroll
                for (int e = 0; e < 4; ++e)
                    part_a[p / 8 % 2][i][e] = tile_a[(i * 16 + e % 2 * 8) * A_PITCH + p + e / 2 * 4];
#pragma unroll
            for (int j = 0; j < WIDE; ++j)
#pragma unroll
                for (int e = 0; e < 2; ++e)
                    part_b[p / 8 % 2][j][e] = tile_b[(p + e * 4) * B_PITCH + j * 8];
        };
        load(0);
        int stage = 0;
        auto multiply = [&](bool whole) {  // this tile, and fetch another
            const bool fetch_first = FETCH_FIRST || !whole;
            if (fetch_first)
                fetch_tiles(whole);
#pragma unroll
            for (int p = 0; p < DEPTH; p += 8) {
                if (p < DEPTH - 8)
                    load(p + 8);
                else {
                    if (fetch_first)
                        wait_for_groups<STAGES - 2>();
                    else
                        wait_for_groups<STAGES - 3>();
                    __syncthreads();  // the next tile is there for all, and all are done with this one
                    if (!fetch_first)
                        fetch_tiles(whole);
                    const int step = stage == STAGES - 1 ? -(STAGES - 1) * STAGE : STAGE;
                    stage = stage == STAGES - 1 ? 0 : stage + 1;
                    tile_a += step;
                    tile_b += step;
                    load(0);
                }
                multiply_tile(sums, part_a[p / 8 % 2], part_b[p / 8 % 2]);
            }
        };
        while (within && next + DEPTH <= k)
            multiply(true);
        while (next < k + (STAGES - 1) * DEPTH)
            multiply(false);
    }
    // C is read before any of it is written, two rows of each product at a time: for all that the compiler knows, an
    // element that is written could be the next one that is read. Neighbours go together where they are aligned.
    const bool pairs = inside && ldc % 2 == 0 && (size_t)C % sizeof(Pair) == 0;
#pragma unroll
    for (int i = 0; i < HIGH; ++i) {
        Pair before[WIDE][2] = {};
#pragma unroll
        for (int j = 0; j < WIDE; ++j)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const int row = first_row + y + g + row_of(i, 2 * h), column = first_column + x + 2 * t + column_of(j, 0);
                const REAL *const source = C + (size_t)row * ldc + column;
                if (beta != 0 && pairs)  // beta = 0: C is not read
                    before[j][h] = *(const Pair *)source;
                else
#pragma unroll
                    for (int e = 0; e < 2; ++e)
                        if (beta != 0 && row < m && column + e < n)
                            before[j][h].of[e] = source[e];
            }
#pragma unroll
        for (int j = 0; j < WIDE; ++j)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const int row = first_row + y + g + row_of(i, 2 * h), column = first_column + x + 2 * t + column_of(j, 0);
                REAL *const target = C + (size_t)row * ldc + column;
                Pair sum;
#pragma unroll
                for (int e = 0; e < 2; ++e)
                    sum.of[e] = alpha * sums[i][j][2 * h + e] + beta * before[j][h].of[e];
                if (pairs)
                    *(Pair *)target = sum;
                else
#pragma unroll
                    for (int e = 0; e < 2; ++e)
                        if (row < m && column + e < n)
                            target[e] = sum.of[e];
            }
    }
}
