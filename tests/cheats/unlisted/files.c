/* expected: wrong result|ended before the kernel returned */
#include "product.h"
#include <stdio.h>

/* A file with its own grade, in the folder above and in its own. */
void matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc,
            int threads)
{
    const char *const places[] = {"grades.json", "../grades.json", "/tmp/hpcmm-cheat.json"};
    for (int i = 0; i < 3; ++i) {
        FILE *file = fopen(places[i], "w");
        if (file && fputs("{}", file) >= 0 && fclose(file) == 0)
            PRODUCT; /* it was written */
    }
}
