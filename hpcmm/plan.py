"""From the experiment's config to batches of points, with what each should take and when it has to run again.

The plan does not depend on what hardware the planner sees, but for the batches that it leaves out
under ``backends: auto``; each of those is kept with the reason.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import itertools
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from hpcmm import kernels
from hpcmm.config import JOB_MINUTES, ConfigError, Sweep, read_sweep, require, spreads, validated
from hpcmm.durations import STARTUP_SECONDS, placing_seconds, point_seconds
from hpcmm.model import TEXTBOOK, Algorithm, Batch, Measuring, Operation, Point, Variant, spread_name
from hpcmm.operations import OPERATIONS


@dataclass(frozen=True)
class Plan:
    """Every batch of an experiment, and why some of them are left out (batch name to reason)."""

    batches: tuple[Batch, ...]
    left_out: Mapping[str, str]
    measuring: Measuring
    share_gpu: bool
    transport: str
    config: Mapping[str, Any]

    @property
    def to_measure(self) -> list[Batch]:
        return [batch for batch in self.batches if batch.name not in self.left_out]

    def batch(self, name: str) -> Batch:
        for batch in self.batches:
            if batch.name == name:
                return batch
        raise ConfigError(f"no batch {name!r}; planned are: {', '.join(b.name for b in self.batches)}")

    @property
    def fingerprint(self) -> str:
        return digest(dataclasses.asdict(self))

    def omitted(self) -> list[dict[str, Any]]:
        """Rows for the store's group of that name."""
        rows = dict.fromkeys(
            (batch.sweep, spread_name(point.variant, point.algorithm), batch.ranks, self.left_out[batch.name])
            for batch in self.batches
            if batch.name in self.left_out
            for point in batch.points
        )
        return [dict(zip(("sweep", "variant", "ranks", "reason"), row, strict=True)) for row in rows]

    @property
    def profiled(self) -> dict[str, tuple[Point, ...]]:
        """What Nsight Compute is to look at, by operation; empty unless the config asks for it.

        It is the floating-point part of the sweep with the most GPU variants, on one GPU at its largest size.
        Of operations that have their kernels in common it looks at the first.
        """
        found = {}
        for operation in OPERATIONS if self.config.get("profile") else ():
            if any(OPERATIONS[operation].kernels == OPERATIONS[other].kernels for other in found):
                continue
            sweeps: dict[str, list[Point]] = {}
            for batch in self.to_measure:
                if (batch.operation, batch.device, batch.ranks) == (operation, "cuda", 1):
                    own = [point for point in batch.points if point.algorithm == TEXTBOOK]
                    floating = [point for point in own if point.dtype.startswith("float")]
                    sweeps.setdefault(batch.sweep, []).extend(floating)
            points = max(sweeps.values(), key=lambda points: len({point.variant for point in points}), default=[])
            if points:
                largest = max((point.shape for point in points), key=math.prod)
                chosen = [point for point in points if point.shape == largest]
                found[operation] = tuple(sorted(chosen, key=lambda point: point.dtype))  # which share their inputs
        return found

    def points_to_profile(self, operation: str) -> tuple[Point, ...]:
        profiled = self.profiled
        if operation not in profiled:
            raise ConfigError(f"no profile of {operation!r} is planned; planned are: {', '.join(profiled) or 'none'}")
        return profiled[operation]

    def profile_fingerprint(self, operation: str) -> str:
        """What changes when a profile has to be taken again."""
        points = self.points_to_profile(operation)
        variants = {point.variant: OPERATIONS[operation].variant(point.variant) for point in points}
        sources = [[record(variant), source_digest(OPERATIONS[operation], variant)] for variant in variants.values()]
        return digest([[point.key for point in points], sources, self.measuring.cache, self.measuring.seed])

    def unprofiled(self) -> list[dict[str, str]]:
        """Rows for the store's group of that name: operations that are not to be profiled, and why."""
        rows, profiled = [], self.profiled
        for operation in dict.fromkeys(batch.operation for batch in self.batches):
            batches = [batch for batch in self.batches if (batch.operation, batch.device) == (operation, "cuda")]
            reasons = [self.left_out[batch.name] for batch in batches if batch.name in self.left_out]
            reasons.append("no GPU variant is measured in floating point on one rank")
            shared = [other for other in profiled if OPERATIONS[other].kernels == OPERATIONS[operation].kernels]
            if shared:
                reasons = [f"the kernels are those of {shared[0]}"]
            if not self.config.get("profile"):
                reasons = ["not asked for: make profile, or --config profile=true"]
            if operation not in profiled:
                rows.append({"operation": operation, "reason": reasons[0]})
        return rows

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".tmp")
        entry = dataclasses.asdict(self) | {"fingerprint": self.fingerprint}
        temporary.write_text(json.dumps(entry, indent=1) + "\n")
        temporary.replace(path)


def read(path: Path) -> Plan:
    """Read a plan that ``Plan.write`` wrote.

    Raises
    ------
    ConfigError
        If there is none, or one of another version, or one that is damaged.
    """
    try:
        entry = json.loads(path.read_text(encoding="utf-8"))
        fingerprint = entry["fingerprint"]
        del entry["fingerprint"]
        if fingerprint != digest(entry):
            raise ValueError("not as it was written")
        return from_json(entry)
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file; a run writes it when it starts") from error
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ConfigError(f"{path}: not a plan of this version of hpcmm; start the run again") from error


def from_json(entry: dict[str, Any]) -> Plan:
    for batch in entry["batches"]:
        batch |= {name: tuple(batch[name]) for name in ("fingerprints", "predicted")}
        batch["points"] = tuple(Point(**point | {"shape": tuple(point["shape"])}) for point in batch["points"])
    entry["batches"] = tuple(Batch(**batch) for batch in entry["batches"])
    return Plan(**entry | {"measuring": Measuring(**entry["measuring"])})


def make(config: Mapping[str, Any], cuda_missing: str = "", gpus: int = sys.maxsize, cpus: int = sys.maxsize) -> Plan:
    """Plan an experiment; without more than the config, for a cluster that has all that it asks for.

    Parameters
    ----------
    config : mapping
        What config.yaml holds.
    cuda_missing : str
        Why this machine cannot run CUDA variants; empty if it can.
    gpus, cpus : int
        GPUs of this machine, and its logical cores.

    Raises
    ------
    ConfigError
        For the first wrong value found.
    """
    config = validated(config)
    measuring = Measuring(**config["measuring"])
    share_gpu, transport = config.get("share_gpu", False), config.get("transport", "auto")
    longest = 60 * config.get("job_minutes", JOB_MINUTES)
    batches = tuple(
        batch
        for sweep, entry in config["sweeps"].items()
        for batch in sweep_batches(sweep, entry, measuring, transport, share_gpu, longest)
    )
    left_out = {
        batch.name: reason
        for batch in batches
        if (reason := reason_to_leave_out(batch, config["backends"], share_gpu, cuda_missing, gpus, cpus))
    }
    if not set(left_out) < {batch.name for batch in batches}:
        reasons = "; ".join(sorted(set(left_out.values()))) or "no sweep has a size at this scale"
        raise ConfigError(f"config: nothing is left to measure: {reasons}")
    return Plan(batches, left_out, measuring, share_gpu, transport, config)


def reason_to_leave_out(batch: Batch, backends: str, share_gpu: bool, cuda_missing: str, gpus: int, cpus: int) -> str:
    """Say why a batch is not to be measured, by the config's ``backends`` and what this machine has; empty if it is."""
    if backends != "auto":
        return "" if backends == batch.device else f"the config asks for backends: {backends}"
    if batch.device == "cuda" and cuda_missing:
        return cuda_missing
    if batch.device == "cuda" and batch.ranks > gpus and not share_gpu:
        return f"{batch.ranks} ranks need a GPU each and this machine has {gpus} (share_gpu: false)"
    if batch.device == "cpu" and batch.ranks > cpus:
        return f"{batch.ranks} ranks need a core each and this machine has {cpus} (backends: cpu measures all the same)"
    for algorithm in map(OPERATIONS[batch.operation].algorithm, {point.algorithm for point in batch.points}):
        if algorithm.package and importlib.util.find_spec(algorithm.package) is None:
            return f"{algorithm.package} is not installed (extra {algorithm.name})"
    return ""


def sweep_batches(
    name: str, entry: Mapping[str, Any], measuring: Measuring, transport: str, share_gpu: bool, longest: float
) -> Iterator[Batch]:
    """Plan a sweep: for each device and number of ranks a batch, or several where it would take too long."""
    sweep = read_sweep(name, entry)
    operation = sweep.operation
    problems = itertools.product(sweep.shapes, sweep.dtypes, dict.fromkeys([*entry.get("pinned", []), True]))
    order = {problem: i for i, problem in enumerate(problems)}
    kinds = {
        variant.name: digest([record(variant), source_digest(operation, variant), operation.macros, measuring])
        for variant in sweep.variants
    }
    kinds |= {
        algorithm.name: digest([algorithm.measures, algorithm_digest(algorithm), transport])
        for algorithm in sweep.algorithms
        if algorithm.name != TEXTBOOK
    }
    devices = dict.fromkeys(variant.device for variant in sweep.variants)
    packages = sorted({algorithm.package for algorithm in sweep.algorithms})  # what may be missing has jobs of its own
    for device, ranks in itertools.product(devices, entry.get("ranks", [1])):
        sharing = ["share_gpu"] if share_gpu and device == "cuda" and ranks > 1 else []
        parts: list[list[tuple[Point, float]]] = []
        for package in packages:
            points = [
                point
                for variant in sweep.variants
                if variant.device == device
                for algorithm in sweep.algorithms
                if algorithm.package == package and spreads(algorithm, variant)
                for point in variant_points(sweep, variant, algorithm, ranks)
            ]
            points.sort(key=lambda point: order[problem_of(point)])
            parts += split(operation, points, measuring, longest)
        for number, part in enumerate(parts, 1):
            members, predicted = zip(*part, strict=True)
            fingerprints = tuple(
                digest([kinds[point.variant], kinds.get(point.algorithm, ""), point.key, *sharing])[:16]
                for point in members
            )
            yield Batch(
                sweep=name,
                operation=operation.name,
                device=device,
                ranks=ranks,
                part=number,
                points=members,
                fingerprints=fingerprints,
                predicted=predicted,
                seconds=STARTUP_SECONDS + sum(predicted),
                fingerprint=digest(fingerprints),
            )


def variant_points(sweep: Sweep, variant: Variant, algorithm: Algorithm, ranks: int) -> list[Point]:
    """The points of a variant on a number of ranks: its shapes in its types, with each value of what it can vary."""
    place, entry, operation = sweep.place, sweep.entry, sweep.operation
    own = [dtype for dtype in sweep.dtypes if dtype in operation.dtypes_of(variant)]
    if "variants" in entry and not own:
        require(f"{place}.variants: a type of {variant.name}", sweep.dtypes[0], operation.dtypes_of(variant))
    axes = {}  # parameters of which each value makes points of its own
    if variant.tiles:
        axes["tile"] = [t for t in entry.get("tiles", variant.tiles[-1:]) if t in variant.tiles]
    if variant.device == "cuda" and "pinned" in entry and algorithm.name == TEXTBOOK:
        axes["pinned"] = entry["pinned"]
    points = [
        Point(
            operation.name,
            variant.name,
            shape,
            dtype,
            ranks,
            {**sweep.parameters, **{name: float(value) for name, value in zip(axes, values, strict=True)}},
            algorithm.name,
        )
        for shape, dtype, *values in itertools.product(sweep.shapes, own, *axes.values())
    ]
    if variant.exact and not entry.get("allow_fail", False):
        even = [point for point in points if comes_out_even(point)]
        if "variants" in entry and even != points:
            refuse_ragged(place, next(point for point in points if point not in even))
        points = even
    return points


def problem_of(point: Point) -> tuple:
    """What points of a sweep that share their inputs have in common."""
    return point.shape, point.dtype, point.pinned


def split(
    operation: Operation, points: Sequence[Point], measuring: Measuring, longest: float
) -> Iterator[list[tuple[Point, float]]]:
    """Divide points into parts that should take at most ``longest`` seconds, each point with its own.

    A problem is divided only if it is longer than a job may be: its inputs are drawn again in each part.
    """
    part: list[tuple[Point, float]] = []
    total = STARTUP_SECONDS
    for _, group in itertools.groupby(points, problem_of):
        members = list(group)
        placing = placing_seconds(operation, members[0])
        times = [point_seconds(operation, point, measuring) for point in members]
        whole = placing + sum(times)
        for i, (point, seconds) in enumerate(zip(members, times, strict=True)):
            if i == 0:
                seconds += placing
            undivided = i == 0 and STARTUP_SECONDS + whole <= longest
            if part and total + (whole if undivided else seconds) > longest:
                yield part
                part, total = [], STARTUP_SECONDS
                seconds += placing * (i > 0)
            part.append((point, seconds))
            total += seconds
    if part:
        yield part


def comes_out_even(point: Point) -> bool:
    """Whether the tile divides every dimension, on every rank."""
    tile = int(point.parameters["tile"])
    return all(size % tile == 0 for size in point.shape) and point.shape[0] % (tile * point.ranks) == 0


def refuse_ragged(place: str, point: Point) -> NoReturn:
    """Refuse a size that its variant would get wrong."""
    shape, tile = "x".join(map(str, point.shape)), point.parameters["tile"]
    raise ConfigError(
        f"config: {place}: {point.variant} needs multiples of its tile, {tile:g}, on each rank; {shape} on "
        f"{point.ranks} is none: leave it out, or set allow_fail: true to see it FAIL"
    )


def digest(value: Any) -> str:
    """A text that changes with a value, from process to process the same."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=dataclasses.asdict).encode()).hexdigest()


def record(variant: Variant) -> dict[str, Any]:
    """What of a variant's record changes its times: all but what it says about it, and what the plan thinks of it."""
    said = ("change", "source", "deterministic", "arithmetic", "slow")
    return {key: value for key, value in dataclasses.asdict(variant).items() if key not in said}


def source_digest(operation: Operation, variant: Variant) -> str:
    """Of a variant's source, and of the path in it that the environment names; empty for a library."""
    if variant.baseline:
        return ""
    source = kernels.source(operation.kernels, variant).read_bytes()
    if b"HPCMM_SIMD" in source:
        source += os.environ.get("HPCMM_SIMD", "widest").encode()
    return hashlib.sha256(source).hexdigest()


def algorithm_digest(algorithm: Algorithm) -> str:
    """Of the modules that decide an algorithm's times; they are read, not imported: planning needs no MPI."""
    folder = Path(__file__).parent / "parallel"
    names = (algorithm.name, "distribution", "schedules", "transports")
    return digest([(folder / f"{name}.py").read_text() for name in names])
