// Two kernels, of which one copies
__global__ void move(const float4 *from, float4 *to, int n) { }
__global__ void duplicate(double *to, const double *from, long n)
{
    for (long i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (long)gridDim.x * blockDim.x) to[i] = from[i];
}
