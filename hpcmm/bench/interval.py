"""The 95 % confidence interval of a median, for samples of any distribution."""

import math
from statistics import NormalDist

Z = NormalDist().inv_cdf(0.975)


def interval_rank(repetitions: int) -> int:
    """Return the rank r of the order statistics that bound the median with 95 % confidence; 0 below 6 repetitions.

    The r-th smallest and the r-th largest each lie on the wrong side of the median with probability
    P(Bin(n, 1/2) < r), so r is the largest one for which twice that is at most 5 %. The normal approximation with one
    term of the expansion of Cornish and Fisher gives it exactly up to a million repetitions.

    >>> interval_rank(5), interval_rank(6), interval_rank(20), interval_rank(1_000_000)
    (0, 1, 6, 499020)
    """
    n = max(1, repetitions)
    return max(0, int(n / 2 + 0.5 - Z * math.sqrt(n) / 2 * (1 - (Z * Z - 1) / 12 / n)))
