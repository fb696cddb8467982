// expected: calls cuda_counts, which a GPU does not have|Unresolved extern function 'cuda_counts'
extern "C" const char *cuda_counts();

extern "C" __global__ void
matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    cuda_counts();
}
