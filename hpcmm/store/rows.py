"""Convert measurements and profiles to the columns of a timings file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from hpcmm.model.measurement import Batch, Measurement, Point, Profile
from hpcmm.model.quantities import COUNTERS, ONCE, PHASES, RESOURCES, STATES
from hpcmm.store.file import write_groups
from hpcmm.store.schema import DIMENSIONS, GROUPS, UNMEASURED, VISITS, Groups, as_column

PINNED = {True: 1, False: 0, None: -1}


def columns_of(batch: Batch, runs: Sequence[Mapping], rows: Sequence[tuple[int, Measurement]]) -> Groups:
    """Return the groups of one batch; ``rows`` are measurements, each with the index of its run."""
    points = [m.point for _, m in rows]
    fingerprints = dict(zip((point.key for point in batch.points), batch.fingerprints, strict=True))
    once = [{**m.energy, **m.errors, **m.differences, **m.events} for _, m in rows]
    measurements = {
        "run": [run for run, _ in rows],
        "sweep": [batch.sweep for _ in rows],
        "operation": [batch.operation for _ in rows],
        "variant": [m.point.variant for _, m in rows],
        "contender": [m.contender for _, m in rows],
        "baseline": [m.baseline for _, m in rows],
        "algorithm": [m.point.algorithm for _, m in rows],
        "contender_algorithm": [m.algorithm for _, m in rows],
        "transport": [m.transport for _, m in rows],
        "pick": [m.pick for _, m in rows],
        "device": [batch.device for _ in rows],
        **shape_columns(points),
        "dtype": [m.point.dtype for _, m in rows],
        "tile": [m.point.tile for _, m in rows],
        "pinned": [PINNED[m.point.pinned] for _, m in rows],
        "ranks": [m.point.ranks for _, m in rows],
        "fingerprint": [fingerprints[m.point.key] for _, m in rows],
        "passed": [m.verdict.passed for _, m in rows],
        "error": [m.verdict.error for _, m in rows],
        "bound": [m.verdict.bound for _, m in rows],
        "reference": [m.verdict.reference for _, m in rows],
        "where": [m.verdict.where for _, m in rows],
        "flops": [m.flops for _, m in rows],
        "bytes": [m.bytes for _, m in rows],
        "late_runs": [m.late_runs for _, m in rows],
        "clock": [m.clock for _, m in rows],
        **{name: [each.get(name, np.nan) for each in once] for name in ONCE},
        **{name: [m.resources.get(name, np.nan) for _, m in rows] for name in RESOURCES},
        **scalar_columns(points),
    }
    samples = [(i, sample) for i, (_, m) in enumerate(rows) for sample in m.samples]
    columns = {
        "measurement": [i for i, _ in samples],
        "run": [rows[i][0] if s.run is None else s.run for i, s in samples],
        "visit": [s.visit for _, s in samples],
        "repetition": [s.repetition for _, s in samples],
        "rank": [s.rank for _, s in samples],
        "call": [s.call for _, s in samples],
        **{phase: [s.seconds.get(phase, np.nan) for _, s in samples] for phase in PHASES},
        **{state: [s.state.get(state, np.nan) for _, s in samples] for state in STATES},
    }
    visits = [(i, visit) for i, (_, m) in enumerate(rows) for visit in m.visits]
    of_visits = {
        "measurement": [i for i, _ in visits],
        "visit": [visit.number for _, visit in visits],
        **{name: [getattr(visit, name) for _, visit in visits] for name in list(VISITS)[2:]},
    }
    provenance = {"batch": [batch.name] * len(runs), "provenance": [json.dumps(run) for run in runs]}
    placed = [(i, rank, each) for i, run in enumerate(runs) for rank, each in enumerate(run.get("ranks", ()))]
    ranks = {
        "run": [i for i, _, _ in placed],
        "rank": [rank for _, rank, _ in placed],
        "node": [each["node"] for _, _, each in placed],
        "device": [each["device"] for _, _, each in placed],
    }
    groups = {
        "measurements": measurements,
        "samples": columns,
        "visits": of_visits,
        "ranks": ranks,
        "runs": provenance,
        "omitted": {name: [] for name in UNMEASURED},
    }
    return {
        group: {name: as_column(values, GROUPS[group].get(name)) for name, values in columns.items()}
        for group, columns in groups.items()
    }


def write_profiles(
    path: Path, operation: str, run: Mapping | None, profiles: Sequence[Profile], reason: str = "", source: str = ""
) -> None:
    """Write the profiles of one run, or the reason why there are none; ``source`` is as in ``write_groups``."""
    points = [profile.point for profile in profiles]
    columns = {
        "run": [0 for _ in profiles],
        "operation": [point.operation for point in points],
        "variant": [point.variant for point in points],
        **shape_columns(points),
        "dtype": [point.dtype for point in points],
        "tile": [point.tile for point in points],
        "passed": [profile.verdict.passed for profile in profiles],
        "where": [profile.verdict.where for profile in profiles],
        "kernel": [profile.kernel for profile in profiles],
        "launches": [profile.launches for profile in profiles],
        **{name: [profile.counters.get(name, np.nan) for profile in profiles] for name in COUNTERS},
        **scalar_columns(points),
    }
    runs = [run] if run is not None else []
    groups = {
        "runs": {"batch": [f"profile of {operation}"] * len(runs), "provenance": [json.dumps(each) for each in runs]},
        "profiles": columns,
    }
    if reason:
        groups["unprofiled"] = {"operation": [operation], "reason": [reason]}
    write_groups(path, groups, source=source)


def shape_columns(points: Sequence[Point]) -> dict[str, list[int]]:
    """Return a column for each dimension of any point, 0 for points without it."""
    from hpcmm.operations import OPERATIONS  # the process that reads files does without them

    shapes = [dict(zip(OPERATIONS[point.operation].dimensions, point.shape, strict=True)) for point in points]
    names = dict.fromkeys([*DIMENSIONS, *(name for shape in shapes for name in shape)])
    return {name: [shape.get(name, 0) for shape in shapes] for name in names}


def scalar_columns(points: Sequence[Point]) -> dict[str, list[float]]:
    """Return a column for each scalar of any point, NaN for points without it."""
    names = sorted({name for point in points for name in point.scalars})
    return {name: [float(point.scalars.get(name, np.nan)) for point in points] for name in names}
