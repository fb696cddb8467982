"""The 95 % confidence interval of a median, for samples of any distribution, and when it is narrow enough to stop."""

import math
import statistics
from collections.abc import Sequence
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


def half_width(seconds: Sequence[float]) -> float:
    """Return the half-width of the 95 % interval of the median over the median; inf for fewer than 6 times."""
    rank = interval_rank(len(seconds))
    if rank == 0:
        return math.inf
    ordered = sorted(seconds)
    return (ordered[-rank] - ordered[rank - 1]) / 2 / statistics.median(ordered)


def settled(seconds: Sequence[float], beside: Sequence[float] | None, relative_interval: float) -> bool:
    """Whether the median, and its ratio to the median of the times ``beside`` it, are known to ``relative_interval``.

    The half-width of the ratio is the root of the sum of squares of both. A contender also
    stops once it adds at most half of the ratio's variance: repetitions of the other one then help more.
    """
    own = half_width(seconds)
    if beside is None:
        return own <= relative_interval
    return own <= relative_interval / math.sqrt(2) or math.hypot(own, half_width(beside)) <= relative_interval


def is_look(repetitions: int, least: int) -> bool:
    """Whether the stopping rule looks at the interval after so many repetitions.

    It looks first after ``least`` repetitions, and then each time their number has grown by a tenth. Each look sorts
    the times, and a rule that looks often stops early by chance.

    >>> [count for count in range(50) if is_look(count, 16)]
    [16, 17, 18, 19, 20, 22, 24, 26, 28, 30, 33, 36, 39, 42, 46]
    """
    look = least
    while look < repetitions:
        look += max(1, look // 10)
    return look == repetitions
