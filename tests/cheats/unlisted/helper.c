/* expected: starts or reaches another process */
#include "product.h"
#include <sys/wait.h>
#include <unistd.h>

/* A process in a session of its own is not stopped with this one: it could compute while no clock runs. */
void matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc,
            int threads)
{
    static int started;
    if (!started++ && !fork()) {
        setsid();
        if (fork())
            _exit(0);
        for (;;)
            pause();
    }
    wait(0);
    PRODUCT;
}
