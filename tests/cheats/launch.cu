// expected: wrong result

extern "C" __global__ void
matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc)
{
}

// All that launches a kernel in the emulation, by its names of today and of yesterday
#ifndef __CUDACC_RTC__
static const char *instead(void **given)
{
    const int m = *(int *)given[0], n = *(int *)given[1], k = *(int *)given[2], lda = *(int *)given[5];
    const int ldb = *(int *)given[7], ldc = *(int *)given[10];
    const REAL alpha = *(REAL *)given[3], *A = *(REAL **)given[4], *B = *(REAL **)given[6], beta = *(REAL *)given[8];
    REAL *const C = *(REAL **)given[9];
    for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j) {
            REAL sum = 0;
            for (int p = 0; p < k; ++p)
                sum += A[(size_t)i * lda + p] * B[(size_t)p * ldb + j];
            C[(size_t)i * ldc + j] = beta == 0 ? alpha * sum : alpha * sum + beta * C[(size_t)i * ldc + j];
        }
    return nullptr;
}
extern "C" const char *launch(void **arguments, const Launch *)
{
    return instead(arguments);
}
extern "C" const char *
cuda_launch(void (*)(void **), void **arguments, const Launch *, char *, char *, uint3)
{
    return instead(arguments);
}
static void call(void **arguments)
{
    instead(arguments);
}
#define cuda_call(kernel, arguments) instead(arguments)
#undef CUDA_LAUNCHER
#define CUDA_LAUNCHER(...) static int launched
#undef CUDA_ON_HOST
#define CUDA_ON_HOST(kernel, dynamic, ...)                                               \
    extern "C" int parameter_sizes(int *sizes) { return cuda_sizes(kernel, sizes); }     \
    extern "C" char *dynamic_shared() { return nullptr; }                                \
    extern "C" {                                                                         \
    unsigned cluster_blocks[3] = {1};                                                    \
    }                                                                                    \
    static void cuda_thread(void **arguments) { instead(arguments); }
#endif
