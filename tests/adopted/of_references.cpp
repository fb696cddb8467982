typedef float *Matrix;
void product(Matrix A, const float *B, float *&C, int m, int &n, const int &k)
{
    for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j) {
            C[i * n + j] = 0;
            for (int p = 0; p < k; ++p) C[i * n + j] += A[i * k + p] * B[p * n + j];
        }
}
