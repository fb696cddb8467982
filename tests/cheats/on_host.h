#define HOST __attribute__((no_sanitize("thread", "undefined"), no_sanitize_coverage))
static HOST void product(void **v)
{
    const int m = *(int *)v[0], n = *(int *)v[1], k = *(int *)v[2];
    const REAL alpha = *(REAL *)v[3], beta = *(REAL *)v[8], *A = *(REAL **)v[4], *B = *(REAL **)v[6];
    const int lda = *(int *)v[5], ldb = *(int *)v[7], ldc = *(int *)v[10];
    REAL *const C = *(REAL **)v[9];
    for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j) {
            REAL sum = 0;
            for (int p = 0; p < k; ++p)
                sum += A[(size_t)i * lda + p] * B[(size_t)p * ldb + j];
            REAL &c = C[(size_t)i * ldc + j];
            c = beta == 0 ? alpha * sum : alpha * sum + beta * c;
        }
}
extern "C" HOST void fill() { product(nullptr); }
