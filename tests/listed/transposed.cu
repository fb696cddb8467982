// hpcmm:
//   operation: matmul
//   host: main(M=m, N=n, K=k)
//   dtypes: [float32]
//   scalars: none

__global__ void transpose(const float *in, float *out, int rows, int cols)
{
    int c = blockIdx.x * 16 + threadIdx.x, r = blockIdx.y * 16 + threadIdx.y;
    if (r < rows && c < cols)
        out[c * rows + r] = in[r * cols + c];
}

__global__ void product(const float *A, const float *Bt, float *C, int m, int n, int k)
{
    int c = blockIdx.x * 16 + threadIdx.x, r = blockIdx.y * 16 + threadIdx.y;
    if (r >= m || c >= n)
        return;
    float sum = 0;
    for (int i = 0; i < k; ++i)
        sum += A[r * k + i] * Bt[c * k + i];
    C[r * n + c] = sum;
}

int main()
{
    int M = 512, N = 256, K = 128;
    thrust::device_vector<float> A(M * K), B(K * N), C(M * N);
    thrust::device_vector<float> Bt(N * K);
    dim3 threads(16, 16), blocks(ceil(N / 16.0), (K + threads.y - 1) / threads.y);
    transpose<<<blocks, threads>>>(thrust::raw_pointer_cast(B.data()), thrust::raw_pointer_cast(&Bt[0]), K, N);
    dim3 grid((N + 15) / 16, (M + 15) / 16);
    product<<<grid, threads>>>(thrust::raw_pointer_cast(A.data()), thrust::raw_pointer_cast(&Bt[0]),
                               thrust::raw_pointer_cast(C.data()), M, N, K);
}
