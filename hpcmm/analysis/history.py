"""The trend of each point over many runs, and the runs at which it changed."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpcmm import analysis
from hpcmm.analysis import Columns, compare
from hpcmm.analysis.evidence import ALPHA, Change, Evidence, keys_of
from hpcmm.analysis.tidy import MISSING
from hpcmm.model import HpcmmError
from hpcmm.system.text import plural

CHANGED = ("faster", "slower")


@dataclass(frozen=True)
class Run:
    """One file of a history.

    ``differences`` are those of devices and software from the latest earlier file of the same kind of machine.
    """

    name: str
    utc: str
    revision: str
    hosts: tuple[str, ...]
    differences: tuple[str, ...]


@dataclass(frozen=True)
class Step:
    """A change of a point: the first run after it, and the median seconds before and after; NaN if a result changed."""

    run: int
    before: float
    after: float
    change: Change


@dataclass(frozen=True)
class Trend:
    """A point on one kind of machine over the runs that measured it.

    ``point`` is its newest row of ``analysis.measurements``, ``label`` its name. ``runs`` are indices into
    ``History.runs``; ``seconds``, ``low``, ``high`` and ``results`` have an entry for each of them. The seconds of a
    result that is wrong are NaN.
    """

    point: Mapping[str, Any]
    label: str
    runs: tuple[int, ...]
    seconds: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    results: tuple[str, ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class History:
    """Runs by time, the trends of their points, sentences about noise, and whether successive runs have controls."""

    runs: tuple[Run, ...]
    trends: tuple[Trend, ...]
    noise: tuple[str, ...]
    judged: bool

    @property
    def line(self) -> str:
        changed = sum(bool(trend.steps) for trend in self.trends)
        what = f"{changed} changed" if self.judged else "none judged"
        return f"{plural(len(self.trends), 'point')} over {len(self.runs)} runs: {what}"

    def plain(self) -> dict[str, Any]:
        names = ("sweep", "operation", "variant", "algorithm", "setting", "dtype", "m", "n", "k", "tile", "memory")
        names += ("ranks", "device", "machine")
        trends = []
        for trend in self.trends:
            changes = [
                {"run": step.run, "verdict": step.change.verdict, "before": step.before, "after": step.after}
                | {name: getattr(step.change, name) for name in ("ratio", "low", "high", "p")}
                for step in trend.steps
            ]
            times = {name: getattr(trend, name) for name in ("seconds", "low", "high")}
            about = {"label": trend.label, "runs": trend.runs, "results": trend.results}
            trends.append({name: trend.point[name] for name in names} | about | times | {"changes": changes})
        history = {"format": "hpcmm history", "version": 1, "runs": list(map(vars, self.runs)), "trends": trends}
        return history | {"noise": self.noise}


def history(files: Mapping[str, Columns], scope: str = "kernel") -> History:
    """Follow each point of several timings files, by their names, through time; ``scope`` is one of ``compare``."""
    order = sorted(files, key=lambda name: (_date(files[name]), name))
    columns = [files[name] for name in order]
    runs = _runs(order, columns)
    frames, evidence = compare.evidence_of(columns)
    found: dict[tuple, list[tuple[int, Mapping]]] = {}
    for i, (frame, keys) in enumerate(zip(frames, keys_of(frames, by_machine=True), strict=True)):
        rows = analysis.row_dicts(frame.assign(at=frame.index + evidence[scope].offsets[i]))
        for key, row in zip(keys, rows, strict=True):
            found.setdefault(key, []).append((i, row))
    trends = [_trend(_measured(entries, columns), evidence, scope) for entries in found.values()]
    trends = [trend for trend in trends if len(trend.runs) > 1]
    if not trends:
        alike = "same sweep, variant, size, type, ranks and kind of machine"
        raise HpcmmError(f"no point is in two of these files ({alike})")
    of = evidence[scope]
    judged = any(of.controls((i,), (i + 1,), each) for i in range(len(runs) - 1) for each in set(of.device))
    return History(tuple(runs), tuple(trends), tuple(of.notes()), judged)


def _date(columns: Columns) -> str:
    return max((str(run.get("utc") or "") for run in analysis.runs(columns)), default="")


def _runs(names: Sequence[str], columns: Sequence[Columns]) -> list[Run]:
    runs = []
    for i, (name, each) in enumerate(zip(names, columns, strict=True)):
        texts = ([str(run.get(key) or "") for run in analysis.runs(each)] for key in ("revision", "host"))
        revisions, hosts = (tuple(filter(None, dict.fromkeys(of_runs))) for of_runs in texts)
        others = (compare.differences(columns[earlier], each) for earlier in reversed(range(i)))
        notes = next((tuple(software) for kinds, software in others if not kinds), ())
        runs.append(Run(name, _date(each), ", ".join(revisions), hosts, notes))
    return runs


def _measured(entries: Sequence[tuple[int, Mapping]], columns: Sequence[Columns]) -> Iterator[tuple[int, Mapping]]:
    """Yield the entries of a point, without results that a later file copied from an earlier one."""
    known = set()
    for i, row in entries:
        runs = columns[i]["runs"]
        times = str((row["seconds"], row["call_seconds"]))  # NaN does not equal itself
        source = (runs["batch"][row["run"]], runs["provenance"][row["run"]], times)
        if source not in known:
            known.add(source)
            yield i, row


def _trend(entries: Iterator[tuple[int, Mapping]], evidence: Mapping[str, Evidence], scope: str) -> Trend:
    entries = list(entries)
    runs, rows = zip(*entries, strict=True)
    of, label = compare.timed(rows[-1], scope)
    prefix = {"kernel": "", "call": "call_"}[of]
    times = [[row[f"{prefix}seconds{end}"] for row in rows] for end in ("", "_low", "_high")]
    passed = [i for i, row in enumerate(rows) if row["result"] == "PASS" and math.isfinite(times[0][i])]
    steps = [
        Step(runs[passed[at]], before, after, change)
        for at, before, after, change in steps_of(evidence[of], [rows[i]["at"] for i in passed])
    ]
    for i, (before, after) in enumerate(itertools.pairwise(row["result"] for row in rows), 1):
        if before != after and (verdict := compare.of_results(before, after)) not in ("FAIL", MISSING):
            steps.append(Step(runs[i], math.nan, math.nan, Change(math.nan, verdict=verdict)))
    results = tuple(row["result"] for row in rows)
    return Trend(rows[-1], label, runs, *map(tuple, times), results, tuple(sorted(steps, key=lambda step: step.run)))


def steps_of(evidence: Evidence, rows: Sequence[int]) -> list[tuple[int, float, float, Change]]:
    """Find where the time of a point changes, by the test of ``compare`` between the runs before and after.

    Binary segmentation: the runs are divided where the cumulative sums of their times differ most among the places that
    pass the test, and then each part again. At the end, a division that is not significant between its neighbouring
    parts is removed. The level of ``compare`` is that of the whole trend: it is divided among the places at which the
    trend may change.

    ``rows`` are the point's measurements in the order of time, numbered as in ``evidence``. Return the index of the
    first row after each change, the seconds before and after (the geometric means of the runs), and the change.
    """
    if len(rows) < 2:
        return []
    share = ALPHA / (len(rows) - 1)

    def between(first: int, middle: int, last: int) -> Change:
        return evidence.change(rows[first:middle], rows[middle:last], share)

    def divide(first: int, last: int) -> list[int]:
        found = [(middle, between(first, middle, last)) for middle in range(first + 1, last)]
        found = [(middle, change) for middle, change in found if change.verdict in CHANGED]
        if not found:
            return []

        def size(each: tuple[int, Change]) -> float:  # the statistic of cumulative sums
            return abs(math.log(each[1].ratio)) * math.sqrt((each[0] - first) * (last - each[0]))

        middle, _ = max(found, key=size)
        return [*divide(first, middle), middle, *divide(middle, last)]

    ends = [0, *divide(0, len(rows)), len(rows)]
    while True:
        changes = [between(*ends[i : i + 3]) for i in range(len(ends) - 2)]
        unsure = [i for i, change in enumerate(changes) if change.verdict not in CHANGED]
        if not unsure:
            break
        del ends[max(unsure, key=lambda i: changes[i].p) + 1]
    levels = [math.exp(evidence.centre[rows[first:last]].mean()) for first, last in itertools.pairwise(ends)]
    return [(ends[i + 1], levels[i], levels[i + 1], change) for i, change in enumerate(changes)]
