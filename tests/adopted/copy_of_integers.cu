// A copy beside a kernel of no operation
#define AT (blockIdx.x * 64 + threadIdx.x)
__global__ void twice(const int *x, int *y, int n) { unsigned i = AT; if (i < n) y[i] = 2 * x[i]; }
__global__ void duplicate(const int *x, int *y, int n) { unsigned i = AT; if (i < n) y[i] = x[i]; }
int main() { duplicate<<<4, 64>>>(x, y, 200); twice<<<4, 64>>>(x, y, 200); }
