// Each thread adds to the result
__global__ void add_all(const float *x, int n, float *sum)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(sum, x[i]);
}
