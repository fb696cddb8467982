// A product by tiles in shared memory. `mistake` selects what is wrong with it; 0: nothing.
// hpcmm:
//   dtypes: [float32]
//   tiles: [16]

__constant__ int mistake;
#define IS(number) (mistake == number)

__global__ void matmul(int m, int n, int k, float alpha, const float *A, int lda, const float *B, int ldb, float beta,
                       float *C, int ldc)
{
    __shared__ float a[TILE][TILE], b[TILE][TILE];
    const int x = threadIdx.x, y = threadIdx.y, col = blockIdx.x * TILE + x, row = blockIdx.y * TILE + y;
    float sum = 0;
    if (IS(1) && (row >= m || col >= n))
        return;
    const int tiles = IS(2) ? k / TILE : IS(3) ? (k + TILE - 1) / TILE + (row > 3) : (k + TILE - 1) / TILE;
    for (int t = 0; t < tiles; ++t) {
        const int p = (IS(4) ? t * (TILE + 1) : t * TILE) + x, q = t * TILE + y;
        if (IS(5) ? row < m : row < m && p < k)
            a[y][x] = A[(size_t)row * lda + p];
        else if (!IS(6))
            a[y][x] = 0;
        if (IS(7) ? q < k : q < k && col < n)
            b[y][x] = B[(size_t)q * ldb + col];
        else
            b[y][x] = 0;
        if (IS(8)) {
            if (y < 8)
                __syncthreads();
        } else if (!IS(9))
            __syncthreads();
        for (int i = 0; i < TILE; ++i)
            sum += a[y][IS(10) ? i + 1 : i] * b[i][x];
        if (!IS(11))
            __syncthreads();
        if (IS(12))
            t -= 1;
    }
    if (row < m && col < n) {
        float *c = &C[(size_t)row * ldc + col];
        *c = beta == 0 ? alpha * sum : alpha * sum + beta * *c;
    }
}
