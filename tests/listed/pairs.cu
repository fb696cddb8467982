#include <algorithm>
#define BLOCK 128
#define CHECK(call) do { cudaError_t status = (call); if (status != cudaSuccess) exit(1); } while (0)

template <int STEPS>
__global__ void pairs(const float *in, float *out, int n, int step)
{
    __shared__ float s[BLOCK];
    float sum = 0;
    for (int i = 0; i < STEPS; ++i) {
        int place = (blockIdx.x * STEPS + i) * BLOCK + threadIdx.x;
        sum += place < n ? in[place * step] : 0;
    }
    s[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < BLOCK; ++i)
            sum += s[i];
        out[blockIdx.x * step] = sum;
    }
}

inline int ceil_div(int a, int b) { return (a + b - 1) / b; }

static void reduced(const float *in, float *out, int count, dim3 block = BLOCK)
{
    switch (count > 1000) {
    case 1:
        pairs<4><<<ceil_div(count, 4 * BLOCK), block>>>(in, out, count, 1);
        break;
    default:
        pairs<1><<<ceil_div(count, BLOCK), block>>>(in, out, count, 1);
    }
}

int main(int argc, char **argv)
{
    size_t n = argc > 1 ? atoi(argv[1]) : 1 << 20;
    float *d[2], total;
    for (int i = 0; i < 2; ++i)
        CHECK(cudaMalloc((void **)&d[i], n * sizeof(float)));
    CHECK(cudaMemcpy(d[0], host.data(), n * sizeof(float), cudaMemcpyHostToDevice));
    int from = 0;
    for (int count = n; count > 1; from = 1 - from) {
        reduced(d[from], d[1 - from], count);
        count = ceil_div(count, count > 1000 ? 4 * BLOCK : BLOCK);
    }
    CHECK(cudaMemcpy(&total, d[from], sizeof(float), cudaMemcpyDeviceToHost));
}
