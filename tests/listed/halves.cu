__global__ void halve(float *x, int n, int kept)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < kept && i + kept < n)
        x[i] += x[i + kept];
}

float total(const float *h_x, int n)
{
    float *x, sum;
    cudaMalloc(&x, n * sizeof(float));
    cudaMemcpy(x, h_x, n * sizeof(float), cudaMemcpyHostToDevice);
    int left = n;
    while (left > 1) {
        int kept = (left + 1) / 2;
        halve<<<(kept + 255) / 256, 256>>>(x, left, kept);
        left = kept;
    }
    cudaMemcpy(&sum, x, sizeof(float), cudaMemcpyDeviceToHost);
    return sum;
}
