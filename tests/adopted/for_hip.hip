// Names of HIP, and its launch by a macro
#include <hip/hip_runtime.h>
__global__ void add(const float *a, const float *b, float *c, unsigned n)
{
    const unsigned i = hipBlockIdx_x * hipBlockDim_x + hipThreadIdx_x;
    if (i < n) c[i] = a[i] + b[i];
}
int main() { hipLaunchKernelGGL(HIP_KERNEL_NAME(add), dim3(4), dim3(192), 0, hipStreamDefault, a, b, c, n); }
