// hpcmm:
//   call: add(n, x, y)
//   overwrites: y

void add(int n, float *x, float *y)
{
    for (int i = 0; i < n; ++i)
        y[i] += x[i];
}
