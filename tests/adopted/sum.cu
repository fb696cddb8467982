// A tree in shared memory, whose blocks write one result each
__global__ void total(int *in, int *out, unsigned int size)
{
    __shared__ int s[128];
    unsigned t = threadIdx.x, i = blockIdx.x * 256 + t;
    s[t] = (i < size ? in[i] : 0) + (i + 128 < size ? in[i + 128] : 0);
    for (int h = 64; h; h /= 2) { __syncthreads(); if (t < h) s[t] += s[t + h]; }
    if (t == 0) out[blockIdx.x] = s[0];
}
