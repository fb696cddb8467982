#include <stdlib.h>
float *product(const float *A, const float *B, int m, int n, int k)
{
    float *C = (float *)malloc(m * n * sizeof(float));
    for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j) {
            C[i * n + j] = 0;
            for (int e = 0; e < k; ++e) C[i * n + j] += A[i * k + e] * B[e * n + j];
        }
    return C;
}
