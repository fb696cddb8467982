// The width is that of the grid; each thread moves several rows
__global__ void move(const double *in, double *out)
{
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y, width = gridDim.x * 16;
    for (int j = 0; j < 16; j += 4) out[(y + j) * width + x] = in[(y + j) * width + x];
}
int main() { move<<<dim3(4, 4), dim3(16, 4)>>>(a, b); }
