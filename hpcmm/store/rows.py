"""Convert measurements and profiles to the columns of a timings file."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hpcmm.model.measurement import Batch, Measurement, Point, Profile
from hpcmm.model.quantities import COUNTERS, ONCE, PHASES, RESOURCES, STATES
from hpcmm.store.file import write_groups
from hpcmm.store.schema import DIMENSIONS, GROUPS, UNMEASURED, VISITS, Groups, as_column

PINNED = {True: 1, False: 0, None: -1}


def columns_of(batch: Batch, runs: Sequence[Mapping], rows: Sequence[tuple[int, Measurement]]) -> Groups:
    contenders = [m for _, m in rows]
    points = [m.point for m in contenders]
    fingerprints = dict(zip((point.key for point in batch.points), batch.fingerprints, strict=True))
    once = [{**m.energy, **m.errors, **m.differences, **m.events} for m in contenders]
    measurements = {
        "run": [run for run, _ in rows],
        "sweep": [batch.sweep for _ in rows],
        "operation": [batch.operation for _ in rows],
        "device": [batch.device for _ in rows],
        **fields_of(points, "variant", "algorithm", "dtype", "tile", "ranks"),
        **fields_of(contenders, "contender", "baseline", "transport", "pick", "flops", "bytes", "late_runs", "clock"),
        **fields_of([m.verdict for m in contenders], "passed", "error", "bound", "reference", "where"),
        "contender_algorithm": [m.algorithm for m in contenders],
        **shape_columns(points),
        "pinned": [PINNED[point.pinned] for point in points],
        "fingerprint": [fingerprints[point.key] for point in points],
        **{name: [each.get(name, np.nan) for each in once] for name in ONCE},
        **{name: [m.resources.get(name, np.nan) for m in contenders] for name in RESOURCES},
        **scalar_columns(points),
    }
    samples = [(i, sample) for i, (_, m) in enumerate(rows) for sample in m.samples]
    columns = {
        "measurement": [i for i, _ in samples],
        "run": [rows[i][0] if s.run is None else s.run for i, s in samples],
        **fields_of([s for _, s in samples], "visit", "repetition", "rank", "call"),
        **{phase: [s.seconds.get(phase, np.nan) for _, s in samples] for phase in PHASES},
        **{state: [s.state.get(state, np.nan) for _, s in samples] for state in STATES},
    }
    visits = [(i, visit) for i, (_, m) in enumerate(rows) for visit in m.visits]
    of_visits = {"measurement": [i for i, _ in visits], "visit": [visit.number for _, visit in visits]}
    of_visits |= fields_of([visit for _, visit in visits], *list(VISITS)[2:])
    groups = {"measurements": measurements, "samples": columns, "visits": of_visits}
    groups |= {"omitted": {name: [] for name in UNMEASURED}} | placed(batch.name, runs)
    return {
        group: {name: as_column(values, GROUPS[group].get(name)) for name, values in columns.items()}
        for group, columns in groups.items()
    }


def placed(name: str, runs: Sequence[Mapping]) -> dict[str, dict[str, list]]:
    places = [(i, rank, each) for i, run in enumerate(runs) for rank, each in enumerate(run.get("ranks", ()))]
    ranks = {"run": [i for i, _, _ in places], "rank": [rank for _, rank, _ in places]}
    ranks |= {name: [each[name] for _, _, each in places] for name in ("node", "device")}
    return {"runs": {"batch": [name] * len(runs), "provenance": list(map(json.dumps, runs))}, "ranks": ranks}


def write_profiles(
    path: Path, operation: str, run: Mapping | None, profiles: Sequence[Profile], reason: str = "", source: str = ""
) -> None:
    """Write the profiles of one run, or the reason why there are none; ``source`` is as in ``write_groups``."""
    points = [profile.point for profile in profiles]
    columns = {
        "run": [0 for _ in profiles],
        **fields_of(points, "operation", "variant", "dtype", "tile"),
        **shape_columns(points),
        **fields_of([profile.verdict for profile in profiles], "passed", "where"),
        **fields_of(profiles, "kernel", "launches"),
        **{name: [profile.counters.get(name, np.nan) for profile in profiles] for name in COUNTERS},
        **scalar_columns(points),
    }
    placing = placed(f"profile of {operation}", [run] if run is not None else [])
    groups = {"runs": placing["runs"], "profiles": columns}
    if reason:
        groups["unprofiled"] = {"operation": [operation], "reason": [reason]}
    write_groups(path, groups, source=source)


def fields_of(records: Sequence[Any], *names: str) -> dict[str, list]:
    return {name: [getattr(record, name) for record in records] for name in names}


def shape_columns(points: Sequence[Point]) -> dict[str, list[int]]:
    from hpcmm.operations import OPERATIONS  # the process that reads files does without them

    shapes = [dict(zip(OPERATIONS[point.operation].dimensions, point.shape, strict=True)) for point in points]
    names = dict.fromkeys([*DIMENSIONS, *(name for shape in shapes for name in shape)])
    return {name: [shape.get(name, 0) for shape in shapes] for name in names}


def scalar_columns(points: Sequence[Point]) -> dict[str, list[float]]:
    names = sorted({name for point in points for name in point.scalars})
    return {name: [float(point.scalars.get(name, np.nan)) for point in points] for name in names}
