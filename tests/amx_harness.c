#include <math.h>
#include <stdio.h>
#include <stdlib.h>
const char *path(void);
void matmul(int, int, int, REAL, const REAL *, int, const REAL *, int, REAL, REAL *, int, int);
int main(void)
{
    const int shapes[][3] = {{1, 1, 1}, {7, 9, 5}, {33, 70, 41}, {61, 130, 800}, {9, 200, 1600}};
    for (int s = 0; s < 5; ++s) {
        const int m = shapes[s][0], n = shapes[s][1], k = shapes[s][2];
        REAL *a = malloc(sizeof(REAL) * m * k), *b = malloc(sizeof(REAL) * k * n), *c = malloc(sizeof(REAL) * m * n);
        for (int i = 0; i < m * k; ++i)
            a[i] = i % 7 - 3;
        for (int i = 0; i < k * n; ++i)
            b[i] = i % 5 - 2;
        for (int i = 0; i < m * n; ++i)
            c[i] = i % 3;
        matmul(m, n, k, 2, a, k, b, n, 3, c, n, 2);
        for (int i = 0; i < m; ++i)
            for (int j = 0; j < n; ++j) {
                double sum = 3 * ((i * n + j) % 3);
                for (int p = 0; p < k; ++p)
                    sum += 2. * a[i * k + p] * b[p * n + j];
                if (sum != c[i * n + j])
                    return printf("%d x %d x %d: element %d %d\n", m, n, k, i, j), 1;
            }
    }
    puts(path());
    return 0;
}
