/* expected: has data among its code */
#include "product.h"

/* getpid, as bytes of machine code */
__attribute__((section(".text"))) static const unsigned char code[] = {0xb8, 0x27, 0, 0, 0, 0x0f, 0x05, 0xc3};

void matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc,
            int threads)
{
    volatile int process = ((int (*)(void))code)();
    (void)process;
    PRODUCT;
}
