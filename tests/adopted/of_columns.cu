#define AT(i, j, ld) ((j) * (ld) + (i))
__global__ void product(int m, int n, int k, const float *A, const float *B, float *C)
{
    int i = blockIdx.x * 16 + threadIdx.x, j = blockIdx.y * 16 + threadIdx.y;
    if (i < m && j < n) {
        float sum = 0;
        for (int p = 0; p < k; ++p)
            sum += A[AT(i, p, m)] * B[AT(p, j, k)];
        C[AT(i, j, m)] = sum;
    }
}
