"""How far the times of healthy devices differ: within a visit, between visits, and between devices of a kind.

Times are logarithms here, so that differences are relative. Times scatter for three reasons: states that all ranks of a
visit share, states of a rank in a visit, and differences between devices of the same kind. Comparing within a visit
removes the first. The second is estimated from the visits of the peers. The third is estimated from the peers by median
and MAD, so that a slow device does not hide itself. A few peers estimate it poorly, so it has a prior, whose weight
falls with their number.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hpcmm.analysis import noise

NORMAL = 1.4826  # standard deviation of a normal distribution over its MAD
# ... for 2, 3, ... values (Croux and Rousseeuw, Computational Statistics 1, 1992), and in the limit n / (n - 0.8)
SMALL = (1.196, 1.495, 1.363, 1.206, 1.200, 1.140, 1.129, 1.107)
EFFICIENCY = 0.37  # of the MAD: degrees of freedom over those of the standard deviation
# Prior of the deviation of healthy devices. Four H200s had 0.2 % in float32, and up to 1.5 % in types that reach the
# limit of their power.
STEADY, VARYING = 0.005, 0.02
LONELY = 0.05  # ... of two, which do not show it, if they may vary
MANY = 32  # devices from which their own distribution shows its tail


def robust_variance(values: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the variance by the MAD of two or more values in the last dimension, and its degrees of freedom."""
    count = values.shape[-1]
    small = SMALL[count - 2] if count - 2 < len(SMALL) else count / (count - 0.8)
    mad = np.median(np.abs(values - np.median(values, axis=-1, keepdims=True)), axis=-1)
    return (NORMAL * small * mad) ** 2, EFFICIENCY * (count - 1)


@dataclass(frozen=True)
class Times:
    """One measurement: the logarithm of the seconds of each rank (rows) in each visit (columns).

    ``sources`` has the rank that each rank received from, for a measurement of links. ``together``: whether all ranks
    wait for each other, so that their times do not show which of them is slow. ``scatter`` has the variance of the
    repetitions of each rank, for a single visit, which shows no spread between visits; NaN for a single repetition.
    ``group`` is a name that measurements share if they differ in size only. ``steady``: whether healthy devices differ
    by ``STEADY`` only, as GPUs below the limit of their power do. ``accelerated``: whether they are accelerators.
    """

    name: str
    logs: np.ndarray
    sources: tuple[int, ...] = ()
    together: bool = False
    scatter: tuple[float, ...] = ()
    group: str = ""
    steady: bool = False
    accelerated: bool = False

    @property
    def single(self) -> bool:
        """Whether a rank has one time only."""
        return bool(np.isnan(self.scatter).any())

    @property
    def sweep(self) -> str:
        return self.name.partition(":")[0]

    @property
    def kind(self) -> str:
        """A name that the measurements of a sweep share if their healthy devices differ as much."""
        return f"{self.sweep}: {'steady' if self.steady else 'varying'}"

    @property
    def healthy(self) -> float:
        """Assumed deviation of healthy devices."""
        return STEADY if self.steady else LONELY if len(self.logs) == 2 else VARYING

    @property
    def comparable(self) -> bool:
        """Whether the times show which rank is slow: not if ranks wait for each other, or have one time each."""
        return not self.together and not self.single

    @functools.cached_property
    def centre(self) -> np.ndarray:
        """The time of each rank: the median over visits of its difference from all ranks, and their level."""
        level = np.median(self.logs, axis=0)
        return np.median(self.logs - level, axis=1) + np.median(level)

    @functools.cached_property
    def others(self) -> np.ndarray:
        """The peers of each rank (rows); one row for all of many devices, which one hardly changes."""
        count = len(self.logs)
        if count == 1 or count >= MANY:
            return np.arange(count)[None]
        return np.array([np.delete(np.arange(count), rank) for rank in range(count)])

    @functools.cached_property
    def level(self) -> np.ndarray:
        """The median of the peers of each rank in each visit."""
        return np.median(self.logs[self.others], axis=1)

    @functools.cached_property
    def behind(self) -> np.ndarray:
        """The time of each rank over the median of its peers: the median over visits, of two visits the smaller one."""
        return np.sort(self.logs - self.level, axis=1)[:, (self.logs.shape[1] - 1) // 2]

    def spread(self, shared: bool, prior: tuple[float, float]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the variance of the time of each rank if it is healthy, estimated from its peers alone.

        With it come its degrees of freedom, and the part of the variance that visits reduce. ``shared``: whether the
        state that all ranks of a visit share drops out of the comparison. With one peer it cannot be separated.
        ``prior``: variance between healthy devices, and its degrees of freedom.
        """
        peers, visits, within, freedom = self.logs[self.others], self.logs.shape[1], 0.0, math.inf
        count, inner = peers.shape[1], peers - self.level[:, None]
        if visits > 1:
            levels = shared and count > 1  # the level of a visit takes a degree of freedom
            variances = np.var(inner if levels else peers, axis=2, ddof=1) * count / (count - levels)
            if shared and count == 1:  # the difference of two devices is free of their shared state
                variances = np.minimum(variances, np.var(self.logs - self.level, axis=1, ddof=1)[:, None] / 2)
            within = np.median(variances, axis=1) / (noise.median_variance(visits - 1) if count > 2 else 1.0)
            within = within * float(noise.median_spread(np.array(visits))) ** 2
            freedom = (count - levels) * (visits - 1.0)
        elif self.scatter:
            within, freedom = np.median(np.array(self.scatter)[self.others], axis=1), float(count)
        between, number = robust_variance(np.median(inner, axis=2)) if count > 1 else (0.0, 0.0)
        # the prior and the variance within devices, with the degrees of freedom of a sum (Welch and Satterthwaite)
        healthy, weight = prior
        expected = healthy + within
        weight = expected**2 / (healthy**2 / weight + within**2 / freedom)
        variance = np.maximum((weight * expected + number * between) / (weight + number), within)
        return np.broadcast_arrays(variance, weight + number, within, np.empty(len(self.logs)))[:3]


def groups_of(measured: Sequence[Times]) -> list[Times]:
    """Join the measurements that differ in size only, and those of a sweep that are as steady, as visits of one."""
    groups: dict[str, list[Times]] = {}
    for times in measured:
        if times.comparable and times.group:
            groups.setdefault(times.group, []).append(times)
            groups.setdefault(times.kind, []).append(times)
    joined = []
    for name, alike in groups.items():
        if len(alike) > 1 and (name != alike[0].kind or len({times.group for times in alike}) > 1):
            # the visits side by side, relative to the level of each measurement
            levels = [float(np.median(times.logs)) for times in alike]
            logs = np.hstack([times.logs - level for times, level in zip(alike, levels, strict=True)]) + np.mean(levels)
            joined.append(dataclasses.replace(alike[0], name=name, logs=logs, scatter=()))
    return joined
