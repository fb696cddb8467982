#define N 16
__global__ void add(float A[N][N], const float B[N][N], float C[N][N])
{
    int i = FIRSTthreadIdx.x, j = SECONDthreadIdx.y;
    CHECK C[i][j] = A[i][j] + B[i][j];
}
