/* expected: took longer than 1 s */
#include "product.h"
#include <signal.h>
#include <unistd.h>

/* All signals that can be ignored are, so that the limit of the time cannot end it. */
void matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc,
            int threads)
{
    for (int i = 1; i < 65; ++i)
        signal(i, SIG_IGN);
    for (;;)
        pause();
}
