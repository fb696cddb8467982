void product(int n, int block_size, const float *A, const float *B, float *C)
{
    for (int i = 0; i < n; i += block_size)
        for (int e = i; e < END; ++e)
            for (int j = 0; j < n; ++j) {
                C[e * n + j] = 0;
                for (int k = 0; k < n; ++k) C[e * n + j] += A[e * n + k] * B[k * n + j];
            }
}
