// A reduction of a block by CUB
#include <cub/cub.cuh>
__global__ void total(const int *x, int *y, int n)
{
    using Reduce = cub::BlockReduce<int, 128>;
    __shared__ typename Reduce::TempStorage storage;
    int i = blockIdx.x * 128 + threadIdx.x, value = Reduce(storage).Sum(i < n ? x[i] : 0);
    if (threadIdx.x == 0) y[blockIdx.x] = value;
}
int main() { total<<<8, 128>>>(x, y, 1000); }
