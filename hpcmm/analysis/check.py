"""Compare each node or GPU of a run with its peers, and with a reference.

All ranks do the same work at the same time, so their times are comparable. Times are logarithms here, so that
differences are relative. Times scatter for three reasons: states that all ranks of a visit share, states of a rank in a
visit, and differences between devices of the same kind. Comparing within a visit removes the first. The second is
estimated from the visits of the peers. The third is estimated from the peers by median and MAD, so that a slow device
does not hide itself. A few peers estimate it poorly, so it has a prior, whose weight falls with their
number. From ``MANY`` devices on, their own slowest tenth shows the tail of healthy devices.

Each measurement is compared alone, and together with the other sizes of its kind: a device that is slow in all of them
is found by less than a fault of one size.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from hpcmm import analysis, quantities
from hpcmm.analysis import Columns, noise, sustained
from hpcmm.analysis.evidence import ALPHA, MARGIN
from hpcmm.devices import DEVICES
from hpcmm.model import HpcmmError
from hpcmm.parallel.links import EXCHANGES, PATTERNS
from hpcmm.parallel.vector_all_reduce import ALL_REDUCES
from hpcmm.text import percent

FORMAT, HISTORY = "hpcmm check reference", "hpcmm check history"
PHASES = {"kernel": 0, "upload": 1, "download": 1}  # phase: whether it belongs to end-to-end calls
NORMAL = 1.4826  # standard deviation of a normal distribution over its MAD
# ... for 2, 3, ... values (Croux and Rousseeuw, Computational Statistics 1, 1992), and in the limit n / (n - 0.8)
SMALL = (1.196, 1.495, 1.363, 1.206, 1.200, 1.140, 1.129, 1.107)
EFFICIENCY = 0.37  # of the MAD: degrees of freedom over those of the standard deviation
JOINED = "one repetition each"
# Prior of the deviation of healthy devices. Four H200s had 0.2 % in float32, and up to 1.5 % in types that reach the
# limit of their power.
STEADY, VARYING = 0.005, 0.02
LONELY = 0.05  # ... of two, which do not show it, if they may vary
WEIGHT = 12.0  # of the prior, in degrees of freedom
BETWEEN_RUNS = 0.005  # further deviation of the times of a run from those of a reference
MANY = 32  # devices from which their own distribution shows its tail
POWER = 1.645  # quantile: a slowdown by so many deviations above the threshold is named in 95 % of the checks
STANDARDS = {"peers": "its peers", "reference": "the reference"}
SINGLE, PEERS = 6, 3  # least number of measurements with one repetition, and of peers, to judge them together
NOISY = 100.0  # a measurement that could show larger slowdowns only is reported as too noisy
MEDIAN = math.pi / 2  # variance of the median of many values over that of their mean
DETECT = 0.05  # slowdown that a check of accelerators must be able to show
SCATTER = "the visits scatter, so more of them would help"
PLACED = "request the nodes by name, or in one allocation"


class CheckError(HpcmmError):
    """A file that cannot be checked; the message says why."""


@dataclass(frozen=True)
class Subject:
    """A device of the run: its node, its place among the ranks of the node, and the UUID of its GPU."""

    rank: int
    node: str
    slot: int
    uuid: str

    @property
    def identity(self) -> tuple[str, str]:
        """What tells the device in another run, whose ranks may be in another order."""
        return self.node, self.uuid or str(self.slot)

    @property
    def name(self) -> str:
        return f"{self.node} slot {self.slot}" + (f" {self.uuid}" if self.uuid else "")


@dataclass(frozen=True)
class Finding:
    """One measurement of one device.

    ``source`` is the device that it received from, if the measurement is one of a link: either end may be the cause.
    ``slowdown`` is its time over that of its peers (or of the reference), less 1; NaN if it has none. ``p`` is the
    probability of such a difference by chance, for this measurement alone. ``slow`` is the verdict, at the level of the
    whole check. ``least`` is the smallest slowdown that would be called slow if other sizes have it, too. One of
    ``detectable`` is called slow in 95 % of such checks, and one of ``limit`` after any number of visits. All three are
    infinite if nothing is compared.
    """

    subject: Subject
    measurement: str
    source: Subject | None
    against: str
    seconds: float
    slowdown: float
    p: float
    slow: bool
    least: float = math.inf
    detectable: float = math.inf
    limit: float = math.inf

    @property
    def sweep(self) -> str:
        return self.measurement.partition(":")[0]


@dataclass(frozen=True)
class Check:
    """The result of a check.

    ``findings`` has one entry per measurement, device and standard (peers or reference). ``broken`` has a line for each
    fault: a wrong result, or points that were not measured. ``missing`` is the number of points of jobs that failed.
    ``notes`` are sentences about measurements that could not be compared. ``intervals`` and ``errors`` are from
    ``sustained``. ``spreads`` has, by measurement, how three or more devices differ: variance and degrees of freedom.
    ``blind`` has the sweeps that cannot show the requested slowdown, each with the reason.
    """

    subjects: tuple[Subject, ...]
    findings: tuple[Finding, ...]
    broken: tuple[str, ...]
    notes: tuple[str, ...]
    missing: int = 0
    intervals: pd.DataFrame = field(default_factory=pd.DataFrame)
    errors: pd.DataFrame = field(default_factory=pd.DataFrame)
    spreads: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    blind: Mapping[str, str] = field(default_factory=dict)

    @property
    def slow(self) -> list[Finding]:
        """The slow devices, the largest slowdown first."""
        return sorted((each for each in self.findings if each.slow), key=lambda each: -each.slowdown)

    @property
    def verdict(self) -> str:
        """``"slow"``, also for a fault; ``"inconclusive"`` if nothing was found but could have been missed."""
        return "slow" if self.slow or self.broken else "inconclusive" if self.blind else "passed"

    @property
    def passed(self) -> bool:
        return self.verdict == "passed"

    @property
    def detectable(self) -> dict[str, float]:
        """By sweep, the smallest slowdown that is named in 95 % of such checks, whichever device has it."""
        found: dict[tuple[str, str, str], float] = {}
        for each in self.findings:
            if math.isfinite(each.detectable):
                key = each.sweep, each.measurement, each.against
                found[key] = max(found.get(key, 0.0), each.detectable)
        sweeps: dict[str, float] = {}
        for (sweep, *_), value in found.items():
            sweeps[sweep] = min(sweeps.get(sweep, math.inf), value)
        return sweeps

    @property
    def line(self) -> str:
        """A summary in one line."""
        named = dict.fromkeys(each.subject.name for each in self.slow if not each.source)
        links = dict.fromkeys(f"{each.source.name} to {each.subject.name}" for each in self.slow if each.source)
        measured = len({each.measurement for each in self.findings})
        tested = {each.against for each in self.findings if math.isfinite(each.p)}
        standards = [text for name, text in STANDARDS.items() if name in tested]
        what = f"no device is slower than {' or '.join(standards)}" if standards else "nothing to compare with"
        what = f"slow: {', '.join(named)}" if named else what
        what += f"; slow links: {', '.join(links)}" if links else ""
        if self.verdict == "inconclusive":
            what = f"inconclusive ({', '.join(self.blind)}): {what}"
        wrong = f"; {len(self.broken)} fault{'s' * (len(self.broken) != 1)}" if self.broken else ""
        planned = f" of {measured + self.missing}" if self.missing else ""
        return (
            f"{len(self.subjects)} device{'s' * (len(self.subjects) != 1)}, {measured}{planned} measurements: "
            f"{what}{wrong}"
        )

    def plain(self) -> dict[str, Any]:
        """Return the whole check as values of JSON."""

        def finite(value: float) -> float | None:
            return float(value) if math.isfinite(value) else None

        return {
            "format": "hpcmm check",
            "version": 1,
            "passed": self.passed,
            "verdict": self.verdict,
            "line": self.line,
            "detectable": {sweep: finite(value) for sweep, value in self.detectable.items()},
            "inconclusive": self.blind,
            "devices": [vars(subject) for subject in self.subjects],
            "findings": [
                {"rank": each.subject.rank, "node": each.subject.node, "slot": each.subject.slot}
                | {"uuid": each.subject.uuid, "measurement": each.measurement, "against": each.against}
                | {"source": each.source.rank if each.source else None}
                | {name: finite(getattr(each, name)) for name in ("seconds", "slowdown", "p", "least", "detectable")}
                | {"slow": each.slow}
                for each in self.findings
            ],
            "sustained": [
                {"rank": int(rank), "dtype": dtype, "products": int(own["products"].sum())}
                | {"wrong": int(own["wrong"].sum())}
                | {name: finite(own[name].median()) for name in ("flops_per_second", "clock", "temperature", "power")}
                for (rank, dtype), own in (self.intervals.groupby(["rank", "dtype"]) if len(self.intervals) else ())
            ],
            "errors": [
                {"rank": int(row["rank"]), "counter": row["counter"]}
                | {name: finite(row[name]) for name in ("before", "after")}
                for row in analysis.row_dicts(self.errors)
            ],
            "broken": self.broken,
            "missing": self.missing,
            "notes": self.notes,
        }

    def entry(self, utc: str) -> dict[str, Any]:
        """Return the line of this check in a history: how slow each device was in each sweep."""
        slow = {each.subject.rank for each in self.slow}
        sweeps: dict[int, dict[str, list[float]]] = {}
        for each in self.findings:
            if each.against == "peers" and math.isfinite(each.slowdown):
                sweeps.setdefault(each.subject.rank, {}).setdefault(each.sweep, []).append(each.slowdown)
        devices = [
            {"node": each.node, "slot": each.slot, "uuid": each.uuid, "slow": each.rank in slow}
            | {"slowdowns": {name: float(np.median(own)) for name, own in sweeps.get(each.rank, {}).items()}}
            for each in self.subjects
        ]
        return {"format": HISTORY, "utc": utc, "verdict": self.verdict, "devices": devices}

    def reference(self) -> dict[str, Any]:
        """Return the median time of each measurement, and how the devices differ, for checks of other machines."""
        seconds: dict[str, list[float]] = {}
        for each in self.findings:
            if each.against == "peers" and each.measurement != JOINED:
                seconds.setdefault(each.measurement, []).append(each.seconds)
        medians = {name: float(np.median(each)) for name, each in seconds.items()}
        return {"format": FORMAT, "version": 1, "seconds": medians, "spreads": dict(self.spreads)}


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
    ``joined``: whether its visits are measurements with one repetition. ``group`` is a name that measurements share if
    they differ in size only. ``moves``: whether data leaves the device. ``steady``: whether healthy devices differ by
    ``STEADY`` only, as GPUs below the limit of their power do. ``accelerated``: whether they are accelerators.
    """

    name: str
    logs: np.ndarray
    sources: tuple[int, ...] = ()
    together: bool = False
    scatter: tuple[float, ...] = ()
    joined: bool = False
    group: str = ""
    moves: bool = False
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
        """The time of each rank over the median of its peers: the median over visits, of two visits the smaller one.

        For joined measurements it is the lower quartile, because a burst of load may last for several of them.
        """
        return np.sort(self.logs - self.level, axis=1)[:, (self.logs.shape[1] - 1) // (4 if self.joined else 2)]

    def spread(self, shared: bool, prior: tuple[float, float]) -> Spread:
        """Return the spread of the time of each rank if it is healthy, estimated from its peers alone.

        ``shared``: whether the state that all ranks of a visit share drops out of the comparison. With one peer it
        cannot be separated. ``prior``: variance between healthy devices, and its degrees of freedom.
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
        whole = Spread.of(np.asarray(within), freedom, np.asarray(between), number, prior)
        return Spread(*(np.broadcast_to(each, len(self.logs)) for each in dataclasses.astuple(whole)))


@dataclass(frozen=True)
class Spread:
    """The variances of the times of healthy devices, their degrees of freedom, and the parts that visits reduce."""

    variance: np.ndarray
    freedom: np.ndarray
    within: np.ndarray

    @classmethod
    def of(
        cls, within: np.ndarray, freedom: float, between: np.ndarray, number: float, prior: tuple[float, float]
    ) -> Spread:
        """Combine the prior between devices and the variance within them with the variance that the peers show.

        ``freedom`` and ``number`` are the degrees of freedom of ``within`` and ``between``. Those of a sum are of Welch
        and Satterthwaite.
        """
        healthy, weight = prior
        expected = healthy + within
        weight = expected**2 / (healthy**2 / weight + within**2 / freedom)
        variance = (weight * expected + number * between) / (weight + number)
        return cls(np.maximum(variance, within), weight + number, within)


def check(
    columns: Columns,
    reference: Mapping[str, Any] | None = None,
    detect: float | None = None,
    further: Sequence[Columns] = (),
) -> Check:
    """Compare each device of a timings file with its peers, and with a reference.

    Parameters
    ----------
    columns : mapping
        From ``store.read``.
    reference : mapping, optional
        From ``Check.reference``.
    detect : float, optional
        The slowdown that every sweep must be able to show, such as 0.05; by default ``DETECT`` for those of
        accelerators.
    further : sequence of mapping
        Files of the same devices. Their visits count as visits of the same measurements.

    Raises
    ------
    CheckError
        If the file does not name the node of each rank, or has several runs of different ranks.
    """
    subjects = _subjects(columns)
    measured, broken, missing = _times(columns, len(subjects))
    for more in further:
        others = {each.identity: each.rank for each in _subjects(more)}
        if set(others) != {each.identity for each in subjects}:
            raise CheckError(f"the files are of other devices; {PLACED}")
        times, faults, absent = _times(more, len(subjects))
        order = [others[each.identity] for each in subjects]
        measured = _with_visits(measured, times, order)
        broken, missing = [*broken, *faults], missing + absent
    intervals, errors = sustained.intervals(columns), sustained.errors(columns)
    lasting = sustained.times(intervals, len(subjects))
    measured += [Times(name, np.log(seconds)) for name, seconds in lasting.items()]
    faults, notes = sustained.faults(intervals, errors, [subject.name for subject in subjects])
    if not measured and not broken and not faults:
        raise CheckError(f"no point has {len(subjects)} ranks")
    if detect is None:
        wanted = {times.sweep: DETECT for times in measured if times.accelerated and not times.together}
    else:
        wanted = {times.sweep: detect for times in measured if not times.together}
    found = compared(subjects, measured, [*broken, *faults], reference, wanted)
    whole = {"notes": (*found.notes, *notes), "missing": missing, "intervals": intervals, "errors": errors}
    return dataclasses.replace(found, **whole)


def _with_visits(measured: Sequence[Times], more: Sequence[Times], order: Sequence[int]) -> list[Times]:
    """Add the visits of further times, with ranks in another order, to the measurements of the same names."""
    found = {times.name: times for times in measured}
    for times in more:
        logs = times.logs[order]
        if known := found.get(times.name):
            logs = np.hstack([known.logs, logs])
        found[times.name] = dataclasses.replace(times, logs=logs, scatter=() if known else times.scatter)
    return list(found.values())


def compared(
    subjects: Sequence[Subject],
    measured: Sequence[Times],
    broken: Sequence[str] = (),
    reference: Mapping[str, Any] | None = None,
    detect: Mapping[str, float] | None = None,
) -> Check:
    """Compare the devices in each measurement; the parameters are as in ``check`` and ``Check``.

    ``detect`` has the slowdown that a sweep must be able to show, by its name.
    """
    measured, detect = [*measured, *_single(measured)], detect or {}
    groups = _groups(measured)
    known = dict((reference or {}).get("seconds", {}))
    shown = dict((reference or {}).get("spreads", {}))  # by three or more devices of the reference
    priors = {times.name: tuple(shown.get(times.name, (times.healthy**2, WEIGHT))) for times in [*measured, *groups]}
    shared = len(subjects) > 1
    tests = len(subjects) * sum((shared and times.comparable) + (times.name in known) for times in [*measured, *groups])
    share = ALPHA / max(1, tests)  # of each test
    notes = []
    if not shared:
        notes.append(f"{subjects[0].name} has no peer in this run" + ("" if known else ", and there is no reference"))
    elif len(subjects) == 2 and not set(priors) <= set(shown):
        assumed = sorted({times.healthy for times in measured if times.name not in shown})
        notes.append(
            "two devices do not show how far healthy devices differ: a spread of "
            f"{' or '.join(map(percent, assumed))} is assumed"
        )
    if shared and (single := sum(times.single and not times.together for times in measured)):
        have = "measurement has" if single == 1 else "measurements have"
        joined = any(times.joined for times in measured)
        how = "compared together, as visits of one measurement" if joined else "not compared with peers"
        notes.append(f"{single} {have} one repetition, so their spread is unknown: {how}")
    if shared and reference is None:
        notes.append("without a reference (--reference FILE), a slowdown of all devices is not found")
    if known and (absent := sorted({times.name for times in measured if not times.joined} - set(known))):
        notes.append(f"not in the reference: {', '.join(absent)}")
    findings = []
    for against in ["peers", *(["reference"] if known else [])]:
        judge = functools.partial(_findings, subjects, against=against, known=known, several=bool(shown), share=share)
        own, joined = (
            {times.name: judge(times, prior=priors[times.name], detect=detect.get(times.sweep)) for times in some}
            for some in (measured, groups)
        )
        for times in measured:
            findings += map(_together, own[times.name], joined.get(times.group, own[times.name]))
    robust = {times.name: robust_variance(times.centre) for times in measured if len(subjects) > 2}
    differ = {name: (float(variance), freedom) for name, (variance, freedom) in robust.items()}
    notes += _named_from(findings)
    found = Check(tuple(subjects), tuple(findings), tuple(broken), (), spreads=differ)
    if sizes := [f"{sweep} {percent(size)}" for sweep, size in found.detectable.items() if size < NOISY]:
        notes.append(f"a slowdown of this size is named in 95 % of such checks: {', '.join(sizes)}")
    return dataclasses.replace(found, notes=tuple(notes), blind=_blind(found, detect))


def _single(measured: Sequence[Times]) -> list[Times]:
    """Join the measurements with one repetition into one measurement; each of them is a visit of it.

    A burst of load in one repetition looks like a slow device, but a slow device is slow in all of them.
    """
    alone = [each for each in measured if each.single and not (each.together or each.moves or each.sources)]
    if len(alone) < SINGLE or len(alone[0].logs) <= PEERS:
        return []
    return [Times(JOINED, _levelled(alone), joined=True)]


def _groups(measured: Sequence[Times]) -> list[Times]:
    """Join the measurements that differ in size only; the visits of all of them are visits of the group."""
    groups: dict[str, list[Times]] = {}
    for times in measured:
        if times.comparable and times.group:
            groups.setdefault(times.group, []).append(times)
    return [
        dataclasses.replace(own[0], name=group, logs=_levelled(own), scatter=())
        for group, own in groups.items()
        if len(own) > 1
    ]


def _levelled(measured: Sequence[Times]) -> np.ndarray:
    """Return the visits of several measurements side by side, relative to the level of each."""
    levels = [float(np.median(each.logs)) for each in measured]
    return np.hstack([each.logs - level for each, level in zip(measured, levels, strict=True)]) + np.mean(levels)


def _findings(
    subjects: Sequence[Subject],
    times: Times,
    against: str,
    known: Mapping[str, float],
    several: bool,
    prior: tuple[float, float],
    share: float,
    detect: float | None,
) -> list[Finding]:
    """Compare all devices in one measurement; ``several``: whether the reference is a median of devices."""
    count, wanted = len(subjects), math.log1p(detect or 0.0)
    if against == "reference":
        reference = known.get(times.name)
        differences = times.centre - (math.log(reference) if reference else math.nan)
        prior, more = (prior[0] + BETWEEN_RUNS**2, prior[1]), MEDIAN / 3 if several else 1.0
    elif times.comparable and count > 1:
        differences, more = times.behind, 1.0 if count == 2 else MEDIAN / (count - 1)
    else:
        differences, more = np.full(count, math.nan), 0.0
        if not times.together and count > 1:  # shown, not judged
            differences = times.behind
    judged = np.isfinite(differences).all() and (against == "reference" or times.comparable) and not times.single
    shared = against == "peers" and count > 1
    if judged:
        spread = times.spread(shared, prior)
        tail = _tail(differences, share) if shared and count >= MANY else 0.0
    found = []
    for subject, difference, own in zip(subjects, differences, times.centre, strict=True):
        source = subjects[times.sources[subject.rank]] if times.sources else None
        slowdown = math.expm1(difference) if math.isfinite(difference) else math.nan
        values = subject, times.name, source, against, math.exp(own), slowdown
        if not judged:
            found.append(Finding(*values, math.nan, False))
            continue
        variance, freedom, within = (
            float(each[subject.rank]) for each in (spread.variance, spread.freedom, spread.within)
        )
        deviation = math.sqrt(variance * (1 + more))
        # of few devices nobody knows the tail: the threshold is as high as the requested slowdown permits
        floor = max(math.log1p(MARGIN), tail, 0.0 if count >= MANY or not shared else wanted - POWER * deviation)
        critical = _critical(2 * share, math.floor(10 * freedom) / 10)
        least = min(max(floor, deviation * critical), 700.0)
        steady = math.sqrt(max(variance - within, 0.0) * (1 + more))  # after any number of visits
        limit = max(math.log1p(MARGIN), tail, steady * critical) + POWER * steady
        t = difference / deviation
        p = noise.outside(abs(t), freedom) / 2
        ends = (math.expm1(min(each, 700.0)) for each in (least, least + POWER * deviation, limit))
        found.append(Finding(*values, p if t > 0 else 1 - p, bool(difference > least), *ends))
    return found


def _together(finding: Finding, group: Finding) -> Finding:
    """Return the finding of a size, which is slow, too, if all sizes together are."""
    better = {name: min(getattr(finding, name), getattr(group, name)) for name in ("least", "detectable", "limit")}
    slow = finding.slow or (group.slow and finding.slowdown > MARGIN)
    return dataclasses.replace(finding, slow=slow, **better)


def _tail(differences: np.ndarray, share: float) -> float:
    """Return the difference that a healthy device exceeds with this probability, if tails are exponential.

    The scale of the tail follows from the slowest tenth of many devices, but not from the slowest twentieth, which may
    be at fault. A normal distribution ends sooner, so the value is cautious.
    """
    ordered, count = np.sort(differences), len(differences)
    tenth = max(8, count // 10)
    start = float(ordered[count - tenth])
    scale = (float(ordered[count - tenth // 2]) - start) / math.log(2)
    return start + scale * math.log(tenth / count / share)


_critical = functools.cache(noise.critical)


def _named_from(findings: Sequence[Finding]) -> list[str]:
    """Return how slow a device must be to be named: by sweep, the median of the devices where it is smallest."""
    notes = []
    for standard, text in STANDARDS.items():
        sweeps: dict[str, dict[str, list[float]]] = {}
        for each in findings:
            if each.against == standard and math.isfinite(each.least):
                sweeps.setdefault(each.sweep, {}).setdefault(each.measurement, []).append(1 + each.least)
        least = {sweep: min(map(np.median, own.values())) for sweep, own in sweeps.items()}
        shown = [f"{sweep} {factor:.3g}" for sweep, factor in least.items() if factor < NOISY]
        noisy = [sweep for sweep, factor in least.items() if factor >= NOISY]
        if shown:
            notes.append(
                f"a device is called slow if it takes at least this many times as long as {text}: {', '.join(shown)}"
            )
        if noisy:
            notes.append(f"times scatter too much for a comparison with {text}: {', '.join(noisy)}")
    return notes


def _blind(found: Check, detect: Mapping[str, float]) -> dict[str, str]:
    """Return the sweeps that cannot show the requested slowdown, with the reasons."""
    blind, detectable = {}, found.detectable
    for sweep, wanted in detect.items():
        own = [each for each in found.findings if each.sweep == sweep]
        if detectable.get(sweep, math.inf) <= wanted + 1e-9:
            continue
        if sweep not in detectable:
            single = len(found.subjects) == 1
            blind[sweep] = "no peer and no reference" if single else "one repetition each, so the spread is unknown"
            continue
        why = SCATTER if min(each.limit for each in own) <= wanted + 1e-9 else "healthy devices may differ as much"
        blind[sweep] = (
            f"a slowdown of {percent(wanted)} may be missed, one of {percent(detectable[sweep])} would be named; {why}"
        )
    return blind


def _subjects(columns: Columns) -> tuple[Subject, ...]:
    """Return the devices of the ranks; all runs with the most ranks must have the same."""
    ranks = pd.DataFrame(dict(columns["ranks"])).drop_duplicates(["run", "rank"])
    if ranks.empty:
        raise CheckError("the timings file does not name the node of each rank; measure again with this version")
    size = ranks.groupby("run")["rank"].transform("count")
    ranks = ranks[size == size.max()]
    found = {tuple(zip(part["node"], part["device"], strict=True)) for _, part in ranks.groupby("run")}
    nodes = {tuple(node for node, _ in each) for each in found}
    if len(nodes) > 1:
        raise CheckError(f"the jobs of this run were on different nodes; {PLACED}")
    (placed,) = nodes
    uuids = [next(filter(None, (each[rank][1] for each in found)), "") for rank in range(len(placed))]
    return tuple(
        Subject(rank, node, placed[:rank].count(node), uuid)
        for rank, (node, uuid) in enumerate(zip(placed, uuids, strict=True))
    )


def _times(columns: Columns, ranks: int) -> tuple[list[Times], list[str], int]:
    """Return the measurements with as many ranks, lines about faults, and the number of points of jobs that failed.

    A job that ended early leaves points without a result, and others with fewer visits than planned.
    """
    frame = analysis.points(analysis.measurements(columns))
    frame = frame[frame["ranks"] == ranks]
    samples = pd.DataFrame(dict(columns["samples"]))
    omitted = pd.DataFrame(dict(columns["omitted"]))
    failed = omitted[(omitted["ranks"] == ranks) & (omitted["points"] > 0)]
    plans = [analysis.mapping(run["provenance"].get("config")) for run in analysis.runs(columns)]
    measured, broken, short = [], [], collections.Counter()
    broken += [f"{row['sweep']}: {row['variant']}: {row['reason']}" for row in analysis.row_dicts(failed)]
    for row in analysis.row_dicts(frame.assign(at=frame.index)):
        name = _name(row)
        if row["result"] != "PASS":
            broken.append(f"{name}: {row['result']} {row['where']}".strip())
            continue
        own = samples[samples["measurement"] == row["at"]]
        visits, planned = own["visit"].nunique(), analysis.mapping(plans[row["run"]].get("measuring"))
        # a point with a repetition above the limit gets no further visit
        longest = own[list(quantities.PHASES)].max(axis=None)
        if visits < planned.get("visits", 1) and longest <= planned.get("max_seconds", 0):
            short[row["sweep"], f"{visits} of {planned['visits']}"] += 1
        for phase, call in PHASES.items():
            part = own[own["call"] == call].dropna(subset=phase)
            table = np.log(part.pivot_table(index="rank", columns="visit", values=phase, aggfunc="median"))
            table = table.dropna(axis=1)  # a visit in which a rank has no time
            if len(table) == ranks and table.size:
                name_of_phase = name + ("" if phase == "kernel" else f", {phase}")
                sources, together = _exchange(row["algorithm"], ranks)
                scatter = part.groupby("rank")[phase].agg(lambda seconds: np.log(seconds).var())
                scatter = tuple(scatter) if table.shape[1] == 1 else ()
                group = _name(row, sized=False) + ("" if phase == "kernel" else f", {phase}")
                moves, accelerated = (
                    row["operation"] == "links" or phase != "kernel",
                    DEVICES[row["device"]].accelerator,
                )
                # products in other types may reach the limit of the power
                steady = accelerated and (moves or row["operation"] != "matmul" or row["dtype"] == "float32")
                times = Times(name_of_phase, table.to_numpy(float), sources, together, scatter, group=group)
                measured.append(dataclasses.replace(times, moves=moves, steady=steady, accelerated=accelerated))
    broken += [
        f"{sweep}: {count} point{'s' * (count > 1)} with {visits} visits" for (sweep, visits), count in short.items()
    ]
    return measured, broken, int(failed["points"].sum())


def _name(row: Mapping[str, Any], sized: bool = True) -> str:
    shape = "x".join(str(row[name]) for name in ("m", "n", "k") if row[name])
    return " ".join([f"{row['sweep']}:", row["label"], *([shape] if sized else []), row["dtype"]])


def _exchange(algorithm: str, ranks: int) -> tuple[tuple[int, ...], bool]:
    """Return the rank that each rank receives from, if it is one; and whether each receives from all."""
    if ranks == 1 or algorithm not in EXCHANGES:
        return (), ranks > 1 and algorithm in ALL_REDUCES
    pieces = PATTERNS[EXCHANGES[algorithm][0]][0]
    received = [pieces([(0, ranks)] * ranks, rank) for rank in range(ranks)]
    one = all(len(each) == 1 for each in received)
    return (tuple(each[0][0] for each in received) if one else ()), not one


def history(entries: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the history of each device and sweep over the checks of ``Check.entry``, the latest slowdown first.

    Each has the number of ``checks``, ``since`` when, the median slowdown ``before`` the newest check (NaN if there is
    none) and ``now``, and in how many checks the device was ``slow``.
    """
    found: dict[tuple[str, ...], list[tuple[str, float, bool]]] = {}
    for entry in sorted(entries, key=lambda each: each["utc"]):
        for each in entry["devices"]:
            for sweep, slowdown in each["slowdowns"].items():
                key = each["node"], str(each["slot"]), each["uuid"], sweep
                found.setdefault(key, []).append((entry["utc"], slowdown, each["slow"]))
    rows = [
        dict(zip(("node", "slot", "uuid", "sweep"), key, strict=True))
        | {"checks": len(own), "since": own[0][0][:10], "slow": sum(slow for *_, slow in own), "now": own[-1][1]}
        | {"before": float(np.median([slowdown for _, slowdown, _ in own[:-1]])) if own[1:] else math.nan}
        for key, own in found.items()
    ]
    return sorted(rows, key=lambda row: -row["now"])
