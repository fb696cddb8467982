// Matrices: rows and columns are of threads in x and y, the width is that of the grid
__global__ void add(const float *a, const float *b, float *c, int width, int height)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height) c[y * width + x] = a[y * width + x] + b[y * width + x];
}
int main() { dim3 block(32, 4); add<<<dim3(4, 32), block>>>(a, b, c, 128, 128); }
