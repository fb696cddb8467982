// Exclusive or of the 64-bit words of a buffer. The reductions of CuPy take seconds to compile, once for each block
// size.

extern "C" __global__ void checksum(const unsigned char *buffer, unsigned long long bytes, unsigned long long *result)
{
    const unsigned long long words = bytes / 8, step = (unsigned long long)gridDim.x * blockDim.x;
    const unsigned long long first = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    unsigned long long own = 0;
    for (unsigned long long i = first; i < words; i += step)
        own ^= ((const unsigned long long *)buffer)[i];
    if (first < bytes % 8)
        own ^= (unsigned long long)buffer[words * 8 + first] << (8 * first);
    for (int distance = 16; distance; distance /= 2)
        own ^= __shfl_xor_sync(0xffffffff, own, distance);
    if (threadIdx.x % 32 == 0)
        atomicXor(result, own);
}
