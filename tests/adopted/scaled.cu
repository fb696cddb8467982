// A loop over all of C with the stride of the grid, with alpha and beta
__global__ void
scaled(size_t M, size_t N, size_t K, double alpha, double const *a, double const *b, double beta, double *c)
{
    for (size_t e = blockIdx.x * blockDim.x + threadIdx.x; e < M * N; e += (size_t)gridDim.x * blockDim.x) {
        double sum = 0;
        for (size_t p = 0; p < K; ++p)
            sum = fma(a[e / N * K + p], b[p * N + e % N], sum);
        c[e] = alpha * sum + beta * c[e];
    }
}
