"""Timings files with known times, for the tests of what is derived from them."""

import base64
import dataclasses
import functools
import gzip
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hpcmm import analysis, store
from hpcmm.model import TEXTBOOK, Verdict
from hpcmm.model.measurement import Batch, Measurement, Point, Sample
from hpcmm.model.quantities import RESOURCES
from hpcmm.operations import OPERATIONS, task_of

ROOT = Path(__file__).parents[1]
PASS = Verdict(True, 1e-8, 1e-7, "componentwise, float64")
FAIL = Verdict(False, 3.0, 1e-7, "componentwise, float64", "0:640: 0 - 1.5 = -1.5")

# What a device has, from NVIDIA's table for compute capability 9.0
HOPPER = {
    "sm_threads": 2048, "sm_blocks": 32, "sm_registers": 2**16, "sm_shared_bytes": 228 * 1024,
    "reserved_shared_bytes": 1024, "memory_bytes_per_second": 4.8e12,
}  # fmt: skip
# One multiprocessor at 1 GHz, which no memory limits
SMALL = {"compute_capability": "90", "multiprocessors": 1, "max_sm_clock": 1e9, "memory_bytes_per_second": 1e15}
FLAT = (0.9999, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0001)  # factors of visits


def product(variant="naive", n=64, dtype="float32", ranks=1, algorithm=TEXTBOOK, tile=0, pinned=None, **scalars):
    """A product of square matrices of size ``n``, or of (m, n, k)."""
    shape, scalars = (n,) * 3 if isinstance(n, int) else n, {"alpha": 1.5, "beta": 0.5} | scalars
    return Point("matmul", variant, shape, dtype, ranks, scalars, algorithm, tile=tile, pinned=pinned)


def total(variant="sequential", n=2**22, dtype="int32", ranks=1, algorithm=TEXTBOOK):
    """A sum of ``n`` numbers."""
    return Point("sum", variant, (n,), dtype, ranks, algorithm=algorithm)


def kernel(device: Mapping[str, float], block: tuple[int, int], resident: int, **needs: float) -> dict[str, float]:
    """Resources of a kernel on a device: what is not given is 0, and the grid is 4 x 4."""
    x, y = block
    geometry = {"block_x": x, "block_y": y, "grid_x": 4, "grid_y": 4, "resident_blocks": resident}
    return dict.fromkeys(RESOURCES, 0) | device | geometry | needs


def kernel_samples(
    seconds: Iterable[float | Sequence[float]], state: Mapping[str, float] | None = None
) -> tuple[Sample, ...]:
    """Samples of the kernel alone; each repetition is a time, or one for each rank."""
    rows = enumerate([each] if isinstance(each, (int, float)) else each for each in seconds)
    return tuple(Sample(i, rank, False, {"kernel": t}, state or {}) for i, row in rows for rank, t in enumerate(row))


def visit_samples(seconds: Iterable[float | Sequence[float]]) -> tuple[Sample, ...]:
    """Samples of the kernel alone; each repetition is a visit."""
    return in_visits(kernel_samples(seconds))


def in_visits(samples: Iterable[Sample]) -> tuple[Sample, ...]:
    """The samples with each repetition as a visit."""
    return tuple(dataclasses.replace(each, visit=each.repetition) for each in samples)


def call_samples(repetitions: Iterable[Sequence[Mapping[str, float]]]) -> tuple[Sample, ...]:
    """Samples of end-to-end calls; each repetition has a mapping of phases for each rank."""
    rows = enumerate(repetitions)
    return tuple(Sample(i, rank, True, phases) for i, ranks in rows for rank, phases in enumerate(ranks))


def measurement(
    point: Point,
    contender: str = "",
    verdict: Verdict = PASS,
    samples=(),
    resources=None,
    algorithm: str = "",
    clock: float = math.nan,
    visits=(),
    events=None,
) -> Measurement:
    """What ``contender`` (by default the point's variant) did at ``point``, by default by its algorithm."""
    operation = OPERATIONS[point.operation]
    contender, algorithm = contender or point.variant, algorithm or point.algorithm
    beside = algorithm != point.algorithm
    task = task_of(dataclasses.replace(point, scalars={**operation.scalars, **point.scalars}))
    return Measurement(
        point=point,
        contender=contender,
        baseline=beside or (operation.variant(contender).baseline and algorithm == TEXTBOOK),
        verdict=verdict,
        flops=task.flops,
        bytes=task.bytes,
        samples=tuple(samples),
        resources=resources or {},
        algorithm=algorithm,
        clock=clock,
        visits=tuple(visits),
        events=events or {},
    )


def took(point: Point, seconds: float | Sequence, contender: str = "", **more: Any) -> Measurement:
    """A measurement of the kernel alone: six repetitions that take equally long on all ranks, or these times."""
    times = seconds if isinstance(seconds, Sequence) else [[seconds] * point.ranks] * 6
    return measurement(point, contender, samples=kernel_samples(times), **more)


def timed(point: Point, seconds: float, contender: str = "", spread=FLAT, **more: Any) -> Measurement:
    """A measurement of the kernel alone, on all ranks, in as many visits as there are factors."""
    times = [[seconds * factor] * point.ranks for factor in spread]
    return measurement(point, contender, samples=visit_samples(times), **more)


def write(
    path: Path,
    sweeps: Mapping[str, Sequence[Measurement]],
    provenance: Mapping[str, Any] | None = None,
    omitted: Sequence[Mapping[str, Any]] = (),
) -> Path:
    """A merged timings file: each sweep's measurements, a batch for each device and rank count."""
    store.write_groups(path, columns(sweeps, provenance, omitted))
    return path


def columns(
    sweeps: Mapping[str, Sequence[Measurement]],
    provenance: Mapping[str, Any] | None = None,
    omitted: Sequence[Mapping[str, Any]] = (),
) -> store.Groups:
    """What is read from such a file, without the file: to write and read it takes longer than most tests."""
    return store.merged(batches(sweeps, provenance), omitted)


def derived(*rows: Measurement, sweep: str = "size", **provenance: Any) -> pd.DataFrame:
    """What the analysis derives from a file of one sweep."""
    return analysis.measurements(columns({sweep: rows}, provenance))


def merge(
    paths: Sequence[Path],
    target: Path,
    omitted: Sequence[Mapping[str, Any]] = (),
    unprofiled: Sequence[Mapping[str, Any]] = (),
    single: bool = False,
    parts: Sequence[store.Groups] = (),
) -> None:
    groups = store.merged([*map(store.read, paths), *parts], omitted, unprofiled)
    store.write_groups(target, groups, single)


def batches(
    sweeps: Mapping[str, Sequence[Measurement]], provenance: Mapping[str, Any] | None = None
) -> list[store.Groups]:
    """The groups of each batch."""
    parts = []
    for sweep, rows in sweeps.items():
        found: dict[tuple, list[Measurement]] = {}
        for row in rows:
            device = OPERATIONS[row.point.operation].variant(row.point.variant).device
            found.setdefault((row.point.operation, device, row.point.ranks), []).append(row)
        for (operation, device, ranks), members in found.items():
            points = tuple({member.point.key: member.point for member in members}.values())
            fingerprints = tuple(point.key for point in points)
            batch = Batch(sweep, operation, device, ranks, 1, points, fingerprints, (1.0,) * len(points), 1.0, "")
            parts.append(store.columns_of(batch, [dict(provenance or {})], [(0, member) for member in members]))
    return parts


def merged(*runs: tuple[Mapping[str, Any], Mapping[str, Sequence[Measurement]]]) -> store.Groups:
    """The columns of a file merged of runs: for each its provenance and the seconds of points, by sweep."""
    return store.merged([columns(sweeps, provenance) for provenance, sweeps in runs], [])


def analysed(*runs) -> tuple[store.Groups, pd.DataFrame]:
    """Merge runs; return the columns of the file and the frame of its measurements."""
    columns = merged(*runs)
    return columns, analysis.measurements(columns)


@functools.cache
def published_run() -> tuple[store.Groups, pd.DataFrame]:
    """Return the columns of the published run and the frame of its measurements; skip the test without a run."""
    path = ROOT / "results" / "reference" / "timings.h5"
    if not path.exists():
        pytest.skip("no run is published")
    columns = store.read(path)
    return columns, analysis.measurements(columns)


def cells(text: str, begin: str = "|") -> list[list[str]]:
    """The cells of the lines of a table in Markdown that begin like this."""
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith(begin)]


def page_of(path: Path) -> str:
    """Return a page; one of the report with all its views and figures, which its script inserts when they are shown."""
    text = path.read_text("utf-8")
    if 'id="stored">' not in text:
        return text
    stored = re.search(r'(?<=id="stored">)[^<]*', text)[0]
    kept = json.loads(gzip.decompress(base64.b64decode(stored)))
    whole = re.sub(r'<template data-part="(\d+)"></template>', lambda part: kept["parts"][int(part[1])], text)
    return whole.replace(stored, json.dumps(kept["figures"], ensure_ascii=False, separators=(",", ":")))
