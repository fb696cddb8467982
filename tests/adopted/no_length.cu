// A tree in shared memory without the length, as in many introductions: exact multiples, and partial sums for the host
__global__ void reduce(int *in, int *out)
{
    extern __shared__ int s[];
    unsigned t = threadIdx.x;
    s[t] = in[blockIdx.x * blockDim.x + t];
    __syncthreads();
    for (unsigned d = 1; d < blockDim.x; d *= 2) {
        if (t % (2 * d) == 0) s[t] += s[t + d];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = s[0];
}
int main() { int threads = 128; threads /= 2; reduce<<<4, threads, threads * 4>>>(a, b); }
