// hpcmm:
//   call: add(n, x, y)
//   overwrites: y

__global__ void add(int n, float *x, float *y)
{
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256)
        y[i] = x[i] + y[i];
}
