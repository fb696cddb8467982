// As in NVIDIA's samples: shared memory by a structure, the number of threads and a switch as template parameters
template <class T> struct SharedMemory {
    __device__ operator T *() { extern __shared__ int memory[]; return (T *)memory; }
};
template <class T, unsigned blockSize, bool isPower> __global__ void reduce(T *in, T *out, unsigned n)
{
    T *s = SharedMemory<T>();
    unsigned t = threadIdx.x;
    T sum = 0;
    for (unsigned i = blockIdx.x * blockSize + t; i < n; i += blockSize * gridDim.x) sum += in[i];
    if (isPower && n % blockSize) sum += 1;
    s[t] = sum;
    __syncthreads();
    for (unsigned h = blockSize / 2; h > 0; h /= 2) {
        if (t < h) s[t] += s[t + h];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = s[0];
}
