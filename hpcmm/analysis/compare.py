"""Compare two timings files point by point, using their raw times."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from hpcmm import analysis
from hpcmm.analysis import Columns, noise, visits
from hpcmm.devices import DEVICES
from hpcmm.model import HpcmmError
from hpcmm.operations import OPERATIONS, dimensions
from hpcmm.parallel import ALGORITHMS
from hpcmm.store import IDENTITY
from hpcmm.text import percent

ALPHA = 0.005  # significance level: the largest share of unchanged points that is called faster or slower
MARGIN = 0.01  # smaller changes are ignored
WIDEST = math.log(100)  # half-width of the widest interval that is shown
CONTROLS = 20  # least number of baselines in both files that can show how much unchanged points differ
LIBRARIES = ("driver", "CUDA runtime", "BLAS")  # baselines may differ with the version

SCOPES = {"kernel": "the kernel alone", "call": "end to end"}
VERDICTS = ("broken", "slower", "ambiguous", "faster", "mended", "same", "FAIL")
UNCHANGED = ("same", "ambiguous")  # no difference, or none that is certain


class ComparisonError(HpcmmError):
    """Files that cannot be compared; the message gives the difference."""


@cache
def _below(n: int, m: int) -> np.ndarray:
    """P(U <= u) of the Mann-Whitney statistic of n and m values without ties, for each u.

    The number of ways to reach each u is the coefficient of q^u in a Gaussian binomial; beyond 60 values
    the distribution is taken to be normal.
    """
    u = np.arange(n * m + 1)
    if n + m > 60:
        deviation = math.sqrt(n * m * (n + m + 1) / 12)
        return np.array([0.5 * (1 + math.erf((x + 0.5 - n * m / 2) / deviation / math.sqrt(2))) for x in u])
    ways = np.zeros(n * m + 1)
    ways[0] = 1.0
    for i in range(1, n + 1):  # times (1 - q^(m+i)) / (1 - q^i)
        if (step := m + i) <= n * m:
            ways[step:] -= ways[:-step].copy()
        for start in range(i):
            ways[start::i] = np.cumsum(ways[start::i])
    return np.cumsum(ways) / math.comb(n + m, n)


@dataclass(frozen=True)
class Change:
    """The difference between the times of two samples.

    ``ratio`` is how many times as fast the second is (Hodges and Lehmann's estimate: the median of the
    quotients of all pairs, of an even number the geometric mean of the two in the middle), between ``low``
    and ``high`` with confidence 1 - ``ALPHA``; NaN if the samples are too small for that. ``p`` is that of the
    two-sided Mann-Whitney test.
    """

    ratio: float
    low: float
    high: float
    p: float
    verdict: str


def change(before: Sequence[float], after: Sequence[float], share: float = ALPHA) -> Change:
    """Compare two samples of seconds; their distributions are assumed to have the same shape.

    ``share`` is the significance level.

    Returns
    -------
    Change
        ``verdict`` is ``"same"`` if the whole interval is within ``MARGIN`` of 1 or the samples are equal,
        ``"faster"`` or ``"slower"`` if 1 is outside the interval and the ratio beyond the margin, and else
        ``"ambiguous"``.

    Examples
    --------
    >>> before = [1.00, 1.01, 1.02, 1.03, 1.04, 1.05, 1.06, 1.07]
    >>> after = [2 * seconds for seconds in before]
    >>> change(before, after).verdict, change(after, before).verdict, change(before, before).verdict
    ('slower', 'faster', 'same')
    """
    first, second = np.asarray(before, float), np.asarray(after, float)
    n, m = len(first), len(second)
    quotients = np.sort((first[:, None] / second[None, :]).ravel())
    ratio = math.sqrt(quotients[(n * m - 1) // 2] * quotients[n * m // 2])  # swapping the samples gives 1 / ratio
    if n == m and np.array_equal(np.sort(first), np.sort(second)):
        return Change(1.0, 1.0, 1.0, 1.0, "same")
    below = _below(n, m)
    wins = float((quotients > 1).sum() + (quotients == 1).sum() / 2)
    p = min(1.0, 2 * float(below[math.ceil(min(wins, n * m - wins))]))
    outside = int(np.searchsorted(below, share / 2, side="right"))  # quotients outside the interval at each end
    if outside == 0:
        return Change(ratio, math.nan, math.nan, p, "ambiguous")
    low, high = float(quotients[outside - 1]), float(quotients[n * m - outside])
    return judged(ratio, low, high, p)


def judged(ratio: float, low: float, high: float, p: float) -> Change:
    """Return a change with the verdict that follows from the ratio and its interval."""
    if low >= 1 / (1 + MARGIN) and high <= 1 + MARGIN:
        verdict = "same"
    else:
        faster, slower = low > 1 and ratio > 1 + MARGIN, high < 1 and ratio < 1 / (1 + MARGIN)
        verdict = "faster" if faster else "slower" if slower else "ambiguous"
    return Change(ratio, low, high, p, verdict)


class Between:
    """The standard deviation between files of unchanged points, in addition to the errors of their visits, by time.

    It makes the median of the standardized differences of the controls with the nearest times that of Student's t; 0 if
    the errors explain the differences. The nearest times are a third of the controls, at least ``CONTROLS`` and at most
    ``noise.NEIGHBOURS``. This is the random-effects model of meta-analysis (DerSimonian and Laird, *Control. Clin.
    Trials* 7, 1986).

    Parameters
    ----------
    times, differences, errors, freedom : ndarray
        Of each control, ``CONTROLS`` or more: logarithm of its seconds, magnitude of the difference of logarithms, its
        error and degrees of freedom.
    """

    def __init__(self, times: np.ndarray, differences: np.ndarray, errors: np.ndarray, freedom: np.ndarray):
        order = np.argsort(times, kind="stable")
        scale = noise.criticals(0.5, freedom)
        columns = (times, differences / scale, errors)
        width = int(np.clip(len(times) // 3, CONTROLS, noise.NEIGHBOURS))
        self.freedom = 0.37 * width  # the efficiency of a median of magnitudes
        at, differences, errors = (np.lib.stride_tricks.sliding_window_view(each[order], width) for each in columns)
        low, high = np.zeros(len(at)), differences.max(axis=1)
        for _ in range(30):
            middle = (low + high) / 2
            more = np.median(differences / np.hypot(errors, middle[:, None]), axis=1) > 1
            low, high = np.where(more, middle, low), np.where(more, high, middle)
        enough = np.median(differences / errors, axis=1) <= 1
        self.times, self.spreads = np.median(at, axis=1), np.where(enough, 0.0, high)

    def at(self, times: np.ndarray) -> np.ndarray:
        """Return the standard deviation at these logarithms of seconds."""
        return np.interp(times, self.times, self.spreads)


class Evidence:
    """The visits of several files, and the differences of a point between them that occur by chance.

    The spread between visits is that of ``noise``, with one prior for all files. The baselines of the variants are
    controls: they did not change. Where they differ more than their visits explain, the spread between files of the
    controls of similar time is added to the error of a point, and the intervals are widened until they cover the
    largest differences (an empirical null: Efron, J. Am. Stat. Assoc. 99, 2004).

    Parameters
    ----------
    frames : sequence of DataFrame
        Of ``analysis.measurements``, of each file. The rows of all files are numbered in this order; ``offsets`` has
        the number of the first row of each.
    slowest : sequence of DataFrame
        Of ``analysis.slowest_ranks``.
    of : {"kernel", "call"}
    unchanged : sequence of (int, int)
        Pairs of files with the same libraries.
    """

    def __init__(
        self,
        frames: Sequence[pd.DataFrame],
        slowest: Sequence[pd.DataFrame],
        of: str,
        unchanged: Sequence[tuple[int, int]],
    ):
        phase, call = {"kernel": ("kernel", 0), "call": ("total", 1)}[of]
        self.offsets = [0, *itertools.accumulate(map(len, frames))][:-1]
        parts = [visits.of_rows(each[each["call"] == call], phase) for each in slowest]
        parts = [
            each.assign(measurement=each["measurement"] + first)
            for each, first in zip(parts, self.offsets, strict=True)
        ]
        taken = pd.concat(parts, ignore_index=True)
        both = pd.concat([frame.assign(file=i) for i, frame in enumerate(frames)], ignore_index=True)
        added = sorted({name for each in OPERATIONS.values() for name in (*each.scalars, *each.dimensions)})
        groups = visits.alike(both, [name for name in added if name in both], "file", "machine")
        self.known = visits.priors(both, taken, groups)
        found = visits.gathered(taken["measurement"].to_numpy(), taken["log"].to_numpy(), len(both))
        self.count, self.centre, self.variance = (found[name].to_numpy() for name in ("count", "median", "var"))
        self.device = both["device"].to_numpy()
        self.between: dict[str, Between] = {}
        self.wider: dict[str, float] = {}
        self.drift: dict[str, float] = {}
        self._look_at_controls(frames, unchanged)

    def _look_at_controls(self, frames: Sequence[pd.DataFrame], unchanged: Sequence[tuple[int, int]]) -> None:
        """Find the part of the differences of baselines that their visits do not explain, on each device."""
        beside = [
            frame[(frame["baseline"] == 1) & ~analysis.is_own(frame) & ~frame["superseded"] & (frame["passed"] == 1)]
            for frame in frames
        ]
        at = [dict(zip(key, frame.index, strict=True)) for key, frame in zip(keys_of(beside), beside, strict=True)]
        both = [
            (at[i][key] + self.offsets[i], at[j][key] + self.offsets[j])
            for i, j in unchanged
            for key in at[i]
            if key in at[j]
        ]
        pairs = np.array(both, int).reshape(-1, 2)
        for device in set(self.device):
            own = pairs[self.device[pairs[:, 0]] == device]
            differences, errors, freedom = self.differences(own[:, :1], own[:, 1:], device)
            some = np.isfinite(differences / errors) & (freedom > 0)
            if some.sum() >= CONTROLS:
                differences, errors, freedom = np.abs(differences[some]), errors[some], freedom[some]
                times = self.centre[own[some]].mean(axis=1)
                self.between[device] = Between(times, differences, errors, freedom)
                standard = differences / np.hypot(errors, self.between[device].at(times))
                expected = {share: noise.criticals(1 - share, freedom) for share in (0.5, 0.9)}
                factors = [np.quantile(standard, share) / np.median(each) for share, each in expected.items()]
                self.wider[device] = max(1.0, *map(float, factors))
                self.drift[device] = float(1.4826 * np.median(differences))

    def differences(self, first: np.ndarray, second: np.ndarray, device: str) -> tuple[np.ndarray, ...]:
        """Return log ratios of measurements of one device, their standard errors and degrees of freedom.

        ``first`` and ``second`` have a row for each difference: the rows of all files that it averages.
        """
        centres = [self.centre[at].mean(axis=1) for at in (first, second)]
        freedoms = [np.maximum(self.count[at] - 1, 0) for at in (first, second)]
        freedom = freedoms[0].sum(axis=1) + freedoms[1].sum(axis=1)
        parts = [
            (np.nan_to_num(self.variance[at]) * own).sum(axis=1)
            for at, own in zip((first, second), freedoms, strict=True)
        ]
        variance = (parts[0] + parts[1]) / np.maximum(freedom, 1)
        prior = self.known.get(device) or noise.Prior(*np.empty((3, 0)))
        middle = np.nan_to_num((centres[0] + centres[1]) / 2)
        variance, freedom = prior.moderated(middle, variance, freedom)
        spreads = [
            np.sqrt((noise.median_spread(self.count[at]) ** 2).sum(axis=1)) / at.shape[1] for at in (first, second)
        ]
        return centres[0] - centres[1], np.sqrt(variance) * np.hypot(*spreads), freedom

    def change(self, before: Sequence[int], after: Sequence[int], share: float = ALPHA) -> Change | None:
        """Compare rows of all files by their visits; None if the spread between visits is unknown.

        The mean of the logarithms of the rows counts. ``share`` is the significance level.
        """
        device = self.device[before[0]]
        (log,), (error,), (freedom,) = self.differences(np.array([before]), np.array([after]), device)
        if not (np.isfinite(log) and freedom > 0):
            return None
        # the state of a file is that of all its rows; a mean over several files has less of it
        known = self.between.get(device)
        if known and (between := float(known.at(self.centre[[*before, *after]].mean()))):
            between *= math.sqrt((1 / len(before) + 1 / len(after)) / 2)
            both = error**2 + between**2  # with the degrees of freedom of Welch and Satterthwaite
            freedom = both**2 / (error**4 / freedom + between**4 / known.freedom)
            error = math.sqrt(both)
        error *= self.wider.get(device, 1.0)
        width = error * float(noise.criticals(share, [freedom])[0])
        p = noise.outside(abs(log) / error, freedom)
        if width > WIDEST:
            return Change(math.exp(log), math.nan, math.nan, p, "ambiguous")
        return judged(*(math.exp(each) for each in (log, log - width, log + width)), p)

    def spread(self, device: str) -> float:
        """Return the median spread between visits on a device; NaN if unknown."""
        prior = self.known.get(device)
        return float(np.median(np.sqrt(prior.variances))) if prior and prior.known else math.nan

    def notes(self) -> list[str]:
        """Return sentences about the noise of each device."""
        found = []
        for device in dict.fromkeys(self.device):
            spread, drift = self.spread(device), self.drift.get(device, math.nan)
            if math.isnan(spread):
                found.append(
                    f"{DEVICES[device].title}: one visit of each point, so the spread between visits is unknown: "
                    "intervals cover repetitions only, and unchanged points may be called changed"
                )
                continue
            text = f"{DEVICES[device].title}: visits scatter by {percent(spread)} (median)"
            if not math.isnan(drift):
                text += f"; the unchanged baselines differ by {percent(drift)} between the files"
            if max(spread, 0.0 if math.isnan(drift) else drift) > visits.NOISY:
                text += f"; above {percent(visits.NOISY)} this machine is too noisy to detect small changes"
            found.append(text)
        return found


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison of two files.

    ``rows`` has one row per point of both files: the columns of ``analysis.measurements`` that identify a point,
    ``before`` and ``after`` (median seconds), ``ratio``, ``low``, ``high`` and ``p`` as in ``Change``, ``verdict``,
    one of ``VERDICTS``, and ``where``, the first wrong element in the second file. ``missing`` counts the points of
    the first file only, ``added`` those of the second file only. ``differences`` lists other differences, and ``noise``
    has a sentence per device about the noise of the machine.
    """

    rows: pd.DataFrame
    missing: int
    added: int
    differences: tuple[str, ...]
    noise: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        found = self.rows["verdict"].value_counts()
        return {verdict: int(found[verdict]) for verdict in VERDICTS if verdict in found}

    @property
    def line(self) -> str:
        """A summary in one line."""
        points = f"{len(self.rows)} point" + ("s" if len(self.rows) != 1 else "")
        counts = ", ".join(f"{count} {verdict}" for verdict, count in self.counts.items())
        return f"{points} in both{': ' if counts else ''}{counts}; {self.missing} only before, {self.added} only after"

    @property
    def changed(self) -> pd.DataFrame:
        """The points that are wrong or differ: the newly wrong ones first, then the largest differences of time."""
        rows = self.rows[~self.rows["verdict"].isin(UNCHANGED)]
        strength = np.log(rows["ratio"].astype(float)).abs().where(rows["verdict"] != "broken", math.inf)
        return rows.loc[strength.sort_values(ascending=False, kind="stable").index]

    def regressions(self, least: float) -> pd.DataFrame:
        """Return the points that are slower by more than ``least`` times the earlier time, or wrong now."""
        slower = (self.rows["verdict"] == "slower") & (1 / self.rows["ratio"] - 1 > least)
        return self.rows[slower | (self.rows["verdict"] == "broken")]


def compare(before: Columns, after: Columns, scope: str = "kernel", anyway: bool = False) -> Comparison:
    """Compare two timings files.

    Parameters
    ----------
    before, after : mapping
        From ``store.read``.
    scope : {"kernel", "call"}
        The kernel alone, or end to end. An algorithm that is timed in only one way is compared by that one.
    anyway : bool
        Compare files also if devices or cache settings differ.

    Raises
    ------
    ComparisonError
        If the files have no point in common, or if devices or cache settings differ.
    """
    kinds, notes = differences(before, after)
    if kinds and not anyway:
        raise ComparisonError(
            f"these files differ in device or caches: {'; '.join(kinds)}; use --anyway to compare them"
        )
    derived = [analysis.measurements(columns) for columns in (before, after)]
    slowest = [analysis.slowest_ranks(*pair) for pair in zip((before, after), derived, strict=True)]
    times = [_times(each) for each in slowest]
    unchanged = not kinds and same_libraries(notes)
    evidence = {of: Evidence(derived, slowest, of, [(0, 1)] if unchanged else []) for of in SCOPES}
    frames = [analysis.points(frame) for frame in derived]
    if frames[0].empty or frames[1].empty:
        raise ComparisonError("nothing to compare: a file has no measured point")
    known = [frame.assign(key=key, at=frame.index) for frame, key in zip(frames, keys_of(frames), strict=True)]
    both = known[1].merge(known[0][["key", "result", "at"]], on="key", suffixes=("", "_before"))
    if both.empty:
        raise ComparisonError("these files have no point in common (same sweep, variant, size, type and ranks)")
    found, labels = [], []
    for row in analysis.row_dicts(both):
        measures = ALGORITHMS[row["algorithm"]].measures
        of = scope if scope in measures else measures[0]  # some algorithms are timed in one way only
        labels.append(row["label"] + ("" if of == scope else f", {SCOPES[of]}"))
        first, second = times[0].get((row["at_before"], of), []), times[1].get((row["at"], of), [])
        passed = (row["result_before"] == "PASS", row["result"] == "PASS")
        if passed != (True, True):
            found.append({"verdict": {(True, False): "broken", (False, True): "mended"}.get(passed, "FAIL")})
        elif not len(first) or not len(second):
            found.append({"verdict": "ambiguous"})
        else:
            result = change(first, second)
            at = row["at_before"], row["at"] + evidence[of].offsets[1]
            if result.p < 1 or result.verdict != "same":  # not identical samples
                result = evidence[of].change(*([each] for each in at)) or result
            ends = (evidence[of].centre[each] for each in at)
            found.append(vars(result) | dict(zip(("before", "after"), map(math.exp, ends), strict=True)))
    names = ["before", "after", "ratio", "low", "high", "p", "verdict"]
    rows = both.assign(label=labels).drop(columns=["ratio"]).join(pd.DataFrame(found, columns=names, index=both.index))
    said = tuple(evidence[scope].notes())
    return Comparison(rows, len(frames[0]) - len(both), len(frames[1]) - len(both), tuple(kinds + notes), said)


def same_libraries(notes: Sequence[str]) -> bool:
    """Return whether no library is among the ``differences``, so that baselines did not change."""
    return not any(note.startswith(LIBRARIES) for note in notes)


def keys_of(frames: Sequence[pd.DataFrame], by_machine: bool = False) -> list[list[tuple]]:
    """Return a key for each point of several files. It has the machine if ``by_machine``, or if one file has several.

    If a file lacks the column of a scalar, none of its points has that scalar.
    """
    scalars = {name for operation in OPERATIONS.values() for name in operation.scalars}
    names = [name for name in IDENTITY if not name.startswith("contender")]
    names = list(dict.fromkeys([*names, *dimensions(), *sorted(scalars)]))
    rows = [frame.reindex(columns=[*names, "machine"]) for frame in frames]
    if not by_machine and not any(each.duplicated(names).any() for each in rows):
        rows = [each[names] for each in rows]
    return [
        [tuple(None if value != value else value for value in row) for row in each.to_numpy(object).tolist()]
        for each in rows
    ]


def _times(slowest: pd.DataFrame) -> dict[tuple[int, str], np.ndarray]:
    """Return the seconds of the slowest rank per repetition, by measurement and by ``SCOPES``."""
    found = {}
    for of, column in (("kernel", "kernel"), ("call", "total")):
        seconds = slowest.loc[slowest["call"] == (of == "call"), ["measurement", column]].dropna()
        found |= {(index, of): group.to_numpy() for index, group in seconds.groupby("measurement")[column]}
    return found


def differences(before: Columns, after: Columns) -> tuple[list[str], list[str]]:
    """Return differences of devices and caches, and other differences, each as ``"GPU: A, then B"``."""
    found = []
    for first, second in zip(_conditions(before), _conditions(after), strict=True):
        differ = [name for name in first if name in second and first[name] != second[name]]
        found.append(
            [f"{name}: {', '.join(sorted(first[name]))}, then {', '.join(sorted(second[name]))}" for name in differ]
        )
    return found[0], found[1]


def _conditions(columns: Columns) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Return devices and cache settings of the runs of a file, and their software."""
    kind: dict[str, set[str]] = {}
    software: dict[str, set[str]] = {}
    devices = set(columns["measurements"]["device"])

    def add(found: dict[str, set[str]], name: str, value: Any) -> None:
        if value not in (None, ""):
            found.setdefault(name, set()).add(str(value))

    for run in analysis.runs(columns):
        provenance = run["provenance"]
        cpu, mpi, measuring = (analysis.mapping(provenance.get(name)) for name in ("cpu", "mpi", "measuring"))
        for gpu in analysis.gpus_of(provenance):
            add(kind, "GPU", gpu.get("name"))
            add(software, "driver", gpu.get("driver"))
            add(software, "CUDA runtime", gpu.get("cuda_runtime"))
        if not all(DEVICES[device].accelerator for device in devices):
            add(kind, "CPU", cpu.get("model"))
            add(kind, f"CPU threads per rank (ranks: {mpi.get('ranks', 1)})", cpu.get("threads_per_rank"))
            add(software, "BLAS", cpu.get("blas"))
        add(kind, "caches", measuring.get("cache"))
        add(software, "MPI", mpi.get("library"))
        add(software, "hpcmm", provenance.get("hpcmm"))
    return kind, software
