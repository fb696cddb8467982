// Four elements at once behind a check of the first one
#define FOUR(x) (reinterpret_cast<float4 *>(&(x))[0])
__global__ void add(float *a, float *b, float *c, int n)
{
    int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= n) return;
    float4 x = FOUR(a[i]), y = FOUR(b[i]);
    FOUR(c[i]) = make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
}
