// expected: calls system, which a GPU does not have|Unresolved extern function 'system'
extern "C" int system(const char *);

extern "C" __global__ void
matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
    system("true");
}
