"""Measurements in HDF5, as groups of columns."""

from __future__ import annotations

import json
import os
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from hpcmm.model import (
    COUNTERS,
    PHASES,
    RESOURCES,
    STATES,
    TEXTBOOK,
    Batch,
    HpcmmError,
    Measurement,
    Point,
    Profile,
    spread_name,
)

FORMAT = "hpcmm timings"
SCHEMA_VERSION = 1
DIMENSIONS = ("m", "n", "k")

TEXT = h5py.string_dtype()

# group -> column -> (type, unit, long name). A parameter of a point adds a column of its own.
MEASUREMENTS = {
    "run": ("i4", "1", "index into group runs: where and when it was measured"),
    "sweep": (TEXT, "", "name of the sweep in config.yaml"),
    "operation": (TEXT, "", "operation"),
    "variant": (TEXT, "", "variant that the point is about"),
    "contender": (TEXT, "", "variant measured: that one, or the baseline interleaved with it"),
    "baseline": ("u1", "1", "1 if the contender is the yardstick: the vendor library, or the textbook's algorithm"),
    "algorithm": (TEXT, "", "how the point's work is spread over the ranks"),
    "contender_algorithm": (TEXT, "", "how the contender's is"),
    "transport": (TEXT, "", "what carried the contender's exchanges between ranks (empty: MPI on host memory)"),
    "schedule": (TEXT, "", "order in which it overlaps them with its products, the fastest when it was prepared"),
    "device": (TEXT, "", "cpu or cuda"),
    "m": ("i8", "1", "rows of C (0: no such dimension)"),
    "n": ("i8", "1", "columns of C, or length of the vector"),
    "k": ("i8", "1", "columns of A (0: no such dimension)"),
    "dtype": (TEXT, "", "element type"),
    "ranks": ("i4", "1", "MPI ranks"),
    "fingerprint": (TEXT, "", "of the point, its variant's source and the way of measuring"),
    "passed": ("u1", "1", "1 if every element is within the bound"),
    "error": ("f8", "1", "largest error relative to the magnitudes that were summed"),
    "bound": ("f8", "1", "what rounding alone may cause in that error"),
    "reference": (TEXT, "", "how the truth was computed"),
    "where": (TEXT, "", "first wrong element: index: got - expected = difference"),
    "flops": ("i8", "1", "arithmetic operations of one call"),
    "bytes": ("i8", "B", "compulsory memory traffic of one call"),
    **{name: ("f8", unit, f"{text} (NaN: no CUDA kernel of ours)") for name, (unit, text) in RESOURCES.items()},
}
SAMPLES = {
    "measurement": ("i8", "1", "index into group measurements"),
    "repetition": ("i4", "1", "repetition, counted apart for whole calls and kernels alone"),
    "rank": ("i4", "1", "MPI rank"),
    "call": ("u1", "1", "1: whole call with its transfers; 0: kernel alone on data in place"),
    **{phase: ("f8", "s", f"time of phase {phase} (NaN: no such phase)") for phase in PHASES},
    **{state: ("f8", unit, f"{state.replace('_', ' ')} after the repetition") for state, unit in STATES.items()},
}
RUNS = {"batch": (TEXT, "", "batch"), "provenance": (TEXT, "", "JSON: machine, software, arguments, time")}
OMITTED = {
    "sweep": (TEXT, "", "name of the sweep"),
    "variant": (TEXT, "", "variant, and algorithm, that the config asks for and that was not measured"),
    "ranks": ("i4", "1", "MPI ranks"),
    "reason": (TEXT, "", "why it was left out"),
}
PROFILES = {
    **{name: MEASUREMENTS[name] for name in ("run", "operation", "variant", *DIMENSIONS, "dtype", "passed", "where")},
    "kernel": (TEXT, "", "kernel that took the longest of those that a run launches"),
    "launches": ("i4", "1", "kernels that a run launches"),
    **{name: ("f8", unit, f"{text} ({metric})") for name, (unit, text, metric) in COUNTERS.items()},
}
UNPROFILED = {
    "operation": (TEXT, "", "operation that no profiler looked at"),
    "reason": (TEXT, "", "why none did"),
}
GROUPS = {
    "measurements": MEASUREMENTS,
    "samples": SAMPLES,
    "runs": RUNS,
    "omitted": OMITTED,
    "profiles": PROFILES,
    "unprofiled": UNPROFILED,
}
WHAT = ("sweep", "operation", "variant", "contender", "algorithm", "contender_algorithm")
WHAT += (*DIMENSIONS, "dtype", "ranks")  # and parameters
INDEXES = {"run": "runs", "measurement": "measurements"}  # column -> the group of which it has rows
Groups = dict[str, dict[str, np.ndarray]]  # group -> column -> values
LATER = ("profiles", "unprofiled")  # files that were written before there were profiles lack these
# Ends a file, before the CRC-32 of all that is ahead of it. HDF5 does not read it, and cuts it off where it writes.
SEAL = b"\nhpcmm crc32 "


class StoreError(HpcmmError):
    """A file that is not what it should be; the message names it and says what to do."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path`` that takes its place, synced, only if the body succeeds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def columns_of(batch: Batch, runs: Sequence[Mapping], rows: Sequence[tuple[int, Measurement]]) -> Groups:
    """The groups of one batch; ``rows`` are measurements, each with the index of its run."""
    points = [m.point for _, m in rows]
    fingerprints = dict(zip((point.key for point in batch.points), batch.fingerprints, strict=True))
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
        "schedule": [m.schedule for _, m in rows],
        "device": [batch.device for _ in rows],
        **shape_columns(points),
        "dtype": [m.point.dtype for _, m in rows],
        "ranks": [m.point.ranks for _, m in rows],
        "fingerprint": [fingerprints[m.point.key] for _, m in rows],
        "passed": [m.verdict.passed for _, m in rows],
        "error": [m.verdict.error for _, m in rows],
        "bound": [m.verdict.bound for _, m in rows],
        "reference": [m.verdict.reference for _, m in rows],
        "where": [m.verdict.where for _, m in rows],
        "flops": [m.flops for _, m in rows],
        "bytes": [m.bytes for _, m in rows],
        **{name: [m.resources.get(name, np.nan) for _, m in rows] for name in RESOURCES},
        **parameter_columns(points),
    }
    samples = [(i, sample) for i, (_, m) in enumerate(rows) for sample in m.samples]
    columns = {
        "measurement": [i for i, _ in samples],
        "repetition": [s.repetition for _, s in samples],
        "rank": [s.rank for _, s in samples],
        "call": [s.call for _, s in samples],
        **{phase: [s.seconds.get(phase, np.nan) for _, s in samples] for phase in PHASES},
        **{state: [s.state.get(state, np.nan) for _, s in samples] for state in STATES},
    }
    provenance = {"batch": [batch.name] * len(runs), "provenance": [json.dumps(run) for run in runs]}
    groups = {
        "measurements": measurements,
        "samples": columns,
        "runs": provenance,
        "omitted": {name: [] for name in OMITTED},
    }
    return {
        group: {name: _as_column(values, GROUPS[group].get(name)) for name, values in columns.items()}
        for group, columns in groups.items()
    }


def _as_column(values: Sequence, declared: tuple | None) -> np.ndarray:
    dtype = declared[0] if declared else "f8"  # a parameter
    return np.asarray(values, dtype=object if dtype == TEXT else dtype)


def write_profiles(
    path: Path, operation: str, run: Mapping | None, profiles: Sequence[Profile], reason: str = ""
) -> None:
    """Write what a profiler counted in one run, or the reason why there was none."""
    points = [profile.point for profile in profiles]
    columns = {
        "run": [0 for _ in profiles],
        "operation": [point.operation for point in points],
        "variant": [point.variant for point in points],
        **shape_columns(points),
        "dtype": [point.dtype for point in points],
        "passed": [profile.verdict.passed for profile in profiles],
        "where": [profile.verdict.where for profile in profiles],
        "kernel": [profile.kernel for profile in profiles],
        "launches": [profile.launches for profile in profiles],
        **{name: [profile.counters.get(name, np.nan) for profile in profiles] for name in COUNTERS},
        **parameter_columns(points),
    }
    runs = [run] if run is not None else []
    groups = {
        "runs": {"batch": [f"profile of {operation}"] * len(runs), "provenance": [json.dumps(each) for each in runs]},
        "profiles": columns,
    }
    if reason:
        groups["unprofiled"] = {"operation": [operation], "reason": [reason]}
    write_groups(path, groups)


def shape_columns(points: Sequence[Point]) -> dict[str, list[int]]:
    """A column for each of ``DIMENSIONS``, 0 where a point has no such dimension."""
    shapes = [dict(zip(dimension_names(point.shape), point.shape, strict=True)) for point in points]
    return {dimension: [shape.get(dimension, 0) for shape in shapes] for dimension in DIMENSIONS}


def parameter_columns(points: Sequence[Point]) -> dict[str, list[float]]:
    """A column for each parameter that any of the points has, NaN where one has it not."""
    names = sorted({name for point in points for name in point.parameters})
    return {name: [point.parameters.get(name, np.nan) for point in points] for name in names}


def dimension_names(shape: Sequence[int]) -> tuple[str, ...]:
    return DIMENSIONS if len(shape) == 3 else ("n",)


def write_groups(path: Path, groups: Groups, single: bool = False) -> None:
    """Write a file whole or not at all; groups that are not given are empty.

    ``single`` keeps samples in single precision.
    """
    # in memory, as HDF5 may crash where it finds the disk full
    with h5py.File(path, "w", driver="core", backing_store=False) as file:
        file.attrs["format"] = FORMAT
        file.attrs["schema_version"] = SCHEMA_VERSION
        for group, declared in GROUPS.items():
            if single and group == "samples":
                declared = {name: ("f4" if kind == "f8" else kind, *rest) for name, (kind, *rest) in declared.items()}
            _write_group(file.create_group(group), groups.get(group, _empty(group)), declared)
        file.flush()
        image = file.id.get_file_image()
    try:
        with replacing(path) as temporary:
            temporary.write_bytes(image + SEAL + b"%08x" % zlib.crc32(image))
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}; what was there is kept") from error


def _write_group(group: h5py.Group, columns: Mapping[str, Sequence], declared: Mapping[str, tuple]) -> None:
    dimension = group.name.removeprefix("/").removesuffix("s")
    length = len(next(iter(columns.values())))
    packed = {"compression": "gzip", "shuffle": True} if length else {}
    scale = group.create_dataset(dimension + "_index", data=np.arange(length), **packed)
    scale.make_scale(dimension + "_index")
    scale.attrs["long_name"] = f"row of group {dimension}s"
    for name, values in columns.items():
        dtype, unit, long_name = declared.get(name, ("f8", "1", f"parameter {name} (NaN: it has none)"))
        how = packed if dtype != TEXT else {}
        column = group.create_dataset(name, data=np.asarray(values, dtype=dtype), dtype=dtype, **how)
        column.dims[0].attach_scale(scale)
        column.attrs["long_name"] = long_name
        if unit:
            column.attrs["units"] = unit


def read(path: Path) -> Groups:
    """Read all groups as columns; text comes as str.

    In a file that was written before there were any, resources are NaN, fingerprints empty, algorithms the
    textbook's, and profiles missing.

    Raises
    ------
    StoreError
        If the file is missing, cut short, damaged, not of this suite, or of a schema newer than this package.
    """
    try:
        _check_seal(path)
        with h5py.File(path, "r") as file:
            if file.attrs.get("format") != FORMAT:
                raise StoreError(f"{path}: not a file of {FORMAT}")
            version = int(file.attrs["schema_version"])
            if version > SCHEMA_VERSION:
                raise StoreError(
                    f"{path}: schema version {version}, but this package reads up to {SCHEMA_VERSION}: upgrade hpcmm"
                )
            groups = {
                group: _read_group(file[group]) if group in file or group not in LATER else _empty(group)
                for group in GROUPS
            }
            rows, samples = _length(groups["measurements"]), _length(groups["samples"])
            unknown = dict.fromkeys(RESOURCES, np.full(rows, np.nan))
            unknown |= dict.fromkeys(("fingerprint", "transport", "schedule"), np.full(rows, "", object))
            unknown |= dict.fromkeys(("algorithm", "contender_algorithm"), np.full(rows, TEXTBOOK, object))
            phases = dict.fromkeys(PHASES, np.full(samples, np.nan))
            groups["measurements"] = unknown | groups["measurements"]
            groups["samples"] = phases | groups["samples"]
            _check(groups)
            return groups
    except FileNotFoundError as error:
        raise StoreError(f"{path}: no such file") from error
    except StoreError:
        raise
    except Exception as error:  # h5py has many for a file that is damaged
        if path.is_dir():
            raise StoreError(f"{path}: a folder, not an HDF5 file") from error
        what = f"cut short or damaged ({error})" if h5py.is_hdf5(path) else "not an HDF5 file, or cut short"
        raise StoreError(f"{path}: {what}; if a run wrote it, delete it and run again") from error


def _empty(group: str) -> dict[str, np.ndarray]:
    return {name: _as_column([], declared) for name, declared in GROUPS[group].items()}


def _read_group(group: h5py.Group) -> dict[str, np.ndarray]:
    columns = {}
    for name, column in group.items():
        if not name.endswith("_index"):
            values = column.asstr()[()] if h5py.check_string_dtype(column.dtype) else column[()]
            columns[name] = values.astype("f8") if values.dtype.kind == "f" else values
    return columns


def _check_seal(path: Path) -> None:
    """Refuse a file that is not as it was written: HDF5 may find other numbers in it, or look for them for ever."""
    image = path.read_bytes()
    end = image.rfind(SEAL, -len(SEAL) - 8)
    if end >= 0 and image[end:] != SEAL + b"%08x" % zlib.crc32(memoryview(image)[:end]):
        raise ValueError("its checksum is not that of its content")


def _check(groups: Groups) -> None:
    """Refuse columns that no run writes, whoever wrote them, before anything is derived from them."""
    for group, columns in groups.items():
        if lacking := GROUPS[group].keys() - columns.keys():
            raise ValueError(f"{group} has no {min(lacking)}")
        length = len(columns[next(iter(GROUPS[group]))])
        for name, values in columns.items():
            kind, unit, _ = GROUPS[group].get(name, ("f8", "1", ""))  # a parameter
            kinds = "O" if kind == TEXT else "f" if kind == "f8" else "iu"
            if values.shape != (length,) or values.dtype.kind not in kinds:
                raise ValueError(f"{group}.{name}: {values.dtype} {values.shape}; allowed: {kind} ({length},)")
            wrong = np.zeros(length, bool)
            if kinds == "iu":
                most = _length(groups[INDEXES[name]]) - 1 if name in INDEXES else 1 if kind == "u1" else np.inf
                wrong = (values < (name == "ranks")) | (values > most)
            elif unit == "s":
                wrong = (values < 0) | np.isinf(values)
            if wrong.any():
                raise ValueError(f"{group}.{name}: {values[wrong][0]} in row {np.flatnonzero(wrong)[0]}")


def merge(
    paths: Sequence[Path],
    target: Path,
    omitted: Sequence[Mapping[str, Any]] = (),
    unprofiled: Sequence[Mapping[str, Any]] = (),
    single: bool = False,
) -> None:
    """Put the rows of several files into one, each with its own runs.

    What several files have of the same run is taken once: a file merged with itself, or with a later
    state of the same results, has nothing twice. The same point of different runs is kept of each.

    ``omitted`` and ``unprofiled`` are rows of these groups to add: what was planned and left out, and the
    operations that no profiler looked at, with the reason. Rows of what any of the files did measure or
    profile are dropped. ``single`` keeps samples in single precision, to seven digits.
    """
    groups = distinct(joined([read(path) for path in paths]))
    points = zip(*(groups["measurements"][name] for name in ("sweep", "variant", "algorithm", "ranks")), strict=True)
    measured = {(sweep, spread_name(variant, algorithm), ranks) for sweep, variant, algorithm, ranks in points}
    rows = [*zip(*(groups["omitted"][name] for name in OMITTED), strict=True)]
    rows += [tuple(row[name] for name in OMITTED) for row in omitted]
    rows = [row for row in dict.fromkeys(rows) if row[:-1] not in measured]  # all but the reason
    groups["omitted"] = {name: _as_column([row[i] for row in rows], OMITTED[name]) for i, name in enumerate(OMITTED)}
    reasons = dict(zip(groups["unprofiled"]["operation"], groups["unprofiled"]["reason"], strict=True))
    reasons |= {row["operation"]: row["reason"] for row in unprofiled}
    for operation in groups["profiles"]["operation"]:
        reasons.pop(operation, None)
    groups["unprofiled"] = {
        "operation": _as_column(list(reasons), UNPROFILED["operation"]),
        "reason": _as_column(list(reasons.values()), UNPROFILED["reason"]),
    }
    write_groups(target, groups, single)


def joined(parts: Sequence[Groups]) -> Groups:
    """The rows of all parts; what indexes them is counted on from part to part."""
    parts = [{group: _empty(group) for group in GROUPS} | part for part in parts]
    names = {group: dict.fromkeys([*GROUPS[group], *sorted({n for p in parts for n in p[group]})]) for group in GROUPS}
    found: dict[str, dict[str, list]] = {group: {name: [] for name in names[group]} for group in GROUPS}
    before = dict.fromkeys(INDEXES.values(), 0)
    for part in parts:
        for group, columns in part.items():
            length = _length(columns)
            for name in names[group]:
                values = columns[name] if name in columns else np.full(length, np.nan)
                found[group][name].append(values + before[INDEXES[name]] if name in INDEXES else values)
        for group in before:
            before[group] += _length(part[group])
    return {
        group: {
            name: np.concatenate([_as_column([], GROUPS[group].get(name)), *values]) for name, values in columns.items()
        }
        for group, columns in found.items()
    }


def select(groups: Groups, rows: np.ndarray) -> Groups:
    """The measurements at these rows, in this order, with their samples; of the runs, those that are left."""
    place = np.full(_length(groups["measurements"]), -1)
    place[rows] = np.arange(len(rows))
    places = place[groups["samples"]["measurement"]]
    taken = np.flatnonzero(places >= 0)
    taken = taken[np.argsort(places[taken], kind="stable")]
    chosen = groups | {
        "measurements": {name: values[rows] for name, values in groups["measurements"].items()},
        "samples": {name: values[taken] for name, values in groups["samples"].items()} | {"measurement": places[taken]},
    }
    used = np.unique(np.concatenate([columns["run"] for columns in chosen.values() if "run" in columns]))
    chosen["runs"] = {name: values[used] for name, values in groups["runs"].items()}
    return _with_runs(chosen, lambda run: np.searchsorted(used, run))


def distinct(groups: Groups) -> Groups:
    """Each measurement once, by its run and by what was measured, and each row of a profile."""
    first: dict[tuple, int] = {}
    texts = zip(*(groups["runs"][name] for name in RUNS), strict=True)
    same = np.array([first.setdefault(text, i) for i, text in enumerate(texts)], int)
    groups = _with_runs(groups, lambda run: same[run])
    measurements = groups["measurements"]
    names = [name for name in measurements if name in ("run", *WHAT) or name not in MEASUREMENTS]
    whats = [tuple(map(str, what)) for what in zip(*(measurements[name] for name in names), strict=True)]
    found = {what: i for i, what in reversed(list(enumerate(whats)))}  # as text: NaN is not equal to NaN
    counted = {tuple(map(str, row)): i for i, row in enumerate(zip(*groups["profiles"].values(), strict=True))}
    kept = np.array(sorted(counted.values()), int)
    groups["profiles"] = {name: values[kept] for name, values in groups["profiles"].items()}
    return select(groups, np.array(sorted(found.values()), int))


def _with_runs(groups: Groups, change: Callable[[np.ndarray], np.ndarray]) -> Groups:
    """Number the runs anew wherever a group refers to them."""
    return {
        group: columns | {"run": change(columns["run"])} if "run" in columns else columns
        for group, columns in groups.items()
    }


def _length(columns: Mapping[str, np.ndarray]) -> int:
    return len(next(iter(columns.values())))
