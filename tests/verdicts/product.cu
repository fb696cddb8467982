// A product with one element of C per thread. `mistake` selects what is wrong with it; 0: nothing.
// hpcmm:
//   dtypes: [float32]
//   tiles: [16]

__constant__ int mistake;
#define IS(number) (mistake == number)

__global__ void matmul(int m, int n, int k, float alpha, const float *A, int lda, const float *B, int ldb, float beta,
                       float *C, int ldc)
{
    int col = blockIdx.x * TILE + threadIdx.x, row = blockIdx.y * TILE + threadIdx.y;
    if (IS(1))
        row = blockIdx.x * TILE + threadIdx.x, col = blockIdx.y * TILE + threadIdx.y;
    bool inside = row < m && col < n;
    if (IS(2))
        inside = row * n + col < m * n;
    if (IS(3))
        inside = row <= m && col < n;
    if (IS(4))
        inside = row < m && col <= n;
    if (IS(5))
        inside = col < n;
    if (IS(6))
        inside = row < m;
    if (IS(7))
        inside = row < n && col < m;
    if (IS(8))
        inside = inside && row + 1 < m;
    if (IS(9))
        inside = inside && col > 0;
    if (IS(10))
        inside = inside && blockIdx.x == 0;
    if (IS(11))
        inside = inside && (row & 255) == row;
    if (IS(12) && inside)
        const_cast<float *>(A)[(size_t)row * lda] = 0;
    if (IS(13) && inside && col == n - 1 && ldc > n)
        C[(size_t)row * ldc + n] = 0;
    if (IS(14))
        for (unsigned p = k; p >= 0; --p)
            asm volatile("");
    if (IS(15))
        for (unsigned p = k; p >= 0; p = p ? p - 1 : k)
            if (A[0] == 123456)
                break;
    if (IS(16))
        row = (row * 1000 + 1) / (n - n / 2 * 2 - 1) ? row : 0;
    if (IS(17))
        assert(m % 16 == 0);
    if (!inside)
        return;
    float sum = IS(18) ? C[(size_t)row * ldc + col] : 0;
    for (int p = IS(19) ? 1 : 0; p < (IS(20) ? k + 1 : IS(21) ? k - 1 : IS(22) ? (k & 255) : k); ++p) {
        float a = A[(size_t)row * (IS(23) ? k : lda) + p], b = B[(size_t)p * (IS(24) ? n : ldb) + col];
        if (IS(25))
            a = A[(size_t)p * lda + row];
        if (IS(26))
            b = B[(size_t)col * ldb + p];
        sum += a * b;
    }
    if (IS(27))
        sum = (int)(sum * 1000) / 1000.0f;
    float *c = &C[(size_t)row * (IS(28) ? n : ldc) + col];
    if (IS(29))
        c = &C[(size_t)col * ldc + row];
    const float old = beta == 0 && !IS(30) ? 0 : IS(31) ? C[(size_t)row * n + col] : *c;
    if (IS(32) && sum == 0)
        return;
    if (IS(33))
        sum *= alpha;
    if (IS(34))
        *c += alpha * sum + beta * old;
    else
        *c = (IS(35) ? 1 : alpha) * sum + (IS(36) || (IS(38) && beta < 0) ? 0 : IS(37) ? 1 : beta) * old;
}
