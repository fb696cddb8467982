"""Compare two timings files point by point, by their visits."""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pandas as pd

from hpcmm import analysis
from hpcmm.analysis import Columns, visits
from hpcmm.analysis.evidence import ALPHA, UNJUDGED, Change, Evidence, keys_of, percent
from hpcmm.analysis.tidy import MISSING, slowest_ranks
from hpcmm.model import HpcmmError
from hpcmm.model.devices import DEVICES
from hpcmm.parallel import ALGORITHMS
from hpcmm.system.text import plural

FAMILY = 0.05  # largest chance that a gate calls any point of unchanged code slower
LIBRARIES = ("driver", "CUDA runtime", "BLAS")  # baselines may differ with the version

SCOPES = {"kernel": "the kernel alone", "call": "end to end"}
PHASES = {"kernel": ("kernel", 0), "call": ("total", 1)}  # scope: phase, and whether it is timed end to end
LOST = "no longer measured"
WORSE = ("broken", LOST)  # whatever the times
VERDICTS = (*WORSE, "slower", "ambiguous", "faster", "mended", "same", UNJUDGED, "FAIL", MISSING)
TIMED = ("slower", "ambiguous", "faster", "same")
UNCHANGED = ("same", "ambiguous", UNJUDGED, MISSING)  # no difference, or none that is certain
NONE_JUDGED = "No point has a verdict, so whether one changed is unknown."


def adjusted(p: np.ndarray) -> np.ndarray:
    """Return p adjusted for the number of tests by Holm's method; NaN is no test.

    The smallest of m values is multiplied by m, the next one by m - 1, and so on (Holm, *Scand. J. Stat.* 6, 1979).
    Of unchanged points alone, one is below a level with at most this chance, however the points depend on each other.

    >>> adjusted(np.array([0.01, np.nan, 0.2, 0.04])).round(3).tolist()
    [0.03, nan, 0.2, 0.08]
    """
    result = np.full(len(p), np.nan)
    order = np.argsort(p, kind="stable")[: np.isfinite(p).sum()]  # NaN is last
    factors = np.arange(len(order), 0, -1)
    result[order] = np.minimum(np.maximum.accumulate(p[order] * factors), 1.0)
    return result


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison of two files.

    ``rows`` has one row per point of both files: the columns of ``analysis.measurements`` that identify a point,
    ``before`` and ``after`` (median seconds), ``ratio``, ``low``, ``high``, ``p`` and ``least`` as in ``Change``,
    ``adjusted``: p by the function of this name, ``gate``: the least change that the gate finds, ``verdict``, one of
    ``VERDICTS``, and ``where``, the first wrong element in the second file. ``missing`` counts the points of the first
    file only, ``added`` those of the second file only. ``differences`` lists other differences, and ``noise`` has
    sentences about the noise of the machine and the changes that would have been found.
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
        counts = ", ".join(f"{count} {verdict}" for verdict, count in self.counts.items())
        shown = f"{plural(len(self.rows), 'point')} in both{': ' if counts else ''}{counts}"
        return f"{shown}; {self.missing} only before, {self.added} only after"

    @property
    def changed(self) -> pd.DataFrame:
        """The points that are wrong or differ: the newly wrong ones first, then the largest differences of time."""
        rows = self.rows[~self.rows["verdict"].isin(UNCHANGED)]
        strength = np.log(rows["ratio"].astype(float)).abs().where(~rows["verdict"].isin(WORSE), math.inf)
        return rows.loc[strength.sort_values(ascending=False, kind="stable").index]

    def regressions(self, least: float) -> pd.DataFrame:
        """Return the points that are slower by more than ``least`` times the earlier time, wrong or not measured now.

        Of unchanged code, any point is among them with a chance of at most ``FAMILY``.
        """
        slower = (self.rows["verdict"] == "slower") & (1 / self.rows["ratio"] - 1 > least)
        return self.rows[slower & (self.rows["adjusted"] <= FAMILY) | self.rows["verdict"].isin(WORSE)]

    @property
    def gate(self) -> float:
        """The change from which on the gate finds a slowdown: the median of the points that it passes."""
        return float(self.rows["gate"].median())

    @property
    def judged(self) -> bool:
        """Whether the times of any point have a verdict."""
        return bool(self.rows["verdict"].isin(TIMED).any())


def compare(before: Columns, after: Columns, scope: str = "kernel", anyway: bool = False) -> Comparison:
    """Compare two timings files.

    ``scope`` is a key of ``SCOPES``. Raise HpcmmError if the files have no point in common, or if devices or cache
    settings differ, unless they are to be compared ``anyway``.
    """
    kinds, notes = differences(before, after)
    if kinds and not anyway:
        raise HpcmmError(f"these files differ in device or caches: {'; '.join(kinds)}; use --anyway to compare them")
    frames, evidence = evidence_of((before, after), controlled=not kinds)
    if frames[0].empty or frames[1].empty:
        raise HpcmmError("nothing to compare: a file has no measured point")
    known = [frame.assign(key=key, at=frame.index) for frame, key in zip(frames, keys_of(frames), strict=True)]
    both = known[1].merge(known[0][["key", "result", "at"]], on="key", suffixes=("", "_before"))
    if both.empty:
        raise HpcmmError("these files have no point in common (same sweep, variant, size, type and ranks)")
    found, labels, places = [], [], {}
    for row in analysis.row_dicts(both):
        of, label = timed(row, scope)
        labels.append(label)
        if verdict := of_results(row["result_before"], row["result"]):
            found.append({"verdict": verdict})
            continue
        at = row["at_before"], row["at"] + evidence[of].offsets[1]
        places[len(found)] = (of, *at)
        ends = (evidence[of].centre[each] for each in at)
        result = evidence[of].change(*([each] for each in at))
        found.append(vars(result) | dict(zip(("before", "after"), map(math.exp, ends), strict=True)))
    names = ["before", "after", *(field.name for field in fields(Change))]
    rows = both.assign(label=labels).drop(columns=["ratio"]).join(pd.DataFrame(found, columns=names, index=both.index))
    rows["adjusted"] = adjusted(rows["p"].to_numpy(float))
    gates = np.full(len(rows), math.nan)
    others = rows["adjusted"] > FAMILY
    share = min(ALPHA, FAMILY / max(1, int(others.sum())))  # Holm's level after the points below it
    for i in np.flatnonzero(others):
        of, *at = places[i]
        gates[i] = evidence[of].change(*([each] for each in at), share).least
    rows["gate"] = gates
    # which changes would have been found: by sweep, the median of the points; sweeps of one change together
    medians = rows.dropna(subset="least").groupby("sweep", sort=False)["least"].median().sort_values().map(percent)
    sweeps = medians.groupby(medians, sort=False).groups
    shown = "; ".join(f"{least}: {', '.join(names)}" for least, names in sweeps.items())
    said = [f"a change is called faster or slower from this on (median of the points): {shown}"] if shown else []
    without = (len(frame) - len(both) for frame in frames)
    return Comparison(rows, *without, tuple(kinds + notes), (*evidence[scope].notes(), *said))


def of_results(before: str, after: str) -> str:
    """Return the verdict by the results of a point; empty if both are right, and times decide.

    >>> [of_results("PASS", each) for each in ("PASS", "FAIL", MISSING)]
    ['', 'broken', 'no longer measured']
    >>> [of_results(each, "PASS") for each in ("FAIL", MISSING)]
    ['mended', 'not measured']
    """
    if MISSING in (before, after):
        return LOST if before == "PASS" else "FAIL" if after == "FAIL" else MISSING
    if before == after:
        return "" if after == "PASS" else "FAIL"
    return "mended" if after == "PASS" else "broken"


def evidence_of(files: Sequence[Columns], controlled: bool = True) -> tuple[list[pd.DataFrame], dict[str, Evidence]]:
    """Return the points of each file, and the evidence by scope; it is not ``controlled`` if devices differ."""
    derived = [analysis.measurements(columns) for columns in files]
    libraries = [libraries_of(columns) for columns in files] if controlled else None
    evidence = {}
    for of, (phase, call) in PHASES.items():
        slowest = (slowest_ranks(*pair, call, [phase]) for pair in zip(files, derived, strict=True))
        evidence[of] = Evidence(derived, [visits.of_rows(each, phase) for each in slowest], libraries)
    return list(map(analysis.points, derived)), evidence


def timed(row: Mapping[str, Any], scope: str) -> tuple[str, str]:
    """Return the scope that a point is compared by, and its label; some algorithms are timed in one way only."""
    measures = ALGORITHMS[row["algorithm"]].measures
    of = scope if scope in measures else measures[0]
    return of, row["label"] + ("" if of == scope else f", {SCOPES[of]}")


def libraries_of(columns: Columns) -> Hashable:
    """Return the versions of the libraries of a file, which may change its baselines."""
    software = _conditions(columns)[1]
    return tuple(tuple(sorted(software.get(name, ()))) for name in LIBRARIES)


def differences(before: Columns, after: Columns) -> tuple[list[str], list[str]]:
    """Return differences of devices and caches, and other differences, each as ``"GPU: A, then B"``."""
    texts_of = []
    for first, second in zip(_conditions(before), _conditions(after), strict=True):
        differ = [name for name in first if name in second and first[name] != second[name]]
        both = {name: (", ".join(sorted(each[name])) for each in (first, second)) for name in differ}
        texts_of.append([f"{name}: {', then '.join(texts)}" for name, texts in both.items()])
    return texts_of[0], texts_of[1]


def _conditions(columns: Columns) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    kinds, versions = [], []
    on_cpu = not all(DEVICES[device].accelerator for device in set(columns["measurements"]["device"]))
    for provenance in analysis.runs(columns):
        cpu, mpi, measuring = (analysis.mapping(provenance.get(name)) for name in ("cpu", "mpi", "measuring"))
        versions += [("MPI", mpi.get("library")), ("hpcmm", provenance.get("hpcmm"))]
        for gpu in analysis.gpus_of(provenance):
            kinds.append(("GPU", gpu.get("name")))
            versions += [("driver", gpu.get("driver")), ("CUDA runtime", gpu.get("cuda_runtime"))]
        if on_cpu:
            threads = f"CPU threads per rank (ranks: {mpi.get('ranks', 1)})"
            kinds += [("CPU", cpu.get("model")), (threads, cpu.get("threads_per_rank"))]
            versions.append(("BLAS", cpu.get("blas")))
        kinds.append(("caches", measuring.get("cache")))
    return _by_name(kinds), _by_name(versions)


def _by_name(pairs: Iterable[tuple[str, Any]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for name, value in pairs:
        if value not in (None, ""):
            found.setdefault(name, set()).add(str(value))
    return found
