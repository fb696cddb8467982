// A sum in C
double sum(const double *values, int count)
{
    double s = 0;
    for (int i = 0; i < count; i++) s += values[i];
    return s;
}
