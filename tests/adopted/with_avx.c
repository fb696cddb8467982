// Intrinsics, which need an option of the compiler
#include <immintrin.h>
void multiply(const float *A, const float *B, float *C, int M, int N, int K)
{
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j += 8) {
            __m256 c = _mm256_setzero_ps();
            for (int k = 0; k < K; k++)
                c = _mm256_fmadd_ps(_mm256_set1_ps(A[i * K + k]), _mm256_loadu_ps(&B[k * N + j]), c);
            _mm256_storeu_ps(&C[i * N + j], c);
        }
}
