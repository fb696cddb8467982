__global__ void total(float *in, float *out, int n)
{
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    for (int s = blockDim.x / 2; s > 0; s /= 2) {
        if (t < s && i + s < n) in[i] += in[i + s];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = in[i];
}
int main() { total<<<n / 128, 128>>>(in, out, n); }
