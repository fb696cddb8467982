// hpcmm:
//   call: total(x, result, n)
//   overwrites: x
//   block: 128

__global__ void total(float *in, float *out, unsigned n)
{
    const unsigned first = blockIdx.x * blockDim.x, t = threadIdx.x;
    for (unsigned step = 1; step < blockDim.x; step *= 2) {
        if (t % (2 * step) == 0 && first + t + step < n)
            in[first + t] += in[first + t + step];
        __syncthreads();
    }
    if (t == 0)
        out[blockIdx.x] = in[first];
}
