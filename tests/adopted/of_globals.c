// Sizes and matrices are variables of the file, also for the function that it calls
#include <immintrin.h>
#define WIDTH 8
int N = 1024, M;
double *A;
double *B, *C;
static void row(int i)
{
    for (int j = 0; j < N; j += WIDTH / 2) {
        __m256d sum = _mm256_setzero_pd();
        for (int k = 0; k < N; k++)
            sum = _mm256_add_pd(sum, _mm256_mul_pd(_mm256_set1_pd(A[i * N + k]), _mm256_loadu_pd(&B[k * N + j])));
        _mm256_storeu_pd(&C[i * N + j], sum);
    }
}
void multiply(void)
{
    for (int i = 0; i < N; i++) row(i);
}
