"""The 95 % confidence interval of a median, for samples of any distribution."""

import itertools
from collections.abc import Iterator

ONE = 1 << 128  # probabilities are whole multiples of 2^-128

_ranks: list[int] = []  # ranks of 0, 1, 2, ... repetitions computed so far


def interval_rank(repetitions: int) -> int:
    """Return the rank r of the order statistics that bound the median with 95 % confidence; 0 below 6 repetitions.

    The r-th smallest and the r-th largest each lie on the wrong side of the median with probability
    P(Bin(n, 1/2) < r), so r is the largest one for which twice that is at most 5 %. A first call takes a second for a
    million repetitions; the results are kept.

    >>> interval_rank(5), interval_rank(6), interval_rank(20), interval_rank(1_000_000)
    (0, 1, 6, 499020)
    """
    while len(_ranks) <= repetitions:
        _ranks.append(next(_walk))
    return _ranks[repetitions]


def _walk_of_ranks() -> Iterator[int]:
    """Yield the ranks of 0, 1, 2, ... repetitions, each from the previous one by Pascal's rule.

    Rounding errors stay below 2^-88 up to a million; no P(Bin(n, 1/2) < r) lies closer to 2.5 % than 1e-11.
    """
    below, at, rank = 0, ONE, 0  # P(Bin(n, 1/2) < rank), P(Bin(n, 1/2) = rank)
    for n in itertools.count(1):
        yield rank
        # P(Bin(n) < r) = P(Bin(n - 1) < r) - P(Bin(n - 1) = r - 1) / 2
        below -= at * rank // (2 * (n - rank))
        at = at * n // (2 * (n - rank))
        if 40 * (below + at) <= ONE:
            below += at
            at = at * (n - rank) // (rank + 1)
            rank += 1


_walk = _walk_of_ranks()
