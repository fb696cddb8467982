#include <stddef.h>
float total(const float *x, size_t n)
{
    float sum = 0;
    for (int i = 0; i < n; ++i)
        sum += x[i];
    return sum;
}
