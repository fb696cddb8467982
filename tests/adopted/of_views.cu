// Views of matrices with an operator
template <typename T> struct View {
    T *data;
    size_t rows, cols;
    __device__ T &operator()(size_t i, size_t j) { return data[i * cols + j]; }
};
template <typename T> __global__ void product(View<const T> a, View<const T> b, View<T> c)
{
    size_t i = blockIdx.y * blockDim.y + threadIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= c.rows || j >= c.cols) return;
    T sum = 0;
    for (size_t p = 0; p < a.cols; ++p) sum += a(i, p) * b(p, j);
    c(i, j) = sum;
}
int main() { product<double><<<grid, dim3(16, 16)>>>(x, y, z); }
