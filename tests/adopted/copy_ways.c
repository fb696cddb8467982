void copy_kernel(int *a, int *b, int count, int direction)
{
    for (int i = 0; i < count; ++i)
        if (direction == 0) b[i] = a[i]; else a[i] = b[i];
}
