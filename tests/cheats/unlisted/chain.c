/* expected: starts or reaches another process */
#include "product.h"
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* A process that is another one, in another session, before a signal reaches it. */
void matmul(int m, int n, int k, REAL alpha, const REAL *A, int lda, const REAL *B, int ldb, REAL beta, REAL *C, int ldc,
            int threads)
{
    static int started;
    if (!started++ && !fork()) {
        signal(SIGCHLD, SIG_IGN);
        for (;;) {
            if (fork())
                _exit(0);
            setsid();
        }
    }
    wait(0);
    PRODUCT;
}
