void product(const float *A, const float *B, float *C, int m, int n, int k)
{
    for (int i = 0; i < m; i += 16)
        for (int j = 0; j < n; j += 6)
            for (int y = i; y < i + 16; ++y)
                for (int x = j; x < j + 6; ++x) {
                    float sum = 0;
                    for (int p = 0; p < k; ++p) sum += A[y * k + p] * B[p * n + x];
                    C[y * n + x] = sum;
                }
}
