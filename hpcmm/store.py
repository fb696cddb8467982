"""Measurements on disk: a journal while a batch runs, HDF5 once it is complete."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from hpcmm.model import PHASES, RESOURCES, STATES, Batch, HpcmmError, Measurement, Point, Sample, Verdict

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
    "baseline": ("u1", "1", "1 if the contender is the vendor library's baseline"),
    "device": (TEXT, "", "cpu or cuda"),
    "m": ("i8", "1", "rows of C (0: no such dimension)"),
    "n": ("i8", "1", "columns of C, or length of the vector"),
    "k": ("i8", "1", "columns of A (0: no such dimension)"),
    "dtype": (TEXT, "", "element type"),
    "ranks": ("i4", "1", "MPI ranks"),
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
    "variant": (TEXT, "", "variant that the config asks for and that was not measured"),
    "ranks": ("i4", "1", "MPI ranks"),
    "reason": (TEXT, "", "why it was left out"),
}
GROUPS = {"measurements": MEASUREMENTS, "samples": SAMPLES, "runs": RUNS, "omitted": OMITTED}


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


class Journal:
    """The finished points of a batch that is not complete, one JSON line each, synced as they come.

    A line that a crash cut short is dropped on opening. A journal of another fingerprint belongs to
    another kernel or other points and is started afresh.
    """

    def __init__(self, path: Path, batch: Batch, provenance: Mapping[str, Any]):
        self.path, self.batch = path, batch
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab+", buffering=0)  # nothing of a line that failed is left to be written later
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            raise StoreError(f"{path}: another process is measuring this batch") from error
        self.runs: list[dict] = []
        self.finished: dict[str, list[tuple[int, Measurement]]] = {}
        self._load()
        self._append({"fingerprint": batch.fingerprint, "provenance": dict(provenance)})
        self.runs.append(dict(provenance))

    def _load(self) -> None:
        self._file.seek(0)
        good = 0
        for line in self._file.readall().splitlines(keepends=True):
            try:
                entry = json.loads(line) if line.endswith(b"\n") else None
            except ValueError:
                entry = None
            if entry is None or (good == 0 and entry.get("fingerprint") != self.batch.fingerprint):
                break
            good += len(line)
            if "provenance" in entry:
                self.runs.append(entry["provenance"])
            else:
                measurements = [measurement_from_json(each) for each in entry["measurements"]]
                self.finished[entry["point"]] = [(entry["run"], each) for each in measurements]
        self._file.truncate(good)

    def _append(self, entry: dict) -> None:
        self._file.seek(0, os.SEEK_END)
        start = self._file.tell()
        try:
            line = json.dumps(entry).encode() + b"\n"
            while line:
                line = line[self._file.write(line) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            os.ftruncate(self._file.fileno(), start)
            raise StoreError(f"{self.path}: {error.strerror}; the points before this one are kept") from error

    def append(self, point: Point, measurements: Sequence[Measurement]) -> None:
        """Record a finished point; it is on the disk when this returns."""
        run = len(self.runs) - 1
        self._append({"point": point.key, "run": run, "measurements": [dataclasses.asdict(m) for m in measurements]})
        self.finished[point.key] = [(run, m) for m in measurements]

    def complete(self, path: Path) -> None:
        """Write the batch's HDF5 file and remove the journal."""
        rows = [row for point in self.batch.points for row in self.finished[point.key]]
        write(path, self.batch, self.runs, rows)
        self.path.unlink()
        self.close()

    def close(self) -> None:
        self._file.close()


def measurement_from_json(entry: dict) -> Measurement:
    point = entry["point"] | {"shape": tuple(entry["point"]["shape"])}
    return Measurement(
        **entry
        | {
            "point": Point(**point),
            "verdict": Verdict(**entry["verdict"]),
            "samples": tuple(Sample(**sample) for sample in entry["samples"]),
        }
    )


def write(path: Path, batch: Batch, runs: Sequence[Mapping], rows: Iterable[tuple[int, Measurement]]) -> None:
    """Write one batch; ``rows`` are measurements, each with the index of its run."""
    rows = list(rows)
    shapes = [
        dict.fromkeys(DIMENSIONS, 0) | dict(zip(dimension_names(m.point.shape), m.point.shape, strict=True))
        for _, m in rows
    ]
    parameters = sorted({name for _, m in rows for name in m.point.parameters})
    measurements = {
        "run": [run for run, _ in rows],
        "sweep": [batch.sweep for _ in rows],
        "operation": [batch.operation for _ in rows],
        "variant": [batch.variant for _ in rows],
        "contender": [m.contender for _, m in rows],
        "baseline": [m.baseline for _, m in rows],
        "device": [batch.device for _ in rows],
        **{d: [shape[d] for shape in shapes] for d in DIMENSIONS},
        "dtype": [m.point.dtype for _, m in rows],
        "ranks": [m.point.ranks for _, m in rows],
        "passed": [m.verdict.passed for _, m in rows],
        "error": [m.verdict.error for _, m in rows],
        "bound": [m.verdict.bound for _, m in rows],
        "reference": [m.verdict.reference for _, m in rows],
        "where": [m.verdict.where for _, m in rows],
        "flops": [m.flops for _, m in rows],
        "bytes": [m.bytes for _, m in rows],
        **{name: [m.resources.get(name, np.nan) for _, m in rows] for name in RESOURCES},
        **{name: [m.point.parameters.get(name, np.nan) for _, m in rows] for name in parameters},
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
    _write_groups(path, {"measurements": measurements, "samples": columns, "runs": provenance})


def dimension_names(shape: Sequence[int]) -> tuple[str, ...]:
    return DIMENSIONS if len(shape) == 3 else ("n",)


def _write_groups(path: Path, groups: Mapping[str, Mapping[str, Sequence]]) -> None:
    with replacing(path) as temporary, h5py.File(temporary, "w") as file:
        file.attrs["format"] = FORMAT
        file.attrs["schema_version"] = SCHEMA_VERSION
        for group, declared in GROUPS.items():
            columns = groups.get(group) or {name: [] for name in declared}
            _write_group(file.create_group(group), columns, declared)


def _write_group(group: h5py.Group, columns: Mapping[str, Sequence], declared: Mapping[str, tuple]) -> None:
    dimension = group.name.removeprefix("/").removesuffix("s")
    length = len(next(iter(columns.values())))
    scale = group.create_dataset(dimension + "_index", data=np.arange(length))
    scale.make_scale(dimension + "_index")
    scale.attrs["long_name"] = f"row of group {dimension}s"
    for name, values in columns.items():
        dtype, unit, long_name = declared.get(name, ("f8", "1", f"parameter {name} (NaN: it has none)"))
        packed = {"compression": "gzip", "shuffle": True} if length and dtype != TEXT else {}
        column = group.create_dataset(name, data=np.asarray(values, dtype=dtype), dtype=dtype, **packed)
        column.dims[0].attach_scale(scale)
        column.attrs["long_name"] = long_name
        if unit:
            column.attrs["units"] = unit


def read(path: Path) -> dict[str, dict[str, np.ndarray]]:
    """Read all groups as columns; text comes as str.

    Resources are NaN in a file that was written before there were any.

    Raises
    ------
    StoreError
        If the file is missing, cut short, not of this suite, or of a schema newer than this package.
    """
    try:
        with h5py.File(path, "r") as file:
            if file.attrs.get("format") != FORMAT:
                raise StoreError(f"{path}: not a file of {FORMAT}")
            version = int(file.attrs["schema_version"])
            if version > SCHEMA_VERSION:
                raise StoreError(
                    f"{path}: schema version {version}, but this package reads up to {SCHEMA_VERSION}: upgrade hpcmm"
                )
            groups = {group: _read_group(file[group]) for group in GROUPS}
            unknown = np.full(len(groups["measurements"]["run"]), np.nan)
            return groups | {"measurements": dict.fromkeys(RESOURCES, unknown) | groups["measurements"]}
    except FileNotFoundError as error:
        raise StoreError(f"{path}: no such file") from error
    except (OSError, KeyError, ValueError) as error:
        raise StoreError(f"{path}: cut short or damaged ({error}); delete it and run again") from error


def _read_group(group: h5py.Group) -> dict[str, np.ndarray]:
    columns = {}
    for name, column in group.items():
        if not name.endswith("_index"):
            columns[name] = column.asstr()[()] if h5py.check_string_dtype(column.dtype) else column[()]
    return columns


def merge(paths: Sequence[Path], target: Path, omitted: Sequence[Mapping[str, Any]] = ()) -> None:
    """Put the rows of several files into one, each with its own runs.

    ``omitted`` are rows of that group to add: what was planned and left out, with the reason.
    """
    parts = [read(path) for path in paths]
    offsets = {"runs": 0, "measurements": 0}
    merged: dict[str, dict[str, list]] = {group: {name: [] for name in GROUPS[group]} for group in GROUPS}
    for name in sorted({name for part in parts for name in part["measurements"]} - set(MEASUREMENTS)):
        merged["measurements"][name] = []
    for part in parts:
        part["measurements"]["run"] = part["measurements"]["run"] + offsets["runs"]
        part["samples"]["measurement"] = part["samples"]["measurement"] + offsets["measurements"]
        for group, columns in merged.items():
            length = len(next(iter(part[group].values())))
            for name, values in columns.items():
                values.append(part[group].get(name, np.full(length, np.nan)))
            if group in offsets:
                offsets[group] += length
    joined = {
        group: {name: np.concatenate(values) if values else [] for name, values in columns.items()}
        for group, columns in merged.items()
    }
    for name in OMITTED:
        joined["omitted"][name] = [*joined["omitted"][name], *(row[name] for row in omitted)]
    _write_groups(target, joined)
