"""Which devices are slow: each measurement is compared alone, and together with the other sizes of its kind.

A device that is slow in all sizes is found by less than a fault of one size. From ``MANY`` devices on, their own
slow half shows the tail of healthy devices.
"""

import dataclasses
import functools
import math
import statistics
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from hpcmm.analysis import noise
from hpcmm.analysis.evidence import ALPHA, MARGIN
from hpcmm.analysis.health import FINDING, JUDGED, STANDARDS, Check, Subject
from hpcmm.analysis.peers import MANY, Times, groups_of, robust_variance
from hpcmm.system.text import percent

WEIGHT = 20.0  # of the prior, in degrees of freedom
BETWEEN_RUNS = 0.005  # further deviation of the times of a run from those of a reference
POWER = 1.645  # quantile: a slowdown by so many deviations above the threshold is named in 95 % of the checks
NOISY = 100.0  # a measurement that could show larger slowdowns only is reported as too noisy
MEDIAN = math.pi / 2  # variance of the median of many values over that of their mean
TOGETHER = 2 / 3  # part of the false alarms of joined measurements that is left to all of them together
UNASKED = 0.1  # part of the false alarms that is left to sweeps that need not show a slowdown, as those of CPUs
FAULTY = 40  # one of so many devices, the slowest, may be at fault
SKEWED = 0.45, 0.1  # prior of the skewness of healthy devices and its deviation: about exponential or lognormal(0.5)
SHOWN = 2.8  # deviation of the skewness that one value shows (simulated, for skewnesses of 0 to 0.8)
NORMAL = statistics.NormalDist()
SKEWNESSES = np.linspace(0.01, 2, 200)
MOST = 700.0  # logarithm that a float64 holds
SCATTER = "the visits scatter, so more of them would help"


def compared(
    subjects: Sequence[Subject],
    measured: Sequence[Times],
    broken: Sequence[str] = (),
    reference: Mapping[str, Any] | None = None,
    detect: Mapping[str, float] | None = None,
) -> Check:
    """Compare the devices in each measurement; ``detect`` has the slowdown that each sweep must be able to show."""
    detect = detect or {}
    comparison = Comparison(subjects, measured, reference or {}, detect)
    rows: list[dict[str, Any]] = []
    for against in STANDARDS if comparison.known else ("peers",):
        one, group = (
            {times.name: comparison.of(times, against, detect.get(times.sweep)) for times in some}
            for some in (measured, comparison.groups)
        )
        for times in measured:
            whole = (group.get(name, one[times.name]) for name in (times.group, times.kind))
            rows += map(_with_groups, one[times.name], *whole)
    findings = pd.DataFrame(rows, columns=list(FINDING)).astype(FINDING)
    robust = {times.name: robust_variance(times.centre) for times in measured if len(subjects) > 2}
    differ = {name: (float(variance), freedom) for name, (variance, freedom) in robust.items()}
    notes = [*comparison.notes(measured, reference is None), *_named_from(findings)]
    found = Check(tuple(subjects), findings, tuple(broken), (), spreads=differ)
    if sizes := [f"{sweep} {percent(size)}" for sweep, size in found.detectable.items() if size < NOISY]:
        notes.append(f"a slowdown of this size is named in 95 % of such checks: {', '.join(sizes)}")
    return dataclasses.replace(found, notes=tuple(notes), blind=_blind(found, detect))


class Comparison:
    """Devices, the times of a reference, empty if there is none, and how much healthy devices may differ."""

    def __init__(
        self,
        subjects: Sequence[Subject],
        measured: Sequence[Times],
        reference: Mapping[str, Any],
        asked: Container[str],
    ):
        self.subjects = subjects
        # shown: by measurement, how three or more devices of the reference differ: variance and degrees of freedom
        # known: by measurement, the seconds of the reference
        self.known, self.shown = dict(reference.get("seconds", {})), dict(reference.get("spreads", {}))
        self.groups = groups_of(measured)  # the measurements that differ in size only, together
        whole = [*measured, *self.groups]
        # By measurement, the variance between healthy devices, and its degrees of freedom
        self.priors = {times.name: tuple(self.shown.get(times.name, (times.healthy**2, WEIGHT))) for times in whole}
        joined = {times.name for times in self.groups}
        alone = [times for times in measured if times.comparable and times.group not in joined]
        standards = [name for name, used in {"peers": len(subjects) > 1, "reference": self.known}.items() if used]
        # By standard and measurement, the probability that a healthy device is called slow by chance
        self.shares = {  # a reference has single measurements only
            each: _shares(ALPHA / len(standards) / len(subjects), measured, joined if each == "peers" else (), asked)
            for each in standards
        }
        shapes = [times.behind for times in [*self.groups, *alone] if times.name != times.kind]
        self.skewness = _skewness(shapes) if len(subjects) >= MANY else 0.0

    def notes(self, measured: Sequence[Times], without_reference: bool) -> list[str]:
        """Return sentences about what cannot be compared."""
        notes, several = [], len(self.subjects) > 1
        if not several:
            without = "" if self.known else ", and there is no reference"
            notes.append(f"{self.subjects[0].name} has no peer in this run{without}")
        elif len(self.subjects) == 2 and not set(self.priors) <= set(self.shown):
            assumed = map(percent, sorted({times.healthy for times in measured if times.name not in self.shown}))
            unknown = "two devices do not show how far healthy devices differ"
            notes.append(f"{unknown}: a spread of {' or '.join(assumed)} is assumed")
        if several and (single := sum(times.single and not times.together for times in measured)):
            have = "measurement has" if single == 1 else "measurements have"
            notes.append(f"{single} {have} one repetition, so their spread is unknown: not compared with peers")
        if several and without_reference:
            notes.append("without a reference (--reference FILE), a slowdown of all devices is not found")
        new = sorted({times.name for times in measured} - set(self.known))
        return notes + ([f"not in the reference: {', '.join(new)}"] if self.known and new else [])

    def differences(self, times: Times, against: str) -> tuple[np.ndarray, float]:
        """Return how far each device is behind a standard, and the variance of that over the variance of a device.

        NaN for all devices, or a variance of 0, if they are not judged.
        """
        count = len(self.subjects)
        if against == "reference":
            reference = self.known.get(times.name)
            more = MEDIAN / 3 if self.shown else 1.0  # the reference is a median of devices
            return times.centre - (math.log(reference) if reference else math.nan), 0.0 if times.single else more
        if times.together or count == 1:
            return np.full(count, math.nan), 0.0
        return times.behind, 0.0 if times.single else 1.0 if count == 2 else MEDIAN / (count - 1)

    def of(self, times: Times, against: str, detect: float | None) -> list[dict[str, Any]]:
        """Compare all devices with a standard in one measurement, which must be able to show a slowdown."""
        differences, more = self.differences(times, against)
        judged: Iterable[tuple] = [(math.nan, False, *[math.inf] * 3)] * len(self.subjects)
        if more and np.isfinite(differences).all():
            judged = self._judged(times, against, differences, more, math.log1p(detect or 0.0))
        found = []
        for subject, difference, level, verdict in zip(self.subjects, differences, times.centre, judged, strict=True):
            source = self.subjects[times.sources[subject.rank]] if times.sources else None
            slowdown = math.expm1(difference) if math.isfinite(difference) else math.nan
            row = {"subject": subject, "measurement": times.name, "sweep": times.sweep, "source": source}
            row |= {"rank": subject.rank, "against": against, "seconds": math.exp(level), "slowdown": slowdown}
            found.append(row | dict(zip(JUDGED, verdict, strict=True)))
        return found

    def _judged(
        self, times: Times, against: str, differences: np.ndarray, more: float, permitted: float
    ) -> Iterator[tuple]:
        """Yield ``JUDGED`` of each device.

        ``more`` is as in ``differences``; ``permitted`` is the difference that must be found.
        """
        shared, many = against == "peers" and len(self.subjects) > 1, len(self.subjects) >= MANY
        (healthy, weight), share = self.priors[times.name], self.shares[against][times.name]
        prior = healthy + (BETWEEN_RUNS**2 if against == "reference" else 0.0), weight
        floor = math.log1p(MARGIN)
        if shared and many:
            floor = max(floor, _tail(differences, self.skewness, share))
        if many or not shared:
            permitted = 0.0
        variance, freedoms, within = times.spread(shared, prior)
        deviations = np.sqrt(variance * (1 + more))
        steady = np.sqrt(np.maximum(variance - within, 0.0) * (1 + more))
        critical = noise.criticals(2 * share, freedoms)
        # of few devices nobody knows the tail: the threshold is as high as the requested slowdown permits
        least = np.maximum(np.maximum(deviations * critical, permitted - POWER * deviations), floor)
        least = np.minimum(least, MOST)
        limit = np.maximum(floor, steady * critical) + POWER * steady  # after any number of visits
        sizes = np.expm1(np.minimum([least, least + POWER * deviations, limit], MOST))
        for difference, deviation, freedom, at, each in zip(
            differences, deviations, freedoms, least, sizes.T, strict=True
        ):
            p = noise.outside(abs(difference) / deviation, freedom) / 2
            yield (p if difference > 0 else 1 - p, bool(difference > at), *map(float, each))


def _shares(share: float, measured: Sequence[Times], joined: Container[str], asked: Container[str]) -> dict[str, float]:
    """Divide the probability of a false alarm among measurements; sweeps that must show a slowdown get most of it."""
    first, second = ([each for each in measured if (each.sweep in asked) is wanted] for wanted in (True, False))
    if not first or not second:
        return _divided(share, measured, joined)
    return _divided(share * (1 - UNASKED), first, joined) | _divided(share * UNASKED, second, joined)


def _divided(
    share: float,
    measured: Sequence[Times],
    joined: Container[str],
    levels: Sequence[str] = ("sweep", "kind", "group", "name"),
) -> dict[str, float]:
    """Divide the probability of a false alarm evenly among the parts of each level, after that of all together."""
    if not levels:
        return {measured[0].name: share}
    parts: dict[str, list[Times]] = {}
    for times in measured:
        parts.setdefault(getattr(times, levels[0]) or times.name, []).append(times)
    shares = {}
    for name, own in parts.items():
        part = share / len(parts)
        if name in joined:
            shares[name], part = part * TOGETHER, part * (1 - TOGETHER)
        shares |= _divided(part, own, joined, levels[1:])
    return shares


def _with_groups(finding: dict, group: dict, kind: dict) -> dict[str, Any]:
    """Return the finding of a size, which is slow, too, if all sizes together are, or all measurements of its kind."""
    better = {name: min(finding[name], group[name]) for name in ("least", "detectable", "limit")}
    slow = finding["slow"] or ((group["slow"] or kind["slow"]) and finding["slowdown"] > MARGIN)
    return finding | better | {"slow": slow}


def _scale(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean deviation from the median, and the squared ratio of the rms of that of the slow half to its mean.

    The slowest ``1 / FAULTY`` count as the slowest of the others.
    """
    values = np.sort(values, axis=-1)
    count = values.shape[-1]
    last = count - 1 - math.ceil(count / FAULTY)
    deviations = np.minimum(values, values[..., [last]]) - np.median(values, axis=-1, keepdims=True)
    slow = deviations[..., count // 2 :]
    return np.abs(deviations).mean(axis=-1), (slow**2).mean(axis=-1) / np.maximum(slow.mean(axis=-1), 1e-12) ** 2


@functools.cache
def _family() -> tuple[np.ndarray, np.ndarray]:
    """Return ``_scale`` of many devices of each of the ``SKEWNESSES``."""
    z = np.array([NORMAL.inv_cdf((each + 0.5) / 1000) for each in range(1000)])
    return _scale(np.expm1(SKEWNESSES[:, None] * z) / SKEWNESSES[:, None])


def _skewness(measured: Sequence[np.ndarray]) -> float:
    """Return the skewness g of the slow half of healthy devices, from their differences in all groups.

    They are slower than the median by ``(exp(g z) - 1) / g`` scales, where z is normal (Tukey's g distribution): 0 is
    normal, and positive values are lognormal. The fewer devices there are, the more a prior counts, and half a standard
    deviation is added.
    """
    prior = SKEWED[1] ** -2
    values = sum(map(len, measured)) / SHOWN**2
    ratio = np.mean([_scale(each)[1] for each in measured]) if measured else 0.0
    shown = np.interp(ratio, _family()[1], SKEWNESSES) if measured else 0.0
    return float((prior * SKEWED[0] + values * shown) / (prior + values) + (prior + values) ** -0.5 / 2)


def _tail(differences: np.ndarray, skewness: float, share: float) -> float:
    """Return the difference that a healthy device exceeds with this probability."""
    # the scale is that of both halves, which varies by less than that of the slow half alone
    scale = _scale(differences)[0] / np.interp(skewness, SKEWNESSES, _family()[0])
    return float(np.median(differences) + scale * math.expm1(-skewness * NORMAL.inv_cdf(share)) / skewness)


def _named_from(findings: pd.DataFrame) -> list[str]:
    """Return how slow a device must be to be named: by sweep, the median of the devices where it is smallest."""
    notes = []
    for standard, text in STANDARDS.items():
        compared = findings[(findings["against"] == standard) & np.isfinite(findings["least"])]
        medians = 1 + compared.groupby(["sweep", "measurement"], sort=False)["least"].median()
        least = medians.groupby("sweep", sort=False).min()
        shown = [f"{sweep} {factor:.3g}" for sweep, factor in least.items() if factor < NOISY]
        noisy = [sweep for sweep, factor in least.items() if factor >= NOISY]
        if shown:
            least = f"a device is called slow if it takes at least this many times as long as {text}"
            notes.append(f"{least}: {', '.join(shown)}")
        if noisy:
            notes.append(f"times scatter too much for a comparison with {text}: {', '.join(noisy)}")
    return notes


def _blind(found: Check, detect: Mapping[str, float]) -> dict[str, str]:
    """Return the sweeps that cannot show the requested slowdown, with the reasons."""
    blind, detectable, limits = {}, found.detectable, found.findings.groupby("sweep")["limit"].min()
    for sweep, wanted in detect.items():
        if detectable.get(sweep, math.inf) <= wanted + 1e-9:
            continue
        if sweep not in detectable:
            single = len(found.subjects) == 1
            blind[sweep] = "no peer and no reference" if single else "one repetition each, so the spread is unknown"
            continue
        why = SCATTER if limits[sweep] <= wanted + 1e-9 else "healthy devices may differ as much"
        smallest = percent(detectable[sweep])
        blind[sweep] = f"a slowdown of {percent(wanted)} may be missed, one of {smallest} would be named; {why}"
    return blind
