// Matrices by columns, without a bounds check
__global__ void mine(int m, int n, int k, const float *A, const float *B, float *C)
{
    int i = blockIdx.x * 8 + threadIdx.x, j = blockIdx.y * 16 + threadIdx.y;
    float sum = 0;
    for (int p = 0; p < k; ++p)
        sum += A[i + p * m] * B[p + j * k];
    C[i + j * m] = sum;
}
int main() { mine<<<grid, dim3(8, 16)>>>(m, n, k, a, b, c); }
