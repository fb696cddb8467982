void product(int n, const double *A, const double *B, double *C)
{
    for (int i = 0; i < n; i += 10)
        for (int j = 0; j < n; ++j)
            for (int e = i; e < i + 10; ++e) {
                C[e * n + j] = 0;
                for (int k = 0; k < n; ++k) C[e * n + j] += A[e * n + k] * B[k * n + j];
            }
}
