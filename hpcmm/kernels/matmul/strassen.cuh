// The additions of Strassen's algorithm in Winograd's form, and the scaling of its operands. See strassen_1.cu.

#ifndef STRASSEN_CUH
#define STRASSEN_CUH

#if BFLOAT16
#include "matmul/sixteen_bit.cuh"

typedef unsigned short Stored;
typedef float Number;

__device__ Number number(Stored x) { return to_float(x); }
__device__ Stored stored(Number x) { return (Stored)to_pair(x, 0); }
#else
#include "ptx.cuh"

typedef REAL Stored, Number;

__device__ Number number(Stored x) { return x; }
__device__ Stored stored(Number x) { return x; }
#endif

constexpr int WIDTH = 16 / sizeof(Stored);  // elements that a thread reads of each quarter, and writes
constexpr int MOST = sizeof(Number) == 8 ? 1022 : 126;  // largest exponent of a scaling

// WIDTH elements, as numbers
struct Vector {
    Number x[WIDTH];
};

// 2^e for |e| <= MOST
__device__ Number power_of_two(int e)
{
    if constexpr (sizeof(Number) == 8)
        return __longlong_as_double((long long)(e + 1023) << 52);
    else
        return __int_as_float((e + 127) << 23);
}

// The exponent by which numbers up to largest are scaled to 1 to 2; 0 if they are all zero, or one is infinite
__device__ int exponent_of(Number largest)
{
    if (!(largest > 0) || !isfinite(largest))
        return 0;
    int e;
    if constexpr (sizeof(Number) == 8)
        e = (int)(__double_as_longlong(largest) >> 52) - 1023;
    else
        e = (__float_as_int(largest) >> 23) - 127;
    return max(-MOST, min(MOST, -e));
}

// The vector at a multiple of 16 bytes
__device__ Vector read(const Stored *from)
{
    const int4 words = *(const int4 *)from;
    const Stored *const elements = (const Stored *)&words;
    Vector found;
    for (int l = 0; l < WIDTH; l++)
        found.x[l] = number(elements[l]);
    return found;
}

__device__ void write(Stored *to, const Vector &values)
{
    int4 words;
    Stored *const elements = (Stored *)&words;
    for (int l = 0; l < WIDTH; l++)
        elements[l] = stored(values.x[l]);
    __stcs((int4 *)to, words);  // a large matrix is not in the L2 cache when it is read
}

// Elements (i, j) to (i, j + WIDTH - 1) of a matrix of rows x columns; zeros outside
__device__ Vector load(const Stored *matrix, int ld, int rows, int columns, int i, int j)
{
    if (i >= rows || j >= columns)
        return {};
    const Stored *const from = matrix + (size_t)i * ld + j;
    if (j + WIDTH <= columns && (size_t)from % 16 == 0)
        return read(from);
    Vector found{};
    for (int l = 0; l < WIDTH && j + l < columns; l++)
        found.x[l] = number(from[l]);
    return found;
}

// Store the elements that are inside
__device__ void store(Stored *matrix, int ld, int rows, int columns, int i, int j, const Vector &values)
{
    if (i >= rows || j >= columns)
        return;
    Stored *const to = matrix + (size_t)i * ld + j;
    if (j + WIDTH <= columns && (size_t)to % 16 == 0)
        write(to, values);
    else
        for (int l = 0; l < WIDTH && j + l < columns; l++)
            to[l] = stored(values.x[l]);
}

__device__ Vector operator+(const Vector &a, const Vector &b)
{
    Vector sum;
    for (int l = 0; l < WIDTH; l++)
        sum.x[l] = a.x[l] + b.x[l];
    return sum;
}

__device__ Vector operator-(const Vector &a, const Vector &b)
{
    Vector difference;
    for (int l = 0; l < WIDTH; l++)
        difference.x[l] = a.x[l] - b.x[l];
    return difference;
}

// The exponents of the rows of A: a warp for each
extern "C" __global__ void __launch_bounds__(BLOCK) scale_rows(int m, int k, const Stored *a, int lda, int *exponents)
{
    const int i = blockIdx.x * (BLOCK / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (i >= m)
        return;
    Number largest = 0;
    for (int j = lane * WIDTH; j < k; j += 32 * WIDTH) {
        const Vector some = load(a, lda, m, k, i, j);
        for (int l = 0; l < WIDTH; l++)
            largest = max(largest, abs(some.x[l]));
    }
    for (int offset = 16; offset > 0; offset /= 2)
        largest = max(largest, __shfl_xor_sync(~0u, largest, offset));
    if (lane == 0)
        exponents[i] = exponent_of(largest);
}

// The exponents of 32 columns of B for each block
extern "C" __global__ void __launch_bounds__(1024) scale_columns(int n, int k, const Stored *b, int ldb, int *exponents)
{
    __shared__ Number largest_of[32][33];
    const int j = blockIdx.x * 32 + threadIdx.x;
    Number largest = 0;
    if (j < n)
        for (int p = threadIdx.y; p < k; p += 32)
            largest = max(largest, abs(number(b[(size_t)p * ldb + j])));
    largest_of[threadIdx.y][threadIdx.x] = largest;
    __syncthreads();
    largest = largest_of[threadIdx.x][threadIdx.y];
    for (int offset = 16; offset > 0; offset /= 2)
        largest = max(largest, __shfl_xor_sync(~0u, largest, offset));
    const int column = blockIdx.x * 32 + threadIdx.y;
    if (threadIdx.x == 0 && column < n)
        exponents[column] = exponent_of(largest);
}

// The vectors at the same place of the four quarters of a matrix, whose first quarter is height x width
struct Quarters {
    Vector q11, q12, q21, q22;

    __device__ Quarters(const Stored *matrix, int ld, int rows, int columns, int height, int width, int i, int j)
        : q11(load(matrix, ld, min(rows, height), min(columns, width), i, j)),
          q12(load(matrix, ld, min(rows, height), columns, i, j + width)),
          q21(load(matrix, ld, rows, min(columns, width), i + height, j)),
          q22(load(matrix, ld, rows, columns, i + height, j + width))
    {
    }
};

// The number of the vector of a thread in a row of a quarter of so many columns, and the row. 32 bits suffice for 64 GB.
__device__ int2 place(int columns)
{
    const unsigned number = blockIdx.x * BLOCK + threadIdx.x, vectors = columns / WIDTH;
    return {(int)(number % vectors), (int)(number / vectors)};
}

// The seven left factors, one after the other, of height x width each. Rows are scaled if there are exponents; else the
// quarters themselves are not written: products read them where they are (QUARTERS in strassen.py).
extern "C" __global__ void __launch_bounds__(BLOCK)
    sums_a(int m, int k, const Stored *a, int lda, int scaled, const int *exponents, int height, int width,
           Stored *factors)
{
    const int2 at = place(width);
    const int i = at.y, j = at.x * WIDTH;
    if (i >= height)
        return;
    Quarters q(a, lda, m, k, height, width, i, j);
    if (scaled) {
        const Number upper = power_of_two(i < m ? exponents[i] : 0);
        const Number lower = power_of_two(i + height < m ? exponents[i + height] : 0);
        for (int l = 0; l < WIDTH; l++) {
            q.q11.x[l] *= upper, q.q12.x[l] *= upper;
            q.q21.x[l] *= lower, q.q22.x[l] *= lower;
        }
    }
    const Vector s1 = q.q21 + q.q22, s2 = s1 - q.q11, s3 = q.q11 - q.q21, s4 = q.q12 - s2;
    const Vector *const values[] = {&q.q11, &q.q12, &s4, &q.q22, &s1, &s2, &s3};
#pragma unroll
    for (int product = 0; product < 7; product++)
        if (scaled || product == 2 || product > 3)
            write(factors + ((size_t)product * height + i) * width + j, *values[product]);
}

// The same for the seven right factors and columns.
extern "C" __global__ void __launch_bounds__(BLOCK)
    sums_b(int k, int n, const Stored *b, int ldb, int scaled, const int *exponents, int height, int width,
           Stored *factors)
{
    const int2 at = place(width);
    const int i = at.y, j = at.x * WIDTH;
    if (i >= height)
        return;
    Quarters q(b, ldb, k, n, height, width, i, j);
    if (scaled)
        for (int l = 0; l < WIDTH; l++) {
            const Number left = power_of_two(j + l < n ? exponents[j + l] : 0);
            const Number right = power_of_two(j + l + width < n ? exponents[j + l + width] : 0);
            q.q11.x[l] *= left, q.q21.x[l] *= left;
            q.q12.x[l] *= right, q.q22.x[l] *= right;
        }
    const Vector t1 = q.q12 - q.q11, t2 = q.q22 - t1, t3 = q.q22 - q.q12, t4 = t2 - q.q21;
    const Vector *const values[] = {&q.q11, &q.q21, &q.q22, &t4, &t1, &t2, &t3};
#pragma unroll
    for (int product = 0; product < 7; product++)
        if (scaled || product > 2)
            write(factors + ((size_t)product * height + i) * width + j, *values[product]);
}

// A vector of C = alpha times sums, with the scaling undone, + beta C; C is not read if beta is 0
__device__ void finish(int m, int n, Vector sums, Number alpha, int scaled, const int *rows, const int *columns,
                       Number beta, Stored *c, int ldc, int i, int j)
{
    if (i >= m || j >= n)
        return;
    const Vector old = beta != 0 ? load(c, ldc, m, n, i, j) : Vector{};
    for (int l = 0; l < WIDTH; l++) {
        Number sum = alpha * sums.x[l];
        if (scaled && j + l < n) {
            const int e = -(rows[i] + columns[j + l]), half = e / 2;
            sum = sum * power_of_two(half) * power_of_two(e - half);
        }
        sums.x[l] = beta != 0 ? sum + beta * old.x[l] : sum;
    }
    store(c, ldc, m, n, i, j, sums);
}

// C from the seven products, of height x width each
extern "C" __global__ void __launch_bounds__(BLOCK)
    matmul(int m, int n, Number alpha, const Stored *products, int height, int width, int scaled, const int *rows,
           const int *columns, Number beta, Stored *c, int ldc)
{
    const int2 at = place(width);
    const int i = at.y, j = at.x * WIDTH;
    if (i >= height)
        return;
    auto p = [&](int number) { return read(products + ((size_t)(number - 1) * height + i) * width + j); };
    const Vector p1 = p(1), p2 = p(2), p3 = p(3), p4 = p(4), p5 = p(5), p6 = p(6), p7 = p(7);
    const Vector u2 = p1 + p6, u3 = u2 + p7, u4 = u2 + p5;
    const bool all = scaled;
    finish(m, n, p1 + p2, alpha, all, rows, columns, beta, c, ldc, i, j);
    finish(m, n, u4 + p3, alpha, all, rows, columns, beta, c, ldc, i, j + width);
    finish(m, n, u3 - p4, alpha, all, rows, columns, beta, c, ldc, i + height, j);
    finish(m, n, u3 + p5, alpha, all, rows, columns, beta, c, ldc, i + height, j + width);
}

#endif
