// The product of two vectors
__global__ void dot(const float *a, const float *b, float *result, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(result, a[i] * b[i]);
}
