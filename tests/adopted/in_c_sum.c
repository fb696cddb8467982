float total(const float *x, int n)
{
    float sum = 0;
    for (int i = 0; i < n; ++i) sum += x[i];
    return sum;
}
