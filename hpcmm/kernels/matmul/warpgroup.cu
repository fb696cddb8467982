// Matrix product, GPU rung: a warpgroup starts products, and loads and splits the next tile meanwhile.
//
// As tensor_core, but the instructions are those of Hopper: the four warps of a warpgroup multiply 64 x 8
// elements of A in their registers by 8 x 128 of B in shared memory, into sums 64 x 128, and are free to do
// something else until that is done. What is short then is the way to shared memory. So it holds the parts of
// B alone, split once for both warpgroups of a block, and all else goes from global memory straight to
// registers: no element of A is needed twice by the block. As the order of a sum's terms is free, each lane
// takes four neighbours of A, 16 bytes, and the rows of B come in that order. Tensor cores, which cut off, add
// up DEPTH terms from zero; the other units, which round, add these sums to C.
//
// In float32 alone, by three products of TF32 parts. Needs compute capability 9.0, and runs on no later one.

static_assert(sizeof(REAL) == 4, "wgmma multiplies no float64");

struct alignas(2 * sizeof(REAL)) Pair {
    REAL of[2];
};

// Split each x into big, the nearest number of TF32, and small, which is exact.
template <int N> __device__ void split(const float (&x)[N], float (&big)[N], float (&small)[N])
{
#pragma unroll
    for (int i = 0; i < N; ++i) {
        big[i] = __uint_as_float((__float_as_uint(x[i]) + 0x1000) & 0xffffe000);
        small[i] = x[i] - big[i];
    }
}

// Where in shared memory a warpgroup finds 8 rows of B: two groups of 4, each with its COLUMNS columns one
// after the other and the 4 elements of a column together, without a swizzle (PTX ISA, matrix descriptor).
__device__ unsigned long long descriptor(const float *groups)
{
    constexpr unsigned long long NEXT_GROUP = COLUMNS * 16, NEXT_COLUMNS = 8 * 16;  // bytes
    return (__cvta_generic_to_shared(groups) | NEXT_GROUP << 16 | NEXT_COLUMNS << 32) >> 4;
}

// Registers and shared memory are as the next products shall read them.
__device__ void begin_products()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

#define FOUR(j) "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3])
#define ALL(c)                                                                                                       \
    FOUR(0), FOUR(1), FOUR(2), FOUR(3), FOUR(4), FOUR(5), FOUR(6), FOUR(7), FOUR(8), FOUR(9), FOUR(10), FOUR(11),    \
        FOUR(12), FOUR(13), FOUR(14), FOUR(15)

// Start a product 64 x 128 x 8, added to c if `add`. Lane 4 g + t of a warp has of its 16 rows of A rows g and
// g + 8 at columns t and t + 4, and of C the same rows at columns 8 j + 2 t and 8 j + 2 t + 1.
__device__ void multiply_add(float (&c)[16][4], const float (&a)[4], unsigned long long b, bool add)
{
    asm volatile(
        "{\n.reg .pred add;\nsetp.ne.b32 add, %69, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, "
        "%8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, "
        "%24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, "
        "%40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, "
        "%56, %57, %58, %59, %60, %61, %62, %63}, "
        "{%64, %65, %66, %67}, %68, add, 1, 1;\n}"
        : ALL(c)
        : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])),
          "r"(__float_as_uint(a[3])), "l"(b), "r"((int)add));
}

// The products that were started are one group from now on.
__device__ void end_products()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Wait until c has all products.
__device__ void wait_for_products(float (&c)[16][4])
{
    asm volatile("wgmma.wait_group.sync.aligned 0;" : ALL(c)::"memory");
}

// What this thread wrote to shared memory is to be seen by products, too, from the next barrier on.
__device__ void publish_to_products()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Sums of up to so many terms go without tensor cores, as what the split drops is too much of them.
constexpr int SHORT = 16;

extern "C" __global__ void __launch_bounds__(BLOCK, 1)
    matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    constexpr int STEPS = DEPTH / 8, GROUPS = DEPTH / 4;  // steps of 8 terms; groups of 4 rows of B
    constexpr int AT_ONCE = BLOCK / COLUMNS;              // groups that the block splits at once, a column a thread
    constexpr int PART = DEPTH * COLUMNS;                 // of the big or the small parts of a tile of B
    static_assert(ROWS == BLOCK / 2 && COLUMNS == 128, "each warpgroup has 64 x 128 of C");
    static_assert(DEPTH % 16 == 0 && STAGES == 2 && PARTS == 2 && 4 % AT_ONCE == 0, "as the loops below are written");
    extern __shared__ __align__(128) unsigned char shared[];
    REAL *const ring = (REAL *)shared;  // [STAGES][big, small][GROUPS][COLUMNS][4]
    const int thread = threadIdx.x, g = thread % 32 / 4, t = thread % 4;
    const int block = blockIdx.y * gridDim.x + blockIdx.x, of_group = GROUP * gridDim.x;
    const int group_row = block / of_group * GROUP, group_rows = min(GROUP, gridDim.y - group_row);
    const int first_row = (group_row + block % of_group % group_rows) * ROWS;
    const int first_column = block % of_group / group_rows * COLUMNS;

    // What this thread loads: of A, rows g and g + 8 of its warp's, in columns 4 t to 4 t + 3 of each 16; of B, one
    // column in rows r, r + 4, r + 8 and r + 12 of each 16 for a group, of which there is one for each r. Rows
    // and columns past the end are the last ones: what they add to is never stored.
    const int row = first_row + thread / 32 * 16 + g, column = thread % COLUMNS, group = thread / COLUMNS;
    const REAL *a[2] = {A + (size_t)min(row, m - 1) * lda, A + (size_t)min(row + 8, m - 1) * lda};
    const REAL *b = B + (size_t)group * ldb + min(first_column + column, n - 1);
    const bool aligned = lda % 4 == 0 && (size_t)A % 16 == 0;
    float next_a[2][DEPTH / 16][4], next_b[GROUPS / AT_ONCE][4];
    int next = 0;
    auto load = [&] {  // the next tile; past the end of k it is all zeros
        const bool whole = next + DEPTH <= k;
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
            for (int p = 0; p < DEPTH; p += 16) {
                const REAL *const source = a[i] + p + 4 * t;
                if (whole && aligned)
                    *(float4 *)next_a[i][p / 16] = *(const float4 *)source;
                else
#pragma unroll
                    for (int e = 0; e < 4; ++e)
                        next_a[i][p / 16][e] = next + p + 4 * t + e < k ? source[e] : 0;
            }
#pragma unroll
        for (int q = 0; q < GROUPS; q += AT_ONCE)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int p = q / 4 * 16 + e * 4 + q % 4;
                next_b[q / AT_ONCE][e] = whole || next + p + group < k ? b[(size_t)p * ldb] : 0;
            }
        a[0] += DEPTH;
        a[1] += DEPTH;
        b += (size_t)DEPTH * ldb;
        next += DEPTH;
    };

    REAL sums[16][4] = {};
    if (k <= SHORT) {
#pragma unroll 1
        for (int p = 0; p < k; ++p)
#pragma unroll
            for (int j = 0; j < 16; ++j)
#pragma unroll
                for (int e = 0; e < 4; ++e)
                    sums[j][e] +=
                        a[e / 2][p] * B[(size_t)p * ldb + min(first_column + j * 8 + 2 * t + e % 2, n - 1)];
    } else {
        float big_a[2][STEPS][4], small_a[2][STEPS][4], products[16][4] = {};
        auto split_next = [&](int stage) {
#pragma unroll
            for (int q = 0; q < GROUPS; q += AT_ONCE) {
                float big[4], small[4];
                split(next_b[q / AT_ONCE], big, small);
                REAL *const target = ring + stage * PARTS * PART + ((q + group) * COLUMNS + column) * 4;
                *(float4 *)target = make_float4(big[0], big[1], big[2], big[3]);
                *(float4 *)(target + PART) = make_float4(small[0], small[1], small[2], small[3]);
            }
            publish_to_products();
#pragma unroll
            for (int s = 0; s < STEPS; ++s) {
                float x[4];
#pragma unroll
                for (int e = 0; e < 4; ++e)
                    x[e] = next_a[e % 2][s / 2][s % 2 * 2 + e / 2];
                split(x, big_a[stage][s], small_a[stage][s]);
            }
        };
        auto multiply = [&](int stage) {
            const REAL *const big_b = ring + stage * PARTS * PART, *const small_b = big_b + PART;
            begin_products();
#pragma unroll
            for (int s = 0; s < STEPS; ++s) {  // the small ones first
                multiply_add(products, small_a[stage][s], descriptor(big_b + s * 8 * COLUMNS), s > 0);
                multiply_add(products, big_a[stage][s], descriptor(small_b + s * 8 * COLUMNS), true);
            }
#pragma unroll
            for (int s = 0; s < STEPS; ++s)
                multiply_add(products, big_a[stage][s], descriptor(big_b + s * 8 * COLUMNS), true);
            end_products();
        };
        load();
        split_next(0);
        load();
        __syncthreads();
        for (int start = 0; start < k; start += 2 * DEPTH)
#pragma unroll
            for (int stage = 0; stage < 2; ++stage) {
                multiply(stage);
                split_next(1 - stage);
                load();
                wait_for_products(products);
#pragma unroll
                for (int j = 0; j < 16; ++j)
#pragma unroll
                    for (int e = 0; e < 4; ++e)
                        sums[j][e] += products[j][e];
                __syncthreads();  // the next tile is there for all, and all are done with this one
            }
    }
    // One block an SM is all there is, so its elements of C are asked for at once, if they are read at all. Neighbours
    // go together where they are aligned.
    const bool inside = first_row + ROWS <= m && first_column + COLUMNS <= n;
    const bool pairs = inside && ldc % 2 == 0 && (size_t)C % sizeof(Pair) == 0;
    Pair before[16][2] = {};
#pragma unroll
    for (int j = 0; j < 16; ++j)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int r = row + 8 * h, c = first_column + 8 * j + 2 * t;
            const REAL *const source = C + (size_t)r * ldc + c;
            if (beta != 0 && pairs)
                before[j][h] = *(const Pair *)source;
            else
#pragma unroll
                for (int e = 0; e < 2; ++e)
                    if (beta != 0 && r < m && c + e < n)
                        before[j][h].of[e] = source[e];
        }
#pragma unroll
    for (int j = 0; j < 16; ++j)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int r = row + 8 * h, c = first_column + 8 * j + 2 * t;
            REAL *const target = C + (size_t)r * ldc + c;
            Pair sum;
#pragma unroll
            for (int e = 0; e < 2; ++e)
                sum.of[e] = alpha * sums[j][2 * h + e] + beta * before[j][h].of[e];
            if (pairs)
                *(Pair *)target = sum;
            else
#pragma unroll
                for (int e = 0; e < 2; ++e)
                    if (r < m && c + e < n)
                        target[e] = sum.of[e];
        }
}
