// hpcmm:
//   call: total(x, n)
//   overwrites: x

void total(float *a, int n)
{
    for (int step = 1; step < n; step *= 2)
        for (int i = 0; i + step < n; i += 2 * step)
            a[i] += a[i + step];
}
