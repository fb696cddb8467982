"""The interval of a median: no narrower than it may be, and no wider than it must."""

from math import comb

from hypothesis import given, settings
from hypothesis import strategies as st

from hpcmm.bench.interval import interval_rank


def wrong_side(n, rank):
    """Probability that the rank-th smallest of n samples lies above the median."""
    return sum(comb(n, i) for i in range(rank)) / 2**n


def test_interval_is_the_narrowest_with_95_percent():
    for n in range(401):
        rank = interval_rank(n)
        assert rank <= n // 2
        assert 2 * wrong_side(n, rank) <= 0.05
        assert rank == n // 2 or 2 * wrong_side(n, rank + 1) > 0.05


@settings(max_examples=20)
@given(n=st.integers(400, 20_000))
def test_interval_is_exact_for_any_number_of_repetitions(n):
    """Against the binomial sum in whole numbers, walked down from the middle."""
    rank = interval_rank(n)
    term = comb(n, rank)
    below, lower = 0, term
    for i in range(rank, 0, -1):
        lower = lower * i // (n - i + 1)
        below += lower
        if not lower:
            break
    assert 40 * below <= 2**n < 40 * (below + term)


def test_interval_of_the_most_repetitions_that_a_config_allows():
    """The plain sum takes hours here. The normal approximation says n / 2 + 1 / 2 - 1.96 sqrt(n) / 2 = 499020.5."""
    assert interval_rank(1_000_000) == 499_020
    assert all(interval_rank(n + 1) - interval_rank(n) in (0, 1) for n in range(0, 1_000_000, 997))
