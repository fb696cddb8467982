// Matrix product, GPU rung: the tensor cores multiply, a whole warp an instruction.
//
// As swizzled, but a warp's tile is made of products 16 x 8 x 8 that its lanes compute together: each lane
// brings its elements of A and B in registers and keeps its elements of C there. A stays row by row in
// shared memory, so that it comes in copies of 16 bytes where it is aligned. The instruction takes the same
// elements from the same lanes in both types:
//
//   float64: its arithmetic is IEEE's, and twice as fast as that of the other units.
//   float32: tensor cores read TF32, of which only 11 bits of the 24 are left. So each element is split into
//   two such parts, x = big + small, and a b = small big + big small + big big: three products that run at
//   a multiple of the other units' rate (Ootomo and Yokota, Int. J. High Perform. Comput. Appl. 36, 2022).
//   What is dropped, small small and the last bit of an odd small, is up to 2^-21 of |a b| and of either
//   sign: of a long sum no more than its own rounding, but too much of a short one, which therefore goes
//   without tensor cores. An infinite element gives NaN, as does one that rounds to infinity.
//
// Needs compute capability 8.0.

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

// The same of float32 by the parts of a and b. The small products come first, while there is the least in c
// to round them off.
__device__ void multiply_add(float (&c)[4], const float (&a)[4], const float (&b)[2])
{
    float big_a[4], small_a[4], big_b[2], small_b[2];
    split(a, big_a, small_a);
    split(b, big_b, small_b);
    multiply_add_tf32(c, small_a, big_b);
    multiply_add_tf32(c, big_a, small_b);
    multiply_add_tf32(c, big_a, big_b);
}

// The same from the same registers without tensor cores: each lane gets what its own elements of C need.
template <class T> __device__ void multiply_add_by_lane(T (&c)[4], const T (&a)[4], const T (&b)[2])
{
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int p = 0; p < 8; ++p)
#pragma unroll
        for (int i = 0; i < 4; ++i)
            c[i] += __shfl_sync(~0u, a[p / 4 * 2 + i / 2], 4 * g + p % 4) *
                    __shfl_sync(~0u, b[p / 4], 4 * (2 * t + i % 2) + p % 4);
}

// Sums of up to so many terms go without tensor cores. Longer ones, of random numbers, were never seen to have
// more than half of the error that rounding may cause.
constexpr int SHORT = sizeof(REAL) == 4 ? 16 : 0;

// Two blocks an SM keep it busy while one waits at its barrier; in float64 the registers do not suffice for two.
constexpr int RESIDENT = sizeof(REAL) == 4 ? 2 : 1;

extern "C" __global__ void __launch_bounds__(BLOCK, RESIDENT)
    matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    constexpr int WIDTH = 16 / sizeof(REAL);
    constexpr int HIGH = WARP_ROWS / 16, WIDE = WARP_COLUMNS / 8;  // products of a warp's tile
    // Rows in shared memory are padded so that no two lanes that read at the same time meet in a bank.
    constexpr int A_PITCH = DEPTH + 4, B_PITCH = COLUMNS + 2 * WIDTH;
    constexpr int STAGE = ROWS * A_PITCH + DEPTH * B_PITCH;
    constexpr int A_STEP = BLOCK * WIDTH / DEPTH, B_STEP = BLOCK * WIDTH / COLUMNS;  // rows copied at once
    static_assert(ROWS * COLUMNS * 32 == BLOCK * WARP_ROWS * WARP_COLUMNS, "a block's warps cover its part of C");
    extern __shared__ __align__(16) unsigned char shared[];
    REAL *const ring = (REAL *)shared;
    const int thread = threadIdx.x, warp = thread / 32, g = thread % 32 / 4, t = thread % 4;
    const int y = warp / (COLUMNS / WARP_COLUMNS) * WARP_ROWS;
    const int x = warp % (COLUMNS / WARP_COLUMNS) * WARP_COLUMNS;
    const int block = blockIdx.y * gridDim.x + blockIdx.x, of_group = GROUP * gridDim.x;
    const int group_row = block / of_group * GROUP, group_rows = min(GROUP, gridDim.y - group_row);
    const int first_row = (group_row + block % of_group % group_rows) * ROWS;
    const int first_column = block % of_group / group_rows * COLUMNS;

    // start a copy of WIDTH elements, of which the first `valid` are read
    auto copy = [](REAL *target, const REAL *source, int valid, bool aligned) {
        if (aligned)
            copy_async<16>(target, source, valid * sizeof(REAL));
        else
#pragma unroll
            for (int i = 0; i < WIDTH; ++i)
                copy_async<sizeof(REAL)>(target + i, source + i, i < valid ? sizeof(REAL) : 0);
    };
    // what this thread copies of each tile: WIDTH columns of A in rows a_row, a_row + A_STEP, ...
    const bool a_aligned = lda % WIDTH == 0 && (size_t)A % 16 == 0;
    const int a_row = thread * WIDTH / DEPTH, a_column = thread * WIDTH % DEPTH;
    size_t a_offset[ROWS / A_STEP];
#pragma unroll
    for (int i = 0; i < ROWS / A_STEP; ++i)
        a_offset[i] = (size_t)min(first_row + a_row + i * A_STEP, m - 1) * lda;
    const REAL *a = A + a_column;
    // and WIDTH columns of B in rows b_row, b_row + B_STEP, ...
    const bool b_aligned = ldb % WIDTH == 0 && (size_t)B % 16 == 0;
    const int b_row = thread * WIDTH / COLUMNS, b_column = thread * WIDTH % COLUMNS;
    const int b_valid = max(0, min(WIDTH, n - first_column - b_column));
    const REAL *b = B + (size_t)b_row * ldb + first_column + b_column;

    // start the copy of the next tile into the next stage; past the end of k it is all zeros
    REAL *const target_a = ring + a_row * A_PITCH + a_column;
    REAL *const target_b = ring + ROWS * A_PITCH + b_row * B_PITCH + b_column;
    int next = 0, filled = 0;
    auto fetch_tiles = [&] {
        const int a_valid = max(0, min(WIDTH, k - next - a_column));
#pragma unroll
        for (int i = 0; i < ROWS / A_STEP; ++i)
            copy(target_a + filled + i * A_STEP * A_PITCH, a + a_offset[i], a_valid, a_aligned);
#pragma unroll
        for (int p = 0; p < DEPTH; p += B_STEP)
            copy(target_b + filled + p * B_PITCH, b + (size_t)p * ldb, next + b_row + p < k ? b_valid : 0, b_aligned);
        a += DEPTH;
        b += (size_t)DEPTH * ldb;
        next += DEPTH;
        filled = filled == (STAGES - 1) * STAGE ? 0 : filled + STAGE;
        end_group();
    };
    for (int stage = 0; stage < STAGES - 1; ++stage)
        fetch_tiles();

    REAL sums[HIGH][WIDE][4] = {};
    const REAL *tile_a = ring + (y + g) * A_PITCH + t, *tile_b = ring + ROWS * A_PITCH + t * B_PITCH + x + g;
    int stage = 0;
    for (int start = 0; start < k; start += DEPTH) {
        wait_for_groups<STAGES - 2>();
        __syncthreads();  // the next tile is there for all, and all are done with the one before
        fetch_tiles();
#pragma unroll
        for (int p = 0; p < DEPTH; p += 8) {
            REAL part_a[HIGH][4], part_b[WIDE][2];
#pragma unroll
            for (int i = 0; i < HIGH; ++i)
#pragma unroll
                for (int e = 0; e < 4; ++e)
                    part_a[i][e] = tile_a[(i * 16 + e % 2 * 8) * A_PITCH + p + e / 2 * 4];
#pragma unroll
            for (int j = 0; j < WIDE; ++j)
#pragma unroll
                for (int e = 0; e < 2; ++e)
                    part_b[j][e] = tile_b[(p + e * 4) * B_PITCH + j * 8];
#pragma unroll
            for (int i = 0; i < HIGH; ++i)
#pragma unroll
                for (int j = 0; j < WIDE; ++j)
                    if (k > SHORT)
                        multiply_add(sums[i][j], part_a[i], part_b[j]);
                    else
                        multiply_add_by_lane(sums[i][j], part_a[i], part_b[j]);
        }
        const int way = stage == STAGES - 1 ? -(STAGES - 1) * STAGE : STAGE;
        stage = stage == STAGES - 1 ? 0 : stage + 1;
        tile_a += way;
        tile_b += way;
    }
#pragma unroll
    for (int i = 0; i < HIGH; ++i)
#pragma unroll
        for (int j = 0; j < WIDE; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int row = first_row + y + i * 16 + e / 2 * 8 + g, column = first_column + x + j * 8 + 2 * t + e % 2;
                if (row < m && column < n) {
                    REAL &c = C[(size_t)row * ldc + column], sum = sums[i][j][e];
                    c = beta == 0 ? alpha * sum : alpha * sum + beta * c;  // beta = 0: C is not read
                }
            }
}
