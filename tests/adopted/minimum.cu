__global__ void least(const float *in, float *out, int n)
{
    __shared__ float s[128];
    int t = threadIdx.x, i = blockIdx.x * 256 + t;
    float own = START;
    if (i < n) own = min(own, in[i]);
    if (i + 128 < n) own = min(own, in[i + 128]);
    s[t] = own;
    for (int h = 64; h; h /= 2) { __syncthreads(); if (t < h) s[t] = min(s[t], s[t + h]); }
    if (t == 0) out[blockIdx.x] = s[0];
}
