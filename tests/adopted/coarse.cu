// A block of 1024 takes 4096 elements, without a comparison
#define BLOCK_DIM 1024
#define COARSENING 4
__global__ void total(float *in, float *out)
{
    __shared__ float s[BLOCK_DIM];
    unsigned t = threadIdx.x, first = COARSENING * blockDim.x * blockIdx.x + t;
    float sum = in[first];
    for (unsigned i = 1; i < COARSENING; ++i) sum += in[first + i * BLOCK_DIM];
    s[t] = sum;
    for (unsigned stride = blockDim.x / 2; stride >= 1; stride /= 2) {
        __syncthreads();
        if (t < stride) s[t] += s[t + stride];
    }
    if (t == 0) atomicAdd(out, s[0]);
}
