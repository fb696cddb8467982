// Checksum of a buffer, as checksum.c: the sum of a hash of each 64-bit word and its position. The reductions of CuPy
// take seconds to compile, once for each block size.

__device__ static unsigned long long hash(unsigned long long word, unsigned long long position)
{
    unsigned long long x = word + (position + 1) * 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

extern "C" __global__ void checksum(const unsigned char *buffer, unsigned long long bytes, unsigned long long *result)
{
    const unsigned long long words = bytes / 8, step = (unsigned long long)gridDim.x * blockDim.x;
    const unsigned long long first = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    unsigned long long own = 0;
    for (unsigned long long i = first; i < words; i += step)
        own += hash(((const unsigned long long *)buffer)[i], i);
    if (first == 0 && bytes % 8) {
        unsigned long long last = 0;
        for (unsigned i = 0; i < bytes % 8; i++)
            last |= (unsigned long long)buffer[words * 8 + i] << (8 * i);
        own += hash(last, words);
    }
    for (int distance = 16; distance; distance /= 2)
        own += __shfl_xor_sync(0xffffffff, own, distance);
    if (threadIdx.x % 32 == 0)
        atomicAdd(result, own);
}
