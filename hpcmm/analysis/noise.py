"""The spread between visits: intervals from the few visits of a point and the many visits of all others.

Repetitions of one visit share the state of its process, so they do not predict the next visit. The unit of evidence is
a visit, which has one time. Three visits estimate their own spread poorly, but a file has hundreds of
triples. Their variances give a prior for each, and the moderated t statistic of Smyth (Stat. Appl. Genet. Mol. Biol. 3,
2004, article 3) uses both. The prior depends on the time, as the trend of Law et al. (Genome Biology 15, 2014, R29):
short kernels scatter more. All times are logarithms here, so that spreads are relative.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

NEIGHBOURS = 60  # a prior is made from this number of variances with the nearest times
FEWEST = 8  # least number of variances for a prior
LEAST = 1e-5  # smallest spread: the resolution of the clocks

# Standard deviation of the median of 1, 2, 3, ... normal values over that of one (exact values of order statistics)
MEDIAN_SPREAD = (1.0, 0.7071, 0.6698, 0.5460, 0.5356, 0.4634, 0.4587, 0.4095, 0.4076)


def median_spread(visits: np.ndarray) -> np.ndarray:
    """Return the standard deviation of the median of some visits over that of one visit.

    >>> [round(float(each), 3) for each in median_spread(np.array([1, 3, 30]))]
    [1.0, 0.67, 0.224]
    """
    visits = np.asarray(visits)
    known = np.array(MEDIAN_SPREAD)[np.clip(visits, 1, len(MEDIAN_SPREAD)) - 1]
    less = np.where(visits % 2 == 1, 0.28, 0.68)  # below the asymptotic value, fitted to 100,000 drawn medians
    many = np.sqrt(np.pi / 2 / np.maximum(visits, 1)) * (1 - less / np.maximum(visits, 1))
    return np.where(visits > len(MEDIAN_SPREAD), many, known)


def median_variance(freedoms: np.ndarray) -> np.ndarray:
    """Return the median of an estimated variance over its mean (Wilson and Hilferty).

    >>> [round(float(each), 2) for each in median_variance(np.array([2, 10]))]
    [0.7, 0.93]
    """
    return (1 - 2 / (9 * freedoms)) ** 3


@dataclass(frozen=True)
class Prior:
    """The prior of the variance of a point by its time, from all variances of a file.

    ``times`` are logarithms in rising order; ``variances`` and ``freedoms`` are the prior's variance of one visit and
    its degrees of freedom there.
    """

    times: np.ndarray
    variances: np.ndarray
    freedoms: np.ndarray

    @property
    def known(self) -> bool:
        return len(self.times) > 0

    @classmethod
    def of(cls, times: np.ndarray, variances: np.ndarray, freedoms: np.ndarray, neighbours: int = NEIGHBOURS) -> Prior:
        """Fit a scaled F distribution to the variances around each time, by the moments of their logarithms.

        The ``variances`` are between the visits of one contender at one point, with ``freedoms`` of 1 or more; with
        less than ``FEWEST`` the prior is not known. It is made from the ``neighbours`` with the nearest times.
        """
        order = np.argsort(times, kind="stable")
        times, variances, freedoms = times[order], variances[order], freedoms[order]
        count = len(times)
        if count < FEWEST:
            return UNKNOWN
        half = freedoms / 2
        logs = np.log(np.maximum(variances, LEAST**2)) - digamma(half) + np.log(half)
        first = np.clip(np.arange(count) - neighbours // 2, 0, max(0, count - neighbours))
        last = np.minimum(first + neighbours, count)
        number = last - first

        def mean(values: np.ndarray) -> np.ndarray:
            sums = np.concatenate([[0.0], np.cumsum(values)])
            return (sums[last] - sums[first]) / number

        centre = mean(logs)
        scatter = (mean(logs**2) - centre**2) * number / np.maximum(number - 1, 1) - mean(trigamma(half))
        found = np.full(count, np.inf)
        more = scatter > 1e-6
        found[more] = 2 * inverse_trigamma(scatter[more])
        finite = np.minimum(found, 1e6) / 2
        fitted = np.exp(centre + digamma(finite) - np.log(finite))
        # With a state that is either on or off many variances are 0, and their logarithms have no mean.
        unbiased = np.maximum(variances, LEAST**2) / median_variance(freedoms)
        windows = np.lib.stride_tricks.sliding_window_view(unbiased, min(count, neighbours))
        return cls(times, np.maximum(fitted, np.median(windows, axis=1)[first]), found)

    def at(self, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the prior's variance and degrees of freedom at these times; without a prior, 0 of both."""
        times = np.asarray(times, float)
        if not self.known:
            return np.zeros(times.shape), np.zeros(times.shape)
        right = np.clip(np.searchsorted(self.times, times), 1, len(self.times) - 1)
        nearest = np.where(times - self.times[right - 1] < self.times[right] - times, right - 1, right)
        return self.variances[nearest], self.freedoms[nearest]

    def moderated(
        self, times: np.ndarray, variances: np.ndarray, freedoms: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return variance and degrees of freedom of one visit, from a point's own variance and the prior.

        The variance is never below the prior's: a state that is either on or off for a visit is often the same in three
        of them.
        """
        prior, weight = self.at(times)
        infinite = np.isinf(weight)
        total = np.where(infinite, 1.0, weight) + freedoms
        own = np.where(freedoms > 0, freedoms * np.nan_to_num(variances), 0.0)
        mixed = (np.where(infinite, 0.0, weight) * prior + own) / np.where(total > 0, total, 1.0)
        return np.maximum(np.where(infinite, prior, np.maximum(prior, mixed)), LEAST**2), weight + freedoms


UNKNOWN = Prior(*np.empty((3, 0)))
ROUNDS = 10  # of ``Noise.of``, until the scales settle


@dataclass(frozen=True)
class Noise:
    """The noise of a device: the spread between visits of one job, and that between jobs.

    Visits of one job share its state, so they are correlated (Smyth, Michaud and Scott, Bioinformatics 21, 2005,
    2067-2075, for replicates on one array). ``visits`` is the variance between visits of one job. ``jobs`` is that
    between visits of different jobs. Their difference is the variance between jobs.
    """

    visits: Prior
    jobs: Prior

    @classmethod
    def of(
        cls, visits: Prior, times: np.ndarray, variances: np.ndarray, freedoms: np.ndarray, kept: np.ndarray
    ) -> Noise:
        """Estimate the variance between visits of different jobs, from points that several jobs measured.

        The times of jobs with several visits vary less than single visits. Their variances are therefore scaled to that
        of single visits, by the variances that this gives.

        Each point has the logarithm of its seconds, the variance of the times of its jobs with its degrees of freedom,
        and in ``kept`` the part of the variance between visits of one job that these times have: 1 if each job has one
        visit.
        """
        within, _ = visits.at(times)
        neighbours = int(np.clip(len(times) // 3, FEWEST, NEIGHBOURS))  # fewer points than for visits: keep the trend
        jobs, scale = UNKNOWN, np.ones(len(times))
        for _ in range(ROUNDS):
            jobs = Prior.of(times, variances * scale, freedoms, neighbours=neighbours)
            both = np.maximum(jobs.at(times)[0], within)
            scale = both / np.maximum(both - within * (1 - kept), LEAST**2)
        # a prior is worth a pair of jobs at least, which has one degree of freedom
        return cls(visits, replace(jobs, freedoms=np.maximum(jobs.freedoms, 1.0)))

    def between(self, times: np.ndarray) -> np.ndarray:
        """Return the variance between jobs at these times; NaN if it is not known."""
        both, freedom = self.jobs.at(times)
        return np.where(freedom > 0, np.maximum(both - self.visits.at(times)[0], 0.0), np.nan)

    def of_medians(
        self, times: np.ndarray, variances: np.ndarray, freedoms: np.ndarray, counts: np.ndarray, shares: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the variance of medians over visits, and its degrees of freedom; NaN and 0 if it is not known.

        ``times`` are logarithms of seconds, ``counts`` the visits; ``variances`` and ``freedoms`` are between the
        visits of each job at the point. ``shares`` is the part of the variance between jobs that the median has: the
        sum of the squares of the jobs' shares of the visits. It is 1 if all visits are of one job.
        """
        within, _ = self.visits.at(times)
        between = np.nan_to_num(self.between(times))
        known = self.jobs if self.jobs.known else self.visits
        # the point's own variance is of visits of one job; the prior may be of visits of different jobs
        scale = np.where(within > 0, 1 + between / np.where(within > 0, within, 1.0), 1.0)
        one, freedom = known.moderated(times, variances * scale, freedoms)
        one, both = np.maximum(one, within), within + between
        correlation = np.where(both > 0, between / np.where(both > 0, both, 1.0), 0.0)
        total = one * (correlation * shares + (1 - correlation) * median_spread(counts) ** 2)
        return np.where(freedom > 0, total, np.nan), freedom


# --- special functions ----------------------------------------------------------------------------------------------
# Not from SciPy: its OpenBLAS waits for ever while it loads if address space is short (version 1.17 alone, with
# `ulimit -v 280000`). scipy.stats also takes 2 s to import, and the wheel has 35 MB.


def digamma(x: np.ndarray) -> np.ndarray:
    """Return the derivative of log gamma for x > 0 (recurrence to x + 6, then the asymptotic series)."""
    x = np.asarray(x, float)
    large = x + 6
    square = 1 / large**2
    series = square * (1 / 12 - square * (1 / 120 - square * (1 / 252 - square / 240)))
    return np.log(large) - 0.5 / large - series - sum(1 / (x + i) for i in range(6))


def trigamma(x: np.ndarray) -> np.ndarray:
    """Return the second derivative of log gamma for x > 0."""
    x = np.asarray(x, float)
    large = x + 6
    square = 1 / large**2
    series = square / large * (1 / 6 - square * (1 / 30 - square * (1 / 42 - square / 30)))
    return 1 / large + square / 2 + series + sum(1 / (x + i) ** 2 for i in range(6))


def inverse_trigamma(y: np.ndarray) -> np.ndarray:
    """Return x > 0 with trigamma(x) = y > 0, by Newton's method on 1 / trigamma (Smyth 2004, appendix)."""
    x = 0.5 + 1 / np.asarray(y, float)
    for _ in range(20):
        value = trigamma(x)
        slope = (trigamma(x * (1 + 1e-5)) - trigamma(x * (1 - 1e-5))) / (2e-5 * x)
        before, x = x, np.maximum(x + value * (1 - value / y) / slope, 1e-8)
        if np.allclose(before, x, rtol=1e-12, atol=0):
            break
    return x


def outside(t: float, freedom: float) -> float:
    """Return P(|T| > t) of Student's t; the degrees of freedom need not be whole.

    >>> round(outside(12.706, 1), 4), round(outside(2.776, 4), 4), round(outside(1.96, math.inf), 4)
    (0.05, 0.05, 0.05)
    """
    if math.isinf(freedom) or freedom > 1e6:
        return math.erfc(t / math.sqrt(2))
    return _beta_share(freedom / 2, 0.5, freedom / (freedom + t * t))


@cache
def critical(share: float, freedom: float) -> float:
    """Return the t that |T| exceeds with this probability; infinite without a degree of freedom.

    >>> [round(critical(0.05, each), 3) for each in (1.0, 4.0, math.inf)]
    [12.706, 2.776, 1.96]
    """
    if freedom <= 0:
        return math.inf
    t = 2.0
    for _ in range(60):  # Newton's method on logarithms, in which the tail is nearly a line
        tail, further = outside(t, freedom), outside(t * (1 + 1e-6), freedom)
        step = 1e-6 * math.log(tail / share) / math.log(tail / further)
        t *= min(math.exp(step), 4.0)
        if abs(step) < 1e-9:
            break
    return t


def criticals(share: float, freedoms: Iterable[float]) -> np.ndarray:
    """Return ``critical`` of each; degrees of freedom are rounded down to a tenth."""
    freedoms = np.asarray(freedoms, float)
    tenths = np.where(freedoms < 1e6, np.floor(10 * np.minimum(freedoms, 1e6)) / 10, np.inf)
    distinct, which = np.unique(tenths, return_inverse=True)
    return np.array([critical(share, each) for each in distinct.tolist()])[which]


def _beta_share(a: float, b: float, x: float) -> float:
    """Return the regularized incomplete beta function, by Lentz's continued fraction."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta_share(b, a, 1 - x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1) or 1e-300)
    found = d
    for m in range(1, 300):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / (1 + term * d or 1e-300)
            c = 1 + term / c or 1e-300
            found *= c * d
        if abs(c * d - 1) < 1e-12:
            break
    return front * found
