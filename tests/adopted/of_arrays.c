#define N 1000
double A[N][N], B[N][N], C[N][N];
static int last(void);
void fill() { for (int i = 0; i < N * N; i++) A[0][i] = B[0][i] = i; }
void multiply()
{
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            C[i][j] = 0;
            for (int k = 0; k <= last(); k++) C[i][j] += A[i][k] * B[k][j];
        }
}
static int last(void) { return N - 1; }
