// For one block: the length is that of the block
#define LENGTH 96
__device__ void one(const int *a, const int *b, int *c, int t) { if (t < LENGTH) c[t] = a[t] + b[t]; }
__global__ void add(const int *a, const int *b, int *c) { one(a, b, c, threadIdx.x); }
int main() { add<<<1, LENGTH>>>(a, b, c); }
