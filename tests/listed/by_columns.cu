// hpcmm:
//   operation: matmul
//   host: multiply(M=m, N=n, K=k, a=alpha, b=beta)
//   layout: columns
//   constants: {EDGE: 8}

__global__ void transpose(const REAL *in, REAL *out, int rows, int cols)
{
    int c = blockIdx.x * EDGE + threadIdx.x, r = blockIdx.y * EDGE + threadIdx.y;
    if (r < rows && c < cols)
        out[r * cols + c] = in[c * rows + r];
}

__global__ void product(const REAL *A, const REAL *Bt, REAL *C, int m, int n, int k, ACCUMULATOR alpha, ACCUMULATOR beta)
{
    int c = blockIdx.x * EDGE + threadIdx.x, r = blockIdx.y * EDGE + threadIdx.y;
    if (r >= m || c >= n)
        return;
    ACCUMULATOR sum = 0;
    for (int i = 0; i < k; ++i)
        sum += A[i * m + r] * Bt[i * n + c];
    C[c * m + r] = alpha * sum + (beta != 0 ? beta * C[c * m + r] : 0);
}

void multiply(const REAL *A, const REAL *B, REAL *C, int M, int N, int K, float a, float b)
{
    REAL *Bt;
    cudaMalloc(&Bt, N * K * sizeof(REAL));
    dim3 block(EDGE, EDGE);
    transpose<<<dim3((N + EDGE - 1) / EDGE, (K + EDGE - 1) / EDGE), block>>>(B, Bt, K, N);
    product<<<dim3((N + EDGE - 1) / EDGE, (M + EDGE - 1) / EDGE), block>>>(A, Bt, C, M, N, K, a, b);
}
