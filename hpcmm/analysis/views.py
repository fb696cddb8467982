"""Views of the measurements for tables and figures: series, ladders, rooflines, phases and counts."""

import functools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from hpcmm import store
from hpcmm.analysis.levels import ceilings, levels
from hpcmm.analysis.tidy import ENDS, MISSING, Columns, is_own, passed_samples, points, row_dicts
from hpcmm.model import HpcmmError
from hpcmm.model.quantities import PHASES, RESOURCES, STATES
from hpcmm.operations import OPERATIONS, dimensions
from hpcmm.system.text import choices, plural

MOST_STATES = 400  # points of a figure of clocks, temperature or power

Row = Mapping[str, Any]
SERIES = ["sweep", "operation", "dtype", "ranks", "setting"]  # equal for all points of a series


@dataclass(frozen=True)
class Series:
    """The points of one table: one sweep, dtype, number of ranks and setting of the operation's parameters.

    ``points`` are rows of ``measurements``, sorted by size and then in the order of the ladder.
    """

    sweep: str
    operation: str
    dtype: str
    ranks: int
    setting: str
    points: pd.DataFrame

    @property
    def key(self) -> tuple:
        """``SERIES`` of all points."""
        return values(vars(self), SERIES)

    @functools.cached_property
    def rows(self) -> list[Row]:
        return row_dicts(self.points)


def series(frame: pd.DataFrame) -> Iterator[Series]:
    """Split the points into series, with sweeps in the order of the file, without resource columns."""
    rows = points(frame).drop(columns=list(RESOURCES))
    rows = rows.assign(position=pd.factorize(rows["sweep"])[0])
    rows = rows.sort_values(["position", "precision", "ranks", "setting", *dimensions(), "place"], kind="stable")
    for (sweep, operation, dtype, ranks, setting), part in rows.groupby(SERIES, sort=False):
        yield Series(sweep, operation, dtype, int(ranks), setting, part.reset_index(drop=True).copy())


def require_sweep(name: str, known: Iterable[str]) -> None:
    """Raise HpcmmError if a sweep is not one of those in a file."""
    known = list(dict.fromkeys(known))
    if name not in known and Path(name).exists():
        raise HpcmmError(f"{name} is a file or folder, not a sweep of the first one; hpcmm merge joins files")
    if name not in known:
        raise HpcmmError(f"sweep {name!r} is not in the file; allowed: {choices(name, known)}")


def of_sweeps(columns: Columns, frame: pd.DataFrame, names: Sequence[str]) -> tuple[Columns, pd.DataFrame]:
    """Return some sweeps of a file and of its ``measurements``, whose numbers stay those of the whole file."""
    known = [*dict.fromkeys(frame["sweep"]), *dict.fromkeys(columns["omitted"]["sweep"])]
    for name in names:
        require_sweep(name, known)
    rows = np.flatnonzero(frame["sweep"].isin(names))
    part = dict(store.select(columns, rows))
    of = np.isin(part["omitted"]["sweep"], list(names))
    part["omitted"] = {name: values[of] for name, values in part["omitted"].items()}
    return part, frame.iloc[rows].reset_index(drop=True).assign(run=part["measurements"]["run"])


# A report asks hundreds of times for a few rows: as mappings they take a tenth of the time of pandas.
def values(row: Row, names: Iterable[str]) -> tuple:
    """Return some values of a row, such as those that identify it."""
    return tuple(row[name] for name in names)


def grouped(rows: Iterable[Row], *names: str) -> dict[tuple, list[Row]]:
    """Return the rows with the same values, in the order of their first rows."""
    groups: dict[tuple, list[Row]] = {}
    for row in rows:
        groups.setdefault(values(row, names), []).append(row)
    return groups


def by_size(rows: Iterable[Row]) -> dict[tuple[int, ...], list[Row]]:
    """Return the rows of each shape, in the order of their first rows."""
    return grouped(rows, *dimensions())


def largest(rows: Sequence[Row]) -> list[Row]:
    """Return the points of one operation at the size with the most work; none of none."""
    metric = OPERATIONS[rows[0]["operation"]].metric if rows else ""
    return max(by_size(rows).values(), key=lambda at: at[0][metric], default=[])


def climbs(row: Row) -> bool:
    """Return whether a row is of a rung with code of its own: not of a library, or of one that runs another rung."""
    variant = OPERATIONS[row["operation"]].find(row["variant"])
    return row["role"] == "rung" and not (variant and variant.picks)


def ladder(rows: Iterable[Row]) -> list[Row]:
    """Add the speedup of each rung to the points of one series, in the order of the ladder.

    Each size and each device has its own ladder. ``counterpart`` is the label of the rung that a rung is compared with:
    its nearest counterpart that was measured, with its own tile, or the fastest one if only one of both has a tile;
    empty if there is none. ``compared`` is the row of that rung. ``step`` is its seconds divided by those of this rung,
    ``cumulative`` the seconds of the first rung divided by those of this rung. A library, a rung that runs another one,
    and a FAIL have no ``step``.
    """

    names = (*dimensions(), "device")
    ordered = sorted(rows, key=lambda row: values(row, (*names, "place")))
    first: dict[tuple, float] = {}  # seconds; NaN where it failed
    tiles: dict[tuple, dict[int, Row]] = {}
    for row in filter(climbs, ordered):
        first.setdefault(values(row, names), row["seconds"])
        tiles.setdefault(values(row, (*names, "memory", "variant")), {})[row["tile"]] = row
    parents = {v.name: v.counterpart for name in {row["operation"] for row in ordered} for v in OPERATIONS[name].ladder}
    steps = []
    for row in ordered:
        at = values(row, (*names, "memory"))
        name = parents.get(row["variant"], "") if climbs(row) else ""
        while name and (*at, name) not in tiles:
            name = parents.get(name, "")
        known = tiles.get((*at, name), {})
        passed = [each for each in known.values() if each["seconds"] > 0]
        passed = [each for each in passed if not (each["tile"] and row["tile"])]  # another tile is another idea
        compared = known.get(row["tile"]) or min(passed, key=lambda each: each["seconds"], default=None)
        seconds = row["seconds"] or math.nan
        step = {"step": compared["seconds"] / seconds if compared else math.nan, "compared": compared}
        cumulative = first.get(values(row, names), math.nan) / seconds
        steps.append(row | step | {"cumulative": cumulative, "counterpart": compared["label"] if compared else ""})
    return steps


def phases(rows: Sequence[Row]) -> list[Row]:
    """Return the points that were timed end to end, with ``share_<phase>`` of each phase in the end-to-end time.

    A phase is timed on its slowest rank, so with several ranks the shares may add up to more than 1.
    """
    return [
        row | {f"share_{phase}": row["call_" + phase] / row["call_seconds"] for phase in PHASES[:-1]}
        for row in rows
        if row["call_seconds"] > 0
    ]


def pooled(rows: pd.DataFrame) -> pd.DataFrame:
    """Return points with times, rates and ratios over all sweeps and jobs that measured their contenders there."""
    times = {f"seconds{end}": rows[f"pooled_{end.removeprefix('_') or 'seconds'}"] for end in ("", "_low", "_high")}
    counts = ("flops", "bytes")
    rates = {f"{of}_per_second{end}": rows[of] / times[f"seconds{other}"] for of in counts for end, other in ENDS}
    columns = [f"{of}{end}" for of in ("ratio", "tuned_ratio", "lead") for end in ("", "_low", "_high")]
    ratios = {name: rows[f"pooled_{name}"] for name in columns}
    return rows.assign(**times, **rates, **ratios)


def pitch_pairs(rows: Sequence[Row]) -> list[tuple[Row, Row]]:
    """Return the points of pitched rungs, each with that of the same kernel on unpadded rows, where both passed."""
    kernels = {v.name: v.counterpart for operation in OPERATIONS.values() for v in operation.ladder if v.pitched}
    names = (*dimensions(), "dtype", "ranks", "setting", "memory", "tile")
    plain: dict[tuple, Row] = {}
    passed = [(row, values(row, names)) for row in rows if row["result"] == "PASS"]
    for row, at in passed:
        plain.setdefault((row["variant"], *at), row)
    pairs = ((row, plain.get((kernels.get(row["variant"]), *at))) for row, at in passed)
    return [(row, other) for row, other in pairs if other]


@dataclass(frozen=True)
class Roof:
    """The rungs of one device of a machine in one element type, and the limits of their rates.

    ``rungs`` has the fastest point of each rung. Each of ``ceilings`` is a name, operations per second and bytes per
    second: of the hardware for each arithmetic, of the measured levels of memory, and the highest rates of this run.
    """

    device: str
    machine: str
    dtype: str
    rungs: pd.DataFrame
    ceilings: list[tuple[str, float, float]]


def rooflines(frame: pd.DataFrame) -> Iterator[Roof]:
    """Yield a roofline for each device and element type of a product, on one rank, if its hardware limit is known."""
    frame = frame[(frame["result"] == "PASS") & frame["seconds"].notna() & ~frame["superseded"]]
    measured = levels(frame)
    frame = frame[~frame["operation"].map(lambda name: OPERATIONS[name].cached).astype(bool)]
    peaks_of = ["peak_flops_per_second", "peak_bytes_per_second"]
    metric = frame["operation"].map(lambda name: OPERATIONS[name].metric)
    for (device, machine, gpu), on_device in frame.groupby(["device", "machine", "gpu"], sort=False):
        on_device = on_device[on_device["ranks"] == 1]
        bandwidth = on_device.loc[metric == "bytes", "bytes_per_second"].max()
        for dtype in dict.fromkeys(on_device.loc[metric == "flops", "dtype"]):
            rows = points(on_device[on_device["dtype"] == dtype])
            products = rows[metric[rows.index] == "flops"]
            if products.empty:
                continue
            rows = rows[rows["flops"] > 0]
            rungs = rows.loc[rows.groupby(["operation", "rung"], sort=False)["flops_per_second"].idxmax()]
            peaks = products.groupby("arithmetic")[peaks_of].median().itertuples()
            known = [(name or f"{dtype} arithmetic", *both) for name, *both in peaks if np.isfinite(both).all()]
            if known:
                most = max(flops for _, flops, _ in known)
                known += [(level, most, rate) for level, rate in ceilings(measured, gpu)]
                if np.isfinite(bandwidth):
                    known.append(("highest rates of this run", products["flops_per_second"].max(), bandwidth))
                rungs = rungs.sort_values(["operation", "place"]).reset_index(drop=True)
                yield Roof(device, machine, dtype, rungs, known)


def clock_samples(columns: Columns, frame: pd.DataFrame) -> pd.DataFrame:
    """Return the state of the GPU of rank 0, as medians of adjacent samples of one kind of GPU, a ``part``."""
    samples = columns["samples"]
    state = pd.DataFrame({name: np.asarray(samples[name], float) for name in STATES if name != "throttle_reasons"})
    known = state.notna().any(axis=1) & (samples["rank"] == 0)
    state = state[known].reset_index(names="sample")
    for name in ("sweep", "gpu"):
        state[name] = frame[name].to_numpy()[samples["measurement"][known]]
    state["part"] = (state["gpu"] != state["gpu"].shift()).cumsum()
    width = -(-len(state) // MOST_STATES) or 1
    by = state.groupby([state.index // width, "part"])
    whole = by[[name for name in STATES if name in state]].median().join(by[["sample", "sweep", "gpu"]].first())
    return whole.reset_index("part")


def activities(columns: Columns, frame: pd.DataFrame) -> pd.DataFrame:
    """Sum up the end-to-end times by activity, as a profiler does, one row per point and activity.

    Added to the columns of ``frame``, which is ``measurements(columns)``, are ``activity``, a phase; ``calls``: how
    often it was timed, over all repetitions and ranks; ``total``, ``mean``, ``least`` and ``most`` of these seconds;
    ``share`` of the sum of the end-to-end seconds. The rest of that sum is waiting.
    """
    current = points(frame)
    samples = pd.DataFrame({name: columns["samples"][name] for name in ("measurement", "call", *PHASES)})
    samples = samples[passed_samples(columns, frame) & (samples["call"] == 1)]
    samples = samples[samples["measurement"].isin(current.index)]
    parts = []
    for phase in PHASES[:-1]:
        grouped = samples.dropna(subset=[phase, "total"]).groupby("measurement")
        of_phase = grouped[phase].agg(calls="count", total="sum", mean="mean", least="min", most="max")
        parts.append(of_phase.assign(share=of_phase["total"] / grouped["total"].sum(), activity=phase))
    return current.join(pd.concat(parts), how="inner").reset_index(drop=True)


@dataclass(frozen=True)
class Summary:
    """Counts of points by result.

    ``alarms`` are the failures that no sweep expects, and ``throttlings`` the points with a lowered clock, as rows of
    ``measurements``, including baselines. ``missing`` are the points that could not be measured, as rows of
    ``measurements``; ``of_failed_jobs`` are rows of ``omitted`` with the ``points`` of jobs that failed. ``unplanned``
    has a row for each (sweep, variant, ranks) that the plan does not measure. ``superseded`` counts the points that a
    later run measured again, ``single`` those with one visit.
    """

    passed: int
    failed: int
    throttled: int
    superseded: int
    single: int
    machines: int
    missing: pd.DataFrame
    of_failed_jobs: pd.DataFrame
    alarms: pd.DataFrame
    throttlings: pd.DataFrame
    unplanned: pd.DataFrame

    @property
    def unmeasured(self) -> int:
        """The number of points without a result that a run was to measure."""
        return len(self.missing) + int(self.of_failed_jobs["points"].sum())

    @property
    def points(self) -> int:
        """The number of points that a run was to measure."""
        return self.passed + self.failed + self.unmeasured

    def unmeasured_of(self, sweeps: Collection[str]) -> int:
        """Return the number of points of some sweeps without a result."""
        missing, failed = (rows[rows["sweep"].isin(sweeps)] for rows in (self.missing, self.of_failed_jobs))
        return replace(self, missing=missing, of_failed_jobs=failed).unmeasured

    @property
    def line(self) -> str:
        counts = {"FAIL": self.failed, "throttled": self.throttled, "not measured": self.unmeasured}
        known = [f"{self.passed} PASS", *(f"{count} {what}" for what, count in counts.items() if count)]
        variants = len(self.unplanned)
        more = f"; {plural(variants, 'variant')} of sweeps not measured" if variants else ""
        return f"{plural(self.points, 'point')}: {', '.join(known)}{more}"


def noises(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the noise of each machine and device: medians over points of the spreads; NaN if unknown."""
    return points(frame).groupby(["machine", "device"], sort=False)[["spread", "spread_of_jobs"]].median()


def summary(columns: Columns, frame: pd.DataFrame) -> Summary:
    """Count the points of ``frame``, which is ``measurements(columns)``."""
    rows, current = points(frame), frame[~frame["superseded"]]
    failures = current[current["result"] == "FAIL"]
    unmeasured = pd.DataFrame(dict(columns["omitted"]))
    return Summary(
        passed=int((rows["result"] == "PASS").sum()),
        failed=int((rows["result"] == "FAIL").sum()),
        throttled=int(rows["throttled"].sum()),
        superseded=int((is_own(frame) & frame["superseded"]).sum()),
        single=int(((rows["visits"] == 1) | (rows["call_visits"] == 1)).sum()),
        machines=frame["machine"].nunique(),
        missing=rows[rows["result"] == MISSING],
        of_failed_jobs=unmeasured[unmeasured["points"] > 0],
        alarms=failures[~failures["expected"]],
        throttlings=current[current["throttled"]],
        unplanned=unmeasured[unmeasured["points"] == 0],
    )
