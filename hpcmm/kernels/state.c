/* The state of the floating-point unit, which a function has to leave as it was (System V ABI), on all threads. */
#include <fenv.h>
#include <float.h>

static int changed(void)
{
    volatile double least = DBL_MIN, subnormal = DBL_TRUE_MIN;
    return (fegetround() != FE_TONEAREST) | (least / 2 == 0 || subnormal == 0) << 1;
}

/* Restores the default: rounding to nearest, with subnormal numbers. Returns the sum of 1 if the rounding was changed
   and of 2 if subnormal numbers were flushed to zero. */
int restore(int threads)
{
    int found = 0;
#pragma omp parallel num_threads(threads) reduction(| : found)
    {
        found = changed();
        if (found)
            fesetenv(FE_DFL_ENV);
    }
    return found;
}
