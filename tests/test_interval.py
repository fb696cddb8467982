"""The interval of a median: no narrower than it may be, and no wider than it must."""

from math import comb

from hpcmm.interval import interval_rank


def wrong_side(n, rank):
    """Probability that the rank-th smallest of n samples lies above the median."""
    return sum(comb(n, i) for i in range(rank)) / 2**n


def test_interval_is_the_narrowest_with_95_percent():
    for n in range(401):
        rank = interval_rank(n)
        assert rank <= n // 2
        assert 2 * wrong_side(n, rank) <= 0.05
        assert rank == n // 2 or 2 * wrong_side(n, rank + 1) > 0.05


def test_interval_needs_six_repetitions():
    assert [interval_rank(n) for n in (0, 1, 5, 6, 8, 9, 20, 100)] == [0, 0, 0, 1, 1, 2, 6, 40]
