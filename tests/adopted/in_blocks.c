// The product is in a function that it calls, for blocks of 32
#define SIDE 32
static void block(int n, int i0, int j0, int k0, const int *A, const int *B, int *C)
{
    for (int i = i0; i < i0 + SIDE; ++i)
        for (int j = j0; j < j0 + SIDE; ++j)
            for (int k = k0; k < k0 + SIDE; ++k) C[i * n + j] += A[i * n + k] * B[k * n + j];
}
void product(int n, const int *A, const int *B, int *C)
{
    for (int i = 0; i < n; i += SIDE)
        for (int j = 0; j < n; j += SIDE)
            for (int k = 0; k < n; k += SIDE) block(n, i, j, k, A, B, C);
}
