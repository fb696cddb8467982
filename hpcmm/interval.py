"""How well repetitions tell a median: an interval that assumes nothing about their distribution."""

from functools import cache


@cache
def interval_rank(repetitions: int) -> int:
    """Rank r of the order statistics that hold the median of any distribution with 95 % confidence.

    The r-th smallest and the r-th largest of the repetitions are the ends of the interval. Each lies
    on the wrong side of the median with probability P(Bin(n, 1/2) < r), so r is the largest one for
    which twice that is at most 5 %; 0 if there is none, below 6 repetitions.

    >>> interval_rank(5), interval_rank(6), interval_rank(20)
    (0, 1, 6)
    """
    rank, term = 0, 1
    below = term
    while 40 * below <= 2**repetitions:
        term = term * (repetitions - rank) // (rank + 1)
        rank += 1
        below += term
    return rank
