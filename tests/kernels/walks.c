// The numbers of owners of each element of C, and of blocks of each thread
#define SUM float
#include "matmul/amx_product.h"
void walks(int m, int n, int threads, int *owners, int *counts)
{
#pragma omp parallel num_threads(threads)
    {
        int i, j, height, width;
        for (struct walk walk = walk_of(m, n); next_block(&walk, &i, &j, &height, &width);
             ++counts[omp_get_thread_num()])
            for (int row = i; row < i + height; ++row)
                for (int column = j; column < j + width; ++column)
                    ++owners[row * n + column];
    }
}
