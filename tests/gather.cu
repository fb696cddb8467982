extern "C" __global__ void gather(const T *x, const int *at, T *y)
{
    __shared__ T values[SIZE];
    const int i = threadIdx.x + blockDim.x * threadIdx.y, threads = blockDim.x * blockDim.y;
    for (int j = i; j < SIZE; j += threads)
        values[j] = 0;
    __syncthreads();
    T sum = 0;
    for (int turn = 0; turn < TURNS; ++turn)
        if (at[turn * threads + i] >= 0)
            sum += x[at[turn * threads + i]] + values[at[turn * threads + i]];
    y[i] = sum;
}
