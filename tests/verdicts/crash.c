// hpcmm:
//   dtypes: [float32]
void matmul(int m, int n, int k, float alpha, const float *A, int lda, const float *B, int ldb, float beta, float *C,
            int ldc, int threads)
{
    float *const none = 0;
    if (MISTAKE == 1) C[1l << 40] = alpha;
    if (MISTAKE == 2) C[0] = m / (n - n);
    if (MISTAKE == 3) *none = alpha;
}
