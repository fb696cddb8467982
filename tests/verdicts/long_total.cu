__global__ void total(const float *x, float *sums, size_t n)
{
    __shared__ float s[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x] = i < n ? x[i] : 0;
    for (int step = 128; step > 0; step /= 2) {
        __syncthreads();
        if (threadIdx.x < step)
            s[threadIdx.x] += s[threadIdx.x + step];
    }
    if (threadIdx.x == 0)
        sums[blockIdx.x] = s[0];
}
