// hpcmm:
//   call: add(n, x, y)
//   overwrites: y

void add(int n, float *x, float *y)
{
    #pragma omp parallel for
    for (int i = 0; i < n; ++i)
        y[i] = x[i] + y[i];
}
