// A template of the side of a tile and of the type, for square matrices
template <int BS, typename T> __global__ void tiled(const T *A, const T *B, T *C, unsigned width)
{
    __shared__ T a[BS][BS], b[BS][BS];
    unsigned i = blockIdx.y * BS + threadIdx.y, j = blockIdx.x * BS + threadIdx.x;
    T sum = 0;
    for (unsigned s = 0; s < width; s += BS) {
        a[threadIdx.y][threadIdx.x] = A[i * width + s + threadIdx.x];
        b[threadIdx.y][threadIdx.x] = B[(s + threadIdx.y) * width + j];
        __syncthreads();
        for (int p = 0; p < BS; ++p)
            sum += a[threadIdx.y][p] * b[p][threadIdx.x];
        __syncthreads();
    }
    C[i * width + j] = sum;
}
