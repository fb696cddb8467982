"""From the experiment's config to batches of points; every error in a config is found here.

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
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import jsonschema
import numpy as np
import yaml

from hpcmm import kernels
from hpcmm.model import TEXTBOOK, Algorithm, Batch, HpcmmError, Measuring, Operation, Point, Variant, spread_name
from hpcmm.operations import OPERATIONS
from hpcmm.operations.accuracy import COMPONENTWISE_LIMIT

SCHEMA = yaml.safe_load((Path(__file__).parent / "config.schema.yaml").read_text())
SCALES = tuple(SCHEMA["properties"]["scale"]["enum"])
JOB_MINUTES = SCHEMA["properties"]["job_minutes"]["default"]
SWITCHES = {"true": True, "false": False}  # Snakemake hands over `--config profile=true` as text
# JSON Schema takes 64.0 for an integer, and Python does not take it for a length; nor has YAML's .inf an end
Validator = jsonschema.validators.extend(
    jsonschema.Draft202012Validator,
    type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER.redefine_many(
        {
            "integer": lambda _, value: type(value) is int,
            "number": lambda _, value: type(value) is int or (type(value) is float and math.isfinite(value)),
        }
    ),
)
# What JSON Schema calls a type, in the words of who writes YAML
TYPES = {
    "array": "a list in brackets",
    "object": "keys with values",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number, such as 0.001",
    "string": "a name",
}


# What a job is given at most, in seconds. A slow machine must not take longer, so these are guesses on the
# safe side, from which follow the length of jobs, the time that a cluster is asked for and a deadline.
STARTUP_SECONDS = 30  # Python, MPI and the device, from a busy file system
POINT_SECONDS = {"cpu": 0.1, "cuda": 2}  # compiling the kernel, loading it
DRAWING_SECONDS = 1e-7  # of an element: drawing it and computing its reference
JUDGING_SECONDS = 5e-8  # of an element, each time
HOST_FLOPS_PER_SECOND = 5e9  # BLAS in float64
COPIED_BYTES_PER_SECOND = 5e8  # from rank 0 to all and back
FLOPS_PER_SECOND = {"cpu": 1e9, "cuda": 5e10}  # of our kernels
BASELINE_FLOPS_PER_SECOND = {"cpu": 5e9, "cuda": 2e11}
SLOW_FLOPS_PER_SECOND = 1e8  # of a scalar loop whose matrices fit into no cache


class ConfigError(HpcmmError):
    """A config that cannot be run; the message names the key, the value and what is allowed."""


class Loader(yaml.SafeLoader):
    """YAML as it is, but for a key that is there twice: the second would take the first one's place unseen."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        seen = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"key {key.value!r} is there twice", problem_mark=key.start_mark)
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else key)
        return super().construct_mapping(node, deep)


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
                reasons = [f"its kernels are those of {shared[0]}"]
            if not self.config.get("profile"):
                reasons = ["not asked for: make profile, or --config profile=true"]
            if operation not in profiled:
                rows.append({"operation": operation, "reason": reasons[0]})
        return rows

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(dataclasses.asdict(self), indent=1) + "\n")
        temporary.replace(path)


def read(path: Path) -> Plan:
    """Read a plan that ``Plan.write`` wrote.

    Raises
    ------
    ConfigError
        If there is none, or one of another version.
    """
    try:
        return from_json(json.loads(path.read_text()))
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file; a run writes it when it starts") from error
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"{path}: not a plan of this version of hpcmm; start the run again") from error


def read_config(*paths: str | Path) -> dict[str, Any]:
    """Read config files, later ones over earlier.

    Raises
    ------
    ConfigError
        If one is not there or not YAML, with the line; or has a key twice.
    """
    config: dict[str, Any] = {}
    for path in paths:
        try:
            with Path(path).open(encoding="utf-8") as file:
                read = yaml.load(file, Loader)
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from error
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: {error}") from error
        if not isinstance(read, dict):
            raise ConfigError(f"{path}: {read!r}; allowed: keys with values, as in config.yaml")
        merge_into(config, read)
    return config


def merge_into(config: dict[str, Any], changes: Mapping[str, Any]) -> None:
    """Replace values as Snakemake does for ``--config``: what is a mapping on both sides is merged."""
    for key, value in changes.items():
        if isinstance(value, Mapping) and isinstance(config.get(key), dict):
            merge_into(config[key], value)
        else:
            config[key] = value


def from_json(entry: dict[str, Any]) -> Plan:
    for batch in entry["batches"]:
        batch |= {name: tuple(batch[name]) for name in ("fingerprints", "predicted")}
        batch["points"] = tuple(Point(**point | {"shape": tuple(point["shape"])}) for point in batch["points"])
    entry["batches"] = tuple(Batch(**batch) for batch in entry["batches"])
    return Plan(**entry | {"measuring": Measuring(**entry["measuring"])})


def make(config: Mapping[str, Any], cuda_missing: str, gpus: int, cpus: int = sys.maxsize) -> Plan:
    """Plan an experiment.

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
    left_out = {}
    for batch in batches:
        reason = reason_to_leave_out(batch, config["backends"], share_gpu, cuda_missing, gpus, cpus)
        if reason:
            left_out[batch.name] = reason
    if not set(left_out) < {batch.name for batch in batches}:
        reasons = "; ".join(sorted(set(left_out.values()))) or "no sweep has a size at this scale"
        raise ConfigError(f"config: nothing is left to measure: {reasons}")
    return Plan(batches, left_out, measuring, share_gpu, transport, config)


def reason_to_leave_out(batch: Batch, backends: str, share_gpu: bool, cuda_missing: str, gpus: int, cpus: int) -> str:
    """Say why a batch is not to be measured, by the config's ``backends`` and what this machine has; empty if it is."""
    if backends == "cpu" and batch.device == "cuda":
        return "the config asks for backends: cpu"
    if backends == "cuda" and batch.device == "cpu":
        return "the config asks for backends: cuda"
    if backends == "auto" and batch.device == "cuda":
        if cuda_missing:
            return cuda_missing
        if batch.ranks > gpus and not share_gpu:
            return f"{batch.ranks} ranks need a GPU each and this machine has {gpus} (share_gpu: false)"
    if backends == "auto" and batch.device == "cpu" and batch.ranks > cpus:
        return f"{batch.ranks} ranks need a core each and this machine has {cpus} (backends: cpu measures all the same)"
    if backends == "auto":
        for algorithm in map(OPERATIONS[batch.operation].algorithm, {point.algorithm for point in batch.points}):
            if algorithm.package and importlib.util.find_spec(algorithm.package) is None:
                return f"{algorithm.package} is not installed (extra {algorithm.name})"
    return ""


def validated(config: Mapping[str, Any]) -> dict[str, Any]:
    """Pick the values of the chosen scale and hold the result against the schema."""
    scale = config.get("scale", SCALES[0])
    require("scale", scale, SCALES)
    for name in config.get("sweeps") or ():
        if name in SCALES:
            raise ConfigError(f"config: sweeps: name {name!r}; allowed: all but the scales, {', '.join(SCALES)}")
    switched = {key: SWITCHES.get(value, value) if isinstance(value, str) else value for key, value in config.items()}
    picked = at_scale(switched, scale)
    error = jsonschema.exceptions.best_match(Validator(SCHEMA).iter_errors(picked))
    if error is not None:
        raise ConfigError(schema_message(error))
    measuring = picked["measuring"]
    if measuring["min_repetitions"] > measuring["max_repetitions"]:
        raise ConfigError(
            f"config: measuring.min_repetitions: {measuring['min_repetitions']}; "
            f"allowed: at most max_repetitions, {measuring['max_repetitions']}"
        )
    return picked


def at_scale(value: Any, scale: str) -> Any:
    """Replace each mapping from scales to values by the value of ``scale``."""
    if isinstance(value, Mapping):
        if value and set(value) <= set(SCALES):
            if scale not in value:
                raise ConfigError(f"config: {dict(value)} has no value for scale {scale}; give {' and '.join(SCALES)}")
            return value[scale]
        return {key: at_scale(each, scale) for key, each in value.items()}
    return value


def schema_message(error: jsonschema.ValidationError) -> str:
    """What is wrong in a config and what is allowed there, in the words of its author."""
    place = ".".join(str(part) for part in error.absolute_path) or "top level"
    limit = error.validator_value
    match error.validator:
        case "additionalProperties":
            unknown = [key for key in error.instance if key not in error.schema["properties"]]
            return f"config: {place}: unknown key {unknown[0]!r}; allowed: {', '.join(error.schema['properties'])}"
        case "required":
            missing = [key for key in limit if key not in error.instance]
            return f"config: {place}: key {missing[0]!r} is missing; needed: {', '.join(limit)}"
        case "enum":
            allowed = "allowed: " + ", ".join(map(str, limit))
        case "type" if "propertyNames" in error.absolute_schema_path:
            return f"config: {place}: name {error.instance!r}; allowed: text; write it in quotes"
        case "type":
            allowed = f"allowed: {TYPES[limit]}"
        case "pattern":
            return f"config: {place}: name {error.instance!r}; allowed: letters, digits, '-' and '_'"
        case "minimum" | "exclusiveMinimum":
            allowed = f"allowed: {'more than' if error.validator == 'exclusiveMinimum' else 'at least'} {limit}"
        case "maximum":
            allowed = f"allowed: at most {limit}"
        case "uniqueItems":
            allowed = "allowed: each value once"
        case "minItems" | "minProperties":
            allowed = f"allowed: at least {limit} entry"
        case _:
            allowed = error.message
    return f"config: {place}: {error.instance!r}; {allowed}"


def require(place: str, value: Any, allowed: Collection) -> None:
    """Refuse a value that is not one of those allowed at its place."""
    if value not in allowed:
        raise ConfigError(f"config: {place}: {value!r}; allowed: {', '.join(map(str, allowed))}")


@dataclass(frozen=True)
class Sweep:
    """What an entry of the config asks for, found to be allowed; ``entry`` is that, and ``place`` where it stands."""

    place: str
    entry: Mapping[str, Any]
    operation: Operation
    variants: Sequence[Variant]
    algorithms: Sequence[Algorithm]
    dtypes: Sequence[str]
    shapes: Sequence[tuple[int, ...]]
    parameters: Mapping[str, float]


def read_sweep(name: str, entry: Mapping[str, Any]) -> Sweep:
    """Look up what an entry names; refuse what is unknown or does not go together."""
    place = f"sweeps.{name}"
    require(f"{place}.operation", entry["operation"], OPERATIONS)
    operation = OPERATIONS[entry["operation"]]
    names = [variant.name for variant in operation.ladder if variant.device == entry.get("device", variant.device)]
    for variant in entry.get("variants", names):
        require(f"{place}.variants", variant, names)
    variants = [operation.variant(variant) for variant in entry.get("variants", names)]
    known = [algorithm.name for algorithm in operation.algorithms]
    for algorithm in entry.get("algorithms", []):
        require(f"{place}.algorithms", algorithm, known)
    algorithms = [operation.algorithm(algorithm) for algorithm in entry.get("algorithms", known[:1])]
    for algorithm, variant in itertools.product(algorithms, variants if "variants" in entry else ()):
        if not algorithm.variants and not spreads(algorithm, variant):
            raise ConfigError(
                f"config: {place}.variants: {variant.name} does not work on any part of a matrix in place; "
                f"allowed with {algorithm.name}: "
                f"{', '.join(v.name for v in operation.ladder if spreads(algorithm, v))}"
            )
    dtypes = entry.get("dtypes", operation.dtypes)
    for dtype in dtypes:
        require(f"{place}.dtypes", dtype, operation.dtypes)
    widths = sorted({width for variant in variants for width in variant.tiles})
    for tile in entry.get("tiles", []):
        require(f"{place}.tiles", tile, widths or ["none, as no variant of this sweep has tiles"])
    for key in ("alpha", "beta"):
        if key in entry and key not in operation.parameters:
            raise ConfigError(f"config: {place}.{key}: {operation.name} has no such parameter")
    parameters = {key: float(entry.get(key, value)) for key, value in operation.parameters.items()}
    shapes = sweep_shapes(place, entry, operation)
    return Sweep(place, entry, operation, variants, algorithms, dtypes, shapes, parameters)


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


def spreads(algorithm: Algorithm, variant: Variant) -> bool:
    """Whether an algorithm goes with a variant: but the textbook's, with those that multiply any part in its place."""
    if algorithm.variants:
        return variant.name in algorithm.variants
    return algorithm.name == TEXTBOOK or not (variant.exact or variant.pitched)


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


def placing_seconds(operation: Operation, point: Point) -> float:
    """Seconds that drawing a point's inputs and computing their reference should take at most."""
    # a reference is up to seven products of the same size, but never more than what is checked elementwise
    flops = min(7 * operation.flops(point.shape, point.parameters), 2 * COMPONENTWISE_LIMIT)
    return flops / HOST_FLOPS_PER_SECOND + elements(operation, point) * DRAWING_SECONDS


def point_seconds(operation: Operation, point: Point, measuring: Measuring) -> float:
    """Seconds that measuring a point beside its baseline should take at most, on inputs in place."""
    variant = operation.variant(point.variant)
    seconds = POINT_SECONDS[variant.device]
    if point.algorithm == TEXTBOOK:
        contenders = list(dict.fromkeys((variant, operation.baseline(variant.device))))
    else:  # beside the textbook's with the same variant
        contenders = [variant, variant]
    for contender in contenders:
        call = call_seconds(operation, contender, point)
        # the checked call, then warm-ups, whole calls and kernels, each up to the limit and over it by a call
        seconds += call + 3 * (measuring.max_seconds + min(call, measuring.max_seconds))
        seconds += 2 * elements(operation, point) * JUDGING_SECONDS
    return seconds


def call_seconds(operation: Operation, variant: Variant, point: Point) -> float:
    """Seconds that one whole call of a variant should take at most."""
    rates = BASELINE_FLOPS_PER_SECOND if variant.baseline else FLOPS_PER_SECOND
    rate = SLOW_FLOPS_PER_SECOND if variant.slow else rates[variant.device]
    copied = operation.bytes(point.shape, point.dtype, point.parameters) / COPIED_BYTES_PER_SECOND
    return operation.flops(point.shape, point.parameters) / rate + copied


def elements(operation: Operation, point: Point) -> float:
    """Elements that a point reads and writes."""
    return operation.bytes(point.shape, point.dtype, point.parameters) / np.dtype(point.dtype).itemsize


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


def sweep_shapes(place: str, entry: Mapping[str, Any], operation: Operation) -> list[tuple[int, ...]]:
    """The shapes that an entry asks for, by ``sizes`` or ``shapes``."""
    dimensions = len(operation.dimensions)
    if ("sizes" in entry) == ("shapes" in entry):
        raise ConfigError(f"config: {place}: give either sizes or shapes")
    if "sizes" in entry:
        sizes = entry["sizes"]
        if isinstance(sizes, Mapping):
            if sizes["start"] > sizes["stop"]:
                raise ConfigError(
                    f"config: {place}.sizes.start: {sizes['start']}; allowed: at most stop, {sizes['stop']}"
                )
            sizes = range(sizes["start"], sizes["stop"] + 1, sizes["step"])
        return [(size,) * dimensions for size in sizes]
    for shape in entry["shapes"]:
        if len(shape) != dimensions:
            raise ConfigError(f"config: {place}.shapes: {shape!r}; allowed: {', '.join(operation.dimensions)}")
    return [tuple(shape) for shape in entry["shapes"]]


def duration(seconds: float) -> str:
    """Seconds for a reader.

    >>> duration(7.4), duration(200), duration(9000)
    ('7 s', '3 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


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
