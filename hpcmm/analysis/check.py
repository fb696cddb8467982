"""Compare each node or GPU of a run with its peers, and with a reference.

All ranks do the same work at the same time, so their times are comparable. Times are logarithms here, so that
differences are relative. Times scatter for three reasons: states that all ranks of a visit share, states of a rank in a
visit, and differences between devices of the same kind. Comparing within a visit removes the first. The other two are
estimated from the peers alone, by median and MAD, so that a slow device does not hide itself. A few peers estimate
their spread poorly, so the spreads of all measurements give it a prior, as in ``noise``.
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
from hpcmm.analysis import Columns, noise, sustained, unmeasured
from hpcmm.analysis.compare import ALPHA, MARGIN
from hpcmm.model import HpcmmError, spread_name
from hpcmm.parallel.links import EXCHANGES, PATTERNS
from hpcmm.parallel.vector_all_reduce import ALL_REDUCES
from hpcmm.reader import ConfigError

FORMAT = "hpcmm check reference"
PHASES = {"kernel": 0, "upload": 1, "download": 1}  # phase: whether it belongs to end-to-end calls
NORMAL = 1.4826  # standard deviation of a normal distribution over its MAD
# ... for 2, 3, ... values (Croux and Rousseeuw, Computational Statistics 1, 1992), and in the limit n / (n - 0.8)
SMALL = (1.196, 1.495, 1.363, 1.206, 1.200, 1.140, 1.129, 1.107)
EFFICIENCY = 0.37  # of the MAD: degrees of freedom over those of the standard deviation
JOINED = "one repetition each"
LONELY = 0.05  # spread of healthy devices that is assumed of two, where no reference of three or more shows it
STANDARDS = {"peers": "its peers", "reference": "the reference"}
FEW = 6  # least number of measurements of a kind whose spreads support each other
SINGLE, PEERS = 6, 3  # least number of measurements with one repetition, and of peers, to judge them together
NOISY = 100.0  # a measurement that could show larger slowdowns only is reported as too noisy
MEDIAN = math.pi / 2  # variance of the median of many values over that of their mean


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
    def name(self) -> str:
        return f"{self.node} slot {self.slot}" + (f" {self.uuid}" if self.uuid else "")


@dataclass(frozen=True)
class Finding:
    """One measurement of one device.

    ``source`` is the device that it received from, if the measurement is one of a link: either end may be the cause.
    ``slowdown`` is its time over that of its peers (or of the reference), less 1; NaN if it has none. ``p`` is the
    probability of such a difference by chance, for this measurement alone. ``slow`` is the verdict, at the level of the
    whole check. ``least`` is the smallest slowdown that would be called slow; infinite if nothing is compared.
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


@dataclass(frozen=True)
class Check:
    """The result of a check.

    ``findings`` has one entry per measurement, device and standard (peers or reference). ``broken`` names measurements
    whose result is wrong or missing. ``missing`` is the number of points without a result. ``notes`` are sentences
    about measurements that could not be compared. ``intervals`` and ``errors`` are from ``sustained``. ``spreads`` has,
    by measurement, how three or more devices differ: variance and degrees of freedom.
    """

    subjects: tuple[Subject, ...]
    findings: tuple[Finding, ...]
    broken: tuple[str, ...]
    notes: tuple[str, ...]
    missing: int = 0
    intervals: pd.DataFrame = field(default_factory=pd.DataFrame)
    errors: pd.DataFrame = field(default_factory=pd.DataFrame)
    spreads: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def slow(self) -> list[Finding]:
        """The slow devices, the largest slowdown first."""
        return sorted((each for each in self.findings if each.slow), key=lambda each: -each.slowdown)

    @property
    def passed(self) -> bool:
        return not self.slow and not self.broken

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
        wrong = f"; {len(self.broken)} wrong or missing" if self.broken else ""
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
            "devices": [vars(subject) for subject in self.subjects],
            "findings": [
                {"rank": each.subject.rank, "node": each.subject.node, "slot": each.subject.slot}
                | {"uuid": each.subject.uuid, "measurement": each.measurement, "against": each.against}
                | {"source": each.source.rank if each.source else None}
                | {name: finite(getattr(each, name)) for name in ("seconds", "slowdown", "p", "least")}
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

    def reference(self) -> dict[str, Any]:
        """Return the median time of each measurement, and how the devices differ, for checks of other machines."""
        seconds: dict[str, list[float]] = {}
        for each in self.findings:
            if each.against == "peers" and each.measurement != JOINED:
                seconds.setdefault(each.measurement, []).append(each.seconds)
        medians = {name: float(np.median(each)) for name, each in seconds.items()}
        return {"format": FORMAT, "version": 1, "seconds": medians, "spreads": dict(self.spreads)}


def robust_variance(values: np.ndarray) -> tuple[float, float]:
    """Return the variance by the MAD of two or more values, and its degrees of freedom."""
    count = len(values)
    small = SMALL[count - 2] if count - 2 < len(SMALL) else count / (count - 0.8)
    mad = float(np.median(np.abs(values - np.median(values))))
    return (NORMAL * small * mad) ** 2, EFFICIENCY * (count - 1)


@dataclass(frozen=True)
class Times:
    """One measurement: the logarithm of the seconds of each rank (rows) in each visit (columns).

    ``sources`` has the rank that each rank received from, for a measurement of links. ``together``: whether all ranks
    wait for each other, so that their times do not show which of them is slow. ``moves``: whether data leaves the
    device; such times scatter more than those of a device alone. ``scatter`` has the variance of the repetitions of
    each rank, for a single visit, which shows no spread between visits; NaN for a single repetition. ``joined``:
    whether its visits are measurements with one repetition.
    """

    name: str
    logs: np.ndarray
    sources: tuple[int, ...] = ()
    together: bool = False
    moves: bool = False
    scatter: tuple[float, ...] = ()
    joined: bool = False

    @property
    def single(self) -> bool:
        """Whether a rank has one time only."""
        return bool(np.isnan(self.scatter).any())

    @property
    def comparable(self) -> bool:
        """Whether the times show which rank is slow: not if ranks wait for each other, or have one time each."""
        return not self.together and not self.single

    @functools.cached_property
    def centre(self) -> np.ndarray:
        """The time of each rank: the median over visits of its difference from all ranks, and their level."""
        level = np.median(self.logs, axis=0)
        return np.median(self.logs - level, axis=1) + np.median(level)

    def behind(self, rank: int) -> float:
        """Return a rank's time over the median of its peers: the median over visits, of two visits the smaller one.

        For joined measurements it is the lower quartile, because a burst of load may last for several of them.
        """
        differences = self.logs[rank] - np.median(np.delete(self.logs, rank, axis=0), axis=0)
        return float(np.sort(differences)[(len(differences) - 1) // (4 if self.joined else 2)])

    def spread(self, rank: int, shared: bool, pair: tuple[float, float]) -> tuple[float, float]:
        """Return the variance of a rank's time, estimated from its peers alone, and its degrees of freedom.

        ``shared``: whether the state that all ranks of a visit share drops out of the comparison. With one peer it
        cannot be separated. ``pair``: variance between healthy devices, and its degrees of freedom, for two devices,
        which show none.
        """
        alone, visits = len(self.logs) == 1, self.logs.shape[1]
        peers = self.logs if alone else np.delete(self.logs, rank, axis=0)
        found = [(0.0, 0.0)]
        if visits > 1:
            count = len(peers) - (shared and len(peers) > 1)  # one is the level of a visit
            inner = peers - np.median(peers, axis=0) if count < len(peers) else peers
            variances = np.var(inner, axis=1, ddof=1) * len(peers) / count
            within = float(np.median(variances))
            within /= noise.median_variance(visits - 1) if len(peers) > 2 else 1.0
            found.append((within * float(noise.median_spread(np.array(visits))) ** 2, count * (visits - 1.0)))
        elif self.scatter:
            scatter = [each for other, each in enumerate(self.scatter) if alone or other != rank]
            found.append((float(np.median(scatter)), float(len(peers))))
        if len(peers) > 1:
            found.append(robust_variance(np.delete(self.centre, rank)))
        elif not alone:
            found.append(pair)
        return max(found)


def check(columns: Columns, reference: Mapping[str, Any] | None = None) -> Check:
    """Compare each device of a timings file with its peers, and with a reference.

    Parameters
    ----------
    columns : mapping
        From ``store.read``.
    reference : mapping, optional
        From ``Check.reference``.

    Raises
    ------
    CheckError
        If the file does not name the node of each rank, or has several runs of different ranks.
    """
    subjects = _subjects(columns)
    measured, broken, missing = _times(columns, len(subjects))
    intervals, errors = sustained.intervals(columns), sustained.errors(columns)
    lasting = sustained.times(intervals, len(subjects))
    measured += [Times(name, np.log(seconds)) for name, seconds in lasting.items()]
    faults, notes = sustained.faults(intervals, errors, [subject.name for subject in subjects])
    if not measured and not broken and not faults:
        raise CheckError(f"no point has {len(subjects)} ranks")
    found = compared(subjects, measured, [*broken, *faults], reference)
    whole = {"notes": (*found.notes, *notes), "missing": missing, "intervals": intervals, "errors": errors}
    return dataclasses.replace(found, **whole)


def compared(
    subjects: Sequence[Subject],
    measured: Sequence[Times],
    broken: Sequence[str] = (),
    reference: Mapping[str, Any] | None = None,
) -> Check:
    """Compare the devices in each measurement; the parameters are as in ``check`` and ``Check``."""
    measured = [*measured, *_joined(measured)]
    known = dict((reference or {}).get("seconds", {}))
    shown = dict((reference or {}).get("spreads", {}))  # by three or more devices of the reference
    pairs = {times.name: tuple(shown.get(times.name, (LONELY**2, 1e6))) for times in measured}
    shared = len(subjects) > 1
    tests = sum(
        len(subjects) * (shared and times.comparable) + len(subjects) * (times.name in known) for times in measured
    )
    share = ALPHA / max(1, tests)  # of each test
    notes = []
    if not shared:
        notes.append(f"{subjects[0].name} has no peer in this run" + ("" if known else ", and there is no reference"))
    elif len(subjects) == 2 and not set(pairs) <= set(shown):
        notes.append(
            f"two devices do not show how far healthy devices differ: a spread of {100 * LONELY:.0f} % is assumed"
        )
    if shared and (single := sum(times.single and not times.together for times in measured)):
        have = "measurement has" if single == 1 else "measurements have"
        joined = any(times.joined for times in measured)
        how = "compared together, as visits of one measurement" if joined else "not compared with peers"
        notes.append(f"{single} {have} one repetition, so their spread is unknown: {how}")
    if shared and reference is None:
        notes.append("without a reference (--reference FILE), a slowdown of all devices is not found")
    if known and (absent := sorted({times.name for times in measured} - set(known))):
        notes.append(f"not in the reference: {', '.join(absent)}")
    findings = []
    for against in ["peers", *(["reference"] if known else [])]:
        within_run = against == "peers" and shared
        for subject in subjects:
            spreads = [times.spread(subject.rank, within_run, pairs[times.name]) for times in measured]
            priors = {moves: _prior(measured, spreads, moves) for moves in {times.moves for times in measured}}
            for times, (variance, freedom) in zip(measured, spreads, strict=True):
                prior = priors[times.moves]
                findings.append(
                    _finding(subjects, subject.rank, times, against, known, variance, freedom, prior, share)
                )
    order = {times.name: at for at, times in enumerate(measured)}
    findings.sort(key=lambda each: (each.against == "reference", order[each.measurement], each.subject.rank))
    differ = {times.name: robust_variance(times.centre) for times in measured if len(subjects) > 2}
    notes += _named_from(findings)
    return Check(tuple(subjects), tuple(findings), tuple(broken), tuple(notes), spreads=differ)


def _joined(measured: Sequence[Times]) -> list[Times]:
    """Join the measurements with one repetition into one measurement; each of them is a visit of it.

    A burst of load in one repetition looks like a slow device, but a slow device is slow in all of them.
    """
    alone = [each for each in measured if each.single and not (each.together or each.moves or each.sources)]
    if len(alone) < SINGLE or len(alone[0].logs) <= PEERS:
        return []
    levels = [float(np.median(each.logs)) for each in alone]
    logs = np.hstack([each.logs - level for each, level in zip(alone, levels, strict=True)]) + np.mean(levels)
    return [Times(JOINED, logs, joined=True)]


def _prior(measured: Sequence[Times], spreads: Sequence[tuple[float, float]], moves: bool) -> noise.Prior:
    """Return the prior of the measurements that move data, or of the others; of all if these are few."""
    usable = [spread[1] > 0 and times.comparable for times, spread in zip(measured, spreads, strict=True)]
    some = [each and times.moves == moves for each, times in zip(usable, measured, strict=True)]
    if sum(some) < FEW:
        some = usable
    levels = np.array([float(np.median(times.centre)) for times in measured])[some]
    variances, freedoms = np.array(spreads).reshape(-1, 2)[some].T
    prior = noise.Prior.of(levels, variances, freedoms, fewest=FEW)
    # a few devices estimate it poorly
    return dataclasses.replace(prior, freedoms=np.minimum(prior.freedoms, sum(some)))


def _finding(
    subjects: Sequence[Subject],
    rank: int,
    times: Times,
    against: str,
    known: Mapping[str, float],
    variance: float,
    freedom: float,
    prior: noise.Prior,
    share: float,
) -> Finding:
    """Compare one device in one measurement."""
    subject, own = subjects[rank], float(times.centre[rank])
    source = subjects[times.sources[rank]] if times.sources else None
    others = np.delete(times.centre, rank)
    if against == "reference":
        difference, more = own - math.log(known[times.name]) if times.name in known else math.nan, 1.0
    elif not times.comparable or not len(others):
        difference, more = math.nan, 0.0
    else:
        difference, more = times.behind(rank), MEDIAN / len(others)
    if len(others) == 1:
        more = 1.0
    seconds = math.exp(own)
    (variance,), (freedom,) = prior.moderated(np.array([own]), np.array([variance]), np.array([float(freedom)]))
    if not (math.isfinite(difference) and freedom > 0 and variance > 0):
        slowdown = math.expm1(difference) if math.isfinite(difference) else math.nan
        return Finding(subject, times.name, source, against, seconds, slowdown, math.nan, False)
    deviation = math.sqrt(variance * (1 + more))
    t = difference / deviation
    p = noise.outside(abs(t), float(freedom)) / 2
    p = p if t > 0 else 1 - p
    least = min(max(math.log(1 + MARGIN), deviation * _critical(2 * share, math.floor(10 * freedom) / 10)), 700.0)
    slow = p < share and difference > math.log(1 + MARGIN)
    return Finding(subject, times.name, source, against, seconds, math.expm1(difference), p, slow, math.expm1(least))


_critical = functools.cache(noise.critical)


def _named_from(findings: Sequence[Finding]) -> list[str]:
    """Return how slow a device must be to be named: by sweep, the median of the devices where it is smallest."""
    notes = []
    for standard, text in STANDARDS.items():
        sweeps: dict[str, dict[str, list[float]]] = {}
        for each in findings:
            if each.against == standard and math.isfinite(each.least):
                own = sweeps.setdefault(each.measurement.partition(":")[0], {})
                own.setdefault(each.measurement, []).append(1 + each.least)
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
        raise CheckError(
            "the jobs of this run were on different nodes, so that their ranks are not the same devices; request them "
            "by name, or in one allocation"
        )
    (placed,) = nodes
    uuids = [next(filter(None, (each[rank][1] for each in found)), "") for rank in range(len(placed))]
    return tuple(
        Subject(rank, node, placed[:rank].count(node), uuid)
        for rank, (node, uuid) in enumerate(zip(placed, uuids, strict=True))
    )


def _times(columns: Columns, ranks: int) -> tuple[list[Times], list[str], int]:
    """Return the measurements with as many ranks, lines about wrong and missing ones, and the number of missing ones.

    A job that ended early leaves points without a result, and others with fewer visits than planned.
    """
    frame = analysis.points(analysis.measurements(columns))
    frame = frame[frame["ranks"] == ranks]
    samples = pd.DataFrame(dict(columns["samples"]))
    omitted = pd.DataFrame(dict(columns["omitted"]))
    failed = omitted[(omitted["ranks"] == ranks) & omitted["reason"].str.startswith("failed: ")]
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
                moves = row["operation"] == "links" or phase != "kernel"
                scatter = part.groupby("rank")[phase].agg(lambda seconds: np.log(seconds).var())
                scatter = tuple(scatter) if table.shape[1] == 1 else ()
                measured.append(Times(name_of_phase, table.to_numpy(float), sources, together, moves, scatter))
    broken += [
        f"{sweep}: {count} point{'s' * (count > 1)} with {visits} visits" for (sweep, visits), count in short.items()
    ]
    return measured, broken, _missing(columns, failed)


def _missing(columns: Columns, failed: pd.DataFrame) -> int:
    """Return the number of points without a result; the rows of ``omitted`` are of variants."""
    keys = set(failed[["sweep", "variant", "ranks"]].itertuples(index=False, name=None))
    rows = columns["measurements"]
    measured = {
        (name, spread_name(variant, algorithm), int(ranks), *rest)
        for name, variant, algorithm, ranks, *rest in zip(
            *(rows[name] for name in ("sweep", "variant", "algorithm", "ranks", "m", "n", "k", "dtype")), strict=True
        )
    }
    planned: collections.Counter = collections.Counter()
    for _, found in unmeasured.plans(columns):
        if not isinstance(found, ConfigError):
            planned |= unmeasured.planned_points(found)
    return sum(max(1, planned[key] - sum(each[:3] == key for each in measured)) for key in keys)


def _name(row: Mapping[str, Any]) -> str:
    shape = "x".join(str(row[name]) for name in ("m", "n", "k") if row[name])
    return f"{row['sweep']}: {row['label']} {shape} {row['dtype']}"


def _exchange(algorithm: str, ranks: int) -> tuple[tuple[int, ...], bool]:
    """Return the rank that each rank receives from, if it is one; and whether each receives from all."""
    if ranks == 1 or algorithm not in EXCHANGES:
        return (), ranks > 1 and algorithm in ALL_REDUCES
    pieces = PATTERNS[EXCHANGES[algorithm][0]][0]
    received = [pieces([(0, ranks)] * ranks, rank) for rank in range(ranks)]
    one = all(len(each) == 1 for each in received)
    return (tuple(each[0][0] for each in received) if one else ()), not one
