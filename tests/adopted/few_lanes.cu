// The last step shuffles in a branch that some lanes skip: right with 1024 threads, wrong with the block of the file
using std::cout;
#ifdef DOUBLE
typedef double number;
#else
typedef float number;
#endif
__device__ number of_warp(number x)
{
    for (int d = 16; d; d /= 2) x += __shfl_down_sync(~0u, x, d);
    return x;
}
__global__ void total(const number *x, number *y, int n)
{
    __shared__ number s[32];
    int i = blockIdx.x * blockDim.x + threadIdx.x, warps = blockDim.x / 32;
    number sum = of_warp(i < n ? x[i] : 0);
    if (threadIdx.x % 32 == 0) s[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < warps) {
        sum = of_warp(s[threadIdx.x]);
        if (threadIdx.x == 0) y[blockIdx.x] = sum;
    }
}
int main() { int threads = 128; dim3 block = dim3(threads, 1, 1); total<<<8, block>>>(x, y, 999); cout << "done"; }
