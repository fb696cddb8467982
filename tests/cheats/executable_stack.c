/* expected: needs an executable stack|does not compile */
#include "product.h"

/* The address of a nested function makes the stack executable, and so whatever a kernel writes there. */
static int apply(int (*function)(int), int value)
{
    return function(value);
}

void matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc,
            int threads)
{
    volatile int sum = 0;
    int add(int value)
    {
        return sum += value;
    }
    int (*volatile called)(int) = add;
    apply(called, m);
    PRODUCT;
}
