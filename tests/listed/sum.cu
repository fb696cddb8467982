// hpcmm:
//   operation: sum
//   host: total(n=n)
//   dtypes: [float32]

__global__ void parts(const float *x, float *sums, int n)
{
    extern __shared__ float s[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x] = i < n ? x[i] : 0;
    __syncthreads();
    for (int step = 128; step > 0; step /= 2) {
        if (threadIdx.x < step)
            s[threadIdx.x] += s[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        sums[blockIdx.x] = s[0];
}

__global__ void last(const float *sums, float *result, int count)
{
    __shared__ float s[128];
    float sum = 0;
    for (int i = threadIdx.x; i < count; i += 128)
        sum += sums[i];
    s[threadIdx.x] = sum;
    __syncthreads();
    for (int step = 64; step > 0; step /= 2) {
        if (threadIdx.x < step)
            s[threadIdx.x] += s[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        *result = s[0];
}

float total(const float *h_x, int n)
{
    const int threads = 256;
    int blocks = (n + threads - 1) / threads;
    float *d_x, *sums, *d_out, out;
    cudaMalloc(&d_x, n * sizeof(float));
    CHECK(cudaMalloc((void **)&sums, blocks * sizeof(float)));
    cudaMalloc(&d_out, sizeof(float));
    parts<<<blocks, threads, threads * sizeof(float)>>>(d_x, sums, n);
    last<<<1, 128>>>(sums, d_out, blocks);
    cudaMemcpy(&out, d_out, sizeof(float), cudaMemcpyDeviceToHost);
    return out;
}
