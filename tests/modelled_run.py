"""A whole experiment with modelled times, for tests of the report: no time in it was measured.

    python tests/modelled_run.py timings.h5 [quick|full]

The points are the points of config.yaml. Each time follows from a simple model of a machine with
eight GPUs that no one has built, with noise from a fixed seed.
"""

import dataclasses
import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import timings
import yaml
from tasks import machine

from hpcmm.experiment import plan
from hpcmm.model import Variant
from hpcmm.model.dtypes import DTYPES
from hpcmm.model.measurement import Measurement, Point, Sample
from hpcmm.operations import OPERATIONS, task_of
from hpcmm.parallel import ALGORITHMS

CONFIG = Path(__file__).parents[1] / "config.yaml"
REPETITIONS = 6
CLOCK = 1.7e9
PEAK = {"cpu": 4e11, "cuda": 132 * 256 * CLOCK}
BANDWIDTH = {"cpu": 5e10, "cuda": 4e12}
LINK = {True: 50e9, False: 8e9}  # bytes a second from and to pinned and pageable memory
MPI = 5e9
PEER, EXCHANGES = 3e11, [2**16, 2**20, 2**24, 2**28]
GPU = {
    "name": "Modelled GPU", "driver": "1.2", "compute_capability": "90", "multiprocessors": 132, "memory_bytes": 2**37,
    "l2_bytes": 50 * 2**20, "max_sm_clock": 1.98e9, "max_memory_clock": 3.2e9, "memory_bus_bits": 6144,
    **timings.HOPPER,
}  # fmt: skip
PROVENANCE = {
    "utc": "2026-01-02T03:04:05+00:00", "host": "modelled", "system": "no machine: every time follows from a model",
    "python": "3.12.1", "cpu": {"model": "Modelled CPU", "cores": 32}, "mpi": {"library": "Modelled MPI 1.0"},
    "packages": {"numpy": "2.0"}, "measuring": {"cache": "cold"},
}  # fmt: skip

UNUSUAL = {"bank_conflict": 0.3, "uncoalesced": 0.2, "conflict_free": 1.05, "tiled_unrolled": 0.85}


def efficiency(variant: Variant, point: Point) -> float:
    """The part of the device's limit that a rung reaches: the higher, the more; a few rungs gain nothing."""
    ladder = [each for each in OPERATIONS[point.operation].ladder if each.device == variant.device]
    reached = 0.02 * 40 ** (ladder.index(variant) / max(1, len(ladder) - 1))
    reached *= UNUSUAL.get(variant.name, 1)
    if variant.tiles:
        tile = point.tile
        reached *= {8: 0.5, 16: 0.8, 32: 1.0}[tile]
        used = [n / (-(-n // tile) * tile) for n in point.shape]
        reached *= float(np.prod(used[:2]))
    return reached


def kernel_seconds(variant: Variant, point: Point) -> float:
    """Time of the kernel alone on one rank's part."""
    operation, task = OPERATIONS[point.operation], task_of(point)
    flops, nbytes = task.flops, task.bytes
    arithmetic = flops / PEAK[variant.device] * (2 if point.dtype == "float64" and variant.device == "cpu" else 1)
    narrow = 1 + 64 / min(point.shape) if operation.metric == "flops" else 1
    work = max(arithmetic * narrow if operation.metric == "flops" else 0.0, nbytes / BANDWIDTH[variant.device])
    return work / efficiency(variant, point) / point.ranks + (4e-6 if variant.device == "cuda" else 5e-7)


def phases(variant: Variant, point: Point, kernel: float) -> dict[str, float]:
    """Times of the phases of an end-to-end call."""
    itemsize, size = DTYPES[point.dtype].itemsize, point.shape[0] * point.shape[-1]
    found = {"scatter": 1e-6 + (point.ranks - 1) / point.ranks * size * itemsize / MPI}
    if point.operation == "matmul":
        found["broadcast"] = 1e-6 + (point.ranks > 1) * size * itemsize / MPI
    if variant.device == "cuda":
        speed = LINK[point.page_locked]
        found["upload"] = 2e-5 + 3 * size * itemsize / speed
        if variant.pitched:
            found["pitch"] = 1e-5 + 4 * size * itemsize / 2e12
        found["download"] = 1e-5 + size * itemsize / speed
    found["gather"] = 1e-6 + (point.ranks - 1) / point.ranks * size * itemsize / MPI
    found["kernel"] = kernel
    return found


def samples(variant: Variant, point: Point, rng: np.random.Generator) -> Iterator[Sample]:
    kernel, gpu = kernel_seconds(variant, point), variant.device == "cuda"
    for repetition in range(REPETITIONS):
        for rank in range(point.ranks):
            noise = 1 + 0.004 * abs(rng.standard_normal(9))
            state = {"sm_clock": CLOCK, "memory_clock": 3.2e9, "throttle_reasons": 0.0} if gpu else {}
            if gpu:
                state |= {"temperature": 40.0 + repetition, "power": 300 + 20 * rng.standard_normal()}
            yield Sample(repetition, rank, False, {"kernel": kernel * noise[0]}, state)
            whole = zip(phases(variant, point, kernel).items(), noise[1:], strict=False)
            call = {name: seconds * factor for (name, seconds), factor in whole}
            yield Sample(repetition, rank, True, call | {"total": sum(call.values()) + 3e-6}, state)


def resources(variant: Variant, point: Point) -> dict[str, float]:
    if variant.device == "cpu" or variant.library:
        return {}
    tile = point.tile
    task = dataclasses.replace(task_of(point), multiprocessors=132)
    block = (tile, tile) if tile else (task.macros.get("BLOCK", 128), 1)
    registers = 40 if tile else 128
    resident = min(2048 // (block[0] * block[1]), 32, 65536 // (registers * block[0] * block[1]))
    return timings.kernel(timings.HOPPER, block, resident, registers=registers, shared_bytes=8 * tile**2)


def measurements(point: Point, rng: np.random.Generator) -> Iterator[Measurement]:
    operation = OPERATIONS[point.operation]
    variant = operation.variant(point.variant)
    if variant.exact and not point.divides_into_tiles:
        yield timings.measurement(point, verdict=timings.FAIL, resources=resources(variant, point))
        return
    if point.algorithm != "scatter":
        (kind,) = ALGORITHMS[point.algorithm].measures
        for algorithm in (point.algorithm, "scatter"):
            kept = [sample for sample in samples(variant, point, rng) if sample.call == (kind == "call")]
            yield timings.measurement(point, variant.name, samples=kept, algorithm=algorithm)
        return
    baseline = operation.baseline(variant.device, point.dtype)
    for each in dict.fromkeys((variant, baseline) if baseline else (variant,)):
        own = resources(variant, point) if each is variant else {}
        clock = CLOCK if variant.device == "cuda" else math.nan
        yield timings.measurement(point, each.name, samples=samples(each, point, rng), resources=own, clock=clock)


def thinned(config: dict[str, Any]) -> dict[str, Any]:
    """Return the sweeps with at most two sizes or shapes; a range of sizes has steps that are eight times as large."""
    for sweep in config["sweeps"].values():
        for sizes in (each for each in (sweep.get("sizes"), sweep.get("shapes")) if isinstance(each, dict)):
            full = sizes["full"]
            if isinstance(full, dict):
                full["step"] *= 8
            else:
                sizes["full"] = full[len(full) // 2 :: max(1, (len(full) - 1) // 2)]
    return config


def write(path: Path, config: Mapping[str, Any] | None = None, scale: str = "full") -> Path:
    """Write the timings of an experiment, by default that of config.yaml, with fewer sizes in its longest sweeps."""
    config = dict(config or thinned(yaml.safe_load(CONFIG.read_text()))) | {"scale": scale, "backends": "auto"}
    rng, parts = np.random.default_rng(1), []
    planned = plan.make(config, machine(gpus=8))
    by_ranks: dict[int, dict[str, list[Measurement]]] = {}
    for batch in planned.to_measure:
        for point in batch.points:
            by_ranks.setdefault(point.ranks, {}).setdefault(batch.sweep, []).extend(measurements(point, rng))
    for ranks, sweeps in by_ranks.items():
        gpus = [GPU | {"uuid": f"GPU-{rank}"} for rank in range(ranks)]
        exchanges = {"bytes": EXCHANGES, "seconds": [1e-5 + size / PEER for size in EXCHANGES]} if ranks > 1 else {}
        parts += timings.batches(sweeps, PROVENANCE | {"gpus": gpus, "exchanges": exchanges})
    timings.merge([], path, planned.rows_unmeasured(), parts=parts)
    return path


if __name__ == "__main__":
    print(write(Path(sys.argv[1]), scale=sys.argv[2] if len(sys.argv) > 2 else "full"))
