// The largest element, in C++. MISTAKE selects what is wrong with it; 0: nothing.
// hpcmm:
//   constants: {MISTAKE: 0}

double largest(const double *v, int n)
{
    double best = MISTAKE == 2 ? -1 : v[0];
#if MISTAKE == 1  // it is shared
#pragma omp parallel for num_threads(4)
#endif
    for (int i = 0; i < n; ++i)
        if (v[i] > best)
            best = v[i];
    return best;
}
