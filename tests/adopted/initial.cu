// The first value is an argument
__global__ void fold(const float *x, float *y, int n, float init)
{
    if (threadIdx.x) return;
    float s = init;
    for (int i = blockIdx.x * blockDim.x; i < n && i < (blockIdx.x + 1) * blockDim.x; ++i) s = fmaxf(s, x[i]);
    y[blockIdx.x] = s;
}
