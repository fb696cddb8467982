"""From the experiment's config to batches of points; every error in a config is found here.

The plan does not depend on what hardware the planner sees, but for the batches that it leaves out
under ``backends: auto``; each of those is kept with the reason.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import jsonschema
import yaml

from hpcmm import kernels
from hpcmm.model import Batch, HpcmmError, Measuring, Operation, Point, Variant
from hpcmm.operations import OPERATIONS

SCHEMA = yaml.safe_load((Path(__file__).parent / "config.schema.yaml").read_text())
SCALES = tuple(SCHEMA["properties"]["scale"]["enum"])
# JSON Schema takes 64.0 for an integer, and Python does not take it for a length
Validator = jsonschema.validators.extend(
    jsonschema.Draft202012Validator,
    type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int),
)


class ConfigError(HpcmmError):
    """A config that cannot be run; the message names the key, the value and what is allowed."""


@dataclass(frozen=True)
class Plan:
    """Every batch of an experiment, and why some of them are left out (batch name to reason)."""

    batches: tuple[Batch, ...]
    left_out: Mapping[str, str]
    measuring: Measuring
    share_gpu: bool
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
        return [
            {"sweep": b.sweep, "variant": b.variant, "ranks": b.ranks, "reason": self.left_out[b.name]}
            for b in self.batches
            if b.name in self.left_out
        ]

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(dataclasses.asdict(self), indent=1) + "\n")
        temporary.replace(path)


def read(path: Path) -> Plan:
    """Read a plan that ``Plan.write`` wrote."""
    entry = json.loads(path.read_text())
    entry["batches"] = tuple(
        Batch(**batch | {"points": tuple(Point(**p | {"shape": tuple(p["shape"])}) for p in batch["points"])})
        for batch in entry["batches"]
    )
    return Plan(**entry | {"measuring": Measuring(**entry["measuring"])})


def make(config: Mapping[str, Any], cuda_missing: str, gpus: int) -> Plan:
    """Plan an experiment.

    Parameters
    ----------
    config : mapping
        What config.yaml holds.
    cuda_missing : str
        Why this machine cannot run CUDA variants; empty if it can.
    gpus : int
        GPUs of this machine.

    Raises
    ------
    ConfigError
        For the first wrong value found.
    """
    config = validated(config)
    measuring = Measuring(**config["measuring"])
    share_gpu = config.get("share_gpu", False)
    batches = tuple(
        batch for sweep, entry in config["sweeps"].items() for batch in sweep_batches(sweep, entry, measuring)
    )
    left_out = {}
    for batch in batches:
        reason = reason_to_leave_out(batch, config["backends"], share_gpu, cuda_missing, gpus)
        if reason:
            left_out[batch.name] = reason
    if not set(left_out) < {batch.name for batch in batches}:
        reasons = "; ".join(sorted(set(left_out.values()))) or "no sweep has a size at this scale"
        raise ConfigError(f"config: nothing is left to measure: {reasons}")
    return Plan(batches, left_out, measuring, share_gpu, config)


def reason_to_leave_out(batch: Batch, backends: str, share_gpu: bool, cuda_missing: str, gpus: int) -> str:
    if backends == "cpu" and batch.device == "cuda":
        return "the config asks for backends: cpu"
    if backends == "cuda" and batch.device == "cpu":
        return "the config asks for backends: cuda"
    if backends == "auto" and batch.device == "cuda":
        if cuda_missing:
            return cuda_missing
        if batch.ranks > gpus and not share_gpu:
            return f"{batch.ranks} ranks need a GPU each and this machine has {gpus} (share_gpu: false)"
    return ""


def validated(config: Mapping[str, Any]) -> dict[str, Any]:
    """Pick the values of the chosen scale and hold the result against the schema."""
    scale = config.get("scale", SCALES[0])
    require("scale", scale, SCALES)
    for name in config.get("sweeps") or ():
        if name in SCALES:
            raise ConfigError(f"config: sweeps: name {name!r}; allowed: all but the scales, {', '.join(SCALES)}")
    picked = at_scale(dict(config), scale)
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
    place = ".".join(str(part) for part in error.absolute_path) or "top level"
    limit = error.validator_value
    match error.validator:
        case "additionalProperties":
            unknown = sorted(set(error.instance) - set(error.schema["properties"]))
            return f"config: {place}: unknown key {unknown[0]!r}; allowed: {', '.join(error.schema['properties'])}"
        case "required":
            missing = [key for key in limit if key not in error.instance]
            return f"config: {place}: key {missing[0]!r} is missing; needed: {', '.join(limit)}"
        case "enum":
            allowed = "allowed: " + ", ".join(map(str, limit))
        case "type":
            allowed = f"allowed: {limit}"
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
    if value not in allowed:
        raise ConfigError(f"config: {place}: {value!r}; allowed: {', '.join(map(str, allowed))}")


def sweep_batches(sweep: str, entry: Mapping[str, Any], measuring: Measuring) -> Iterator[Batch]:
    place = f"sweeps.{sweep}"
    require(f"{place}.operation", entry["operation"], OPERATIONS)
    operation = OPERATIONS[entry["operation"]]
    names = [variant.name for variant in operation.ladder]
    for name in entry.get("variants", names):
        require(f"{place}.variants", name, names)
    variants = [operation.variant(name) for name in entry.get("variants", names)]
    dtypes = entry.get("dtypes", operation.dtypes)
    for dtype in dtypes:
        require(f"{place}.dtypes", dtype, operation.dtypes)
    widths = sorted({width for variant in variants for width in variant.tiles})
    for tile in entry.get("tiles", []):
        require(f"{place}.tiles", tile, widths or ["none, as no variant of this sweep has tiles"])
    for key in ("alpha", "beta"):
        if key in entry and key not in operation.parameters:
            raise ConfigError(f"config: {place}.{key}: {operation.name} has no such parameter")
        if not math.isfinite(entry.get(key, 0)):
            raise ConfigError(f"config: {place}.{key}: {entry[key]!r}; allowed: a finite number")
    parameters = {key: float(entry.get(key, value)) for key, value in operation.parameters.items()}

    for variant, ranks in itertools.product(variants, entry.get("ranks", [1])):
        axes = {}  # parameters of which each value makes points of its own
        if variant.tiles:
            axes["tile"] = [t for t in entry.get("tiles", variant.tiles[-1:]) if t in variant.tiles]
        if variant.device == "cuda" and "pinned" in entry:
            axes["pinned"] = entry["pinned"]
        points = tuple(
            Point(
                operation.name,
                variant.name,
                shape,
                dtype,
                ranks,
                parameters | {name: float(value) for name, value in zip(axes, values, strict=True)},
            )
            for shape, dtype, *values in itertools.product(
                sweep_shapes(place, entry, operation), dtypes, *axes.values()
            )
        )
        if variant.exact and not entry.get("allow_fail", False):
            even = tuple(point for point in points if comes_out_even(point))
            if "variants" in entry and even != points:
                refuse_ragged(place, next(point for point in points if point not in even))
            points = even
        if points:
            kernel = [source_digest(operation, variant), operation.macros]
            fingerprint = digest([record(variant), kernel, points_of(points), measuring])
            yield Batch(sweep, operation.name, variant.name, variant.device, ranks, points, fingerprint)


def comes_out_even(point: Point) -> bool:
    """Whether the tile divides every dimension, on every rank."""
    tile = int(point.parameters["tile"])
    return all(size % tile == 0 for size in point.shape) and point.shape[0] % (tile * point.ranks) == 0


def refuse_ragged(place: str, point: Point) -> NoReturn:
    shape, tile = "x".join(map(str, point.shape)), point.parameters["tile"]
    raise ConfigError(
        f"config: {place}: {point.variant} needs multiples of its tile, {tile:g}, on each rank; {shape} on "
        f"{point.ranks} is none: leave it out, or set allow_fail: true to see it FAIL"
    )


def sweep_shapes(place: str, entry: Mapping[str, Any], operation: Operation) -> list[tuple[int, ...]]:
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


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=dataclasses.asdict).encode()).hexdigest()


def points_of(points: tuple[Point, ...]) -> list[str]:
    return [point.key for point in points]


def record(variant: Variant) -> dict[str, Any]:
    """What of a variant's record changes its times: all but what it says about the variant."""
    said = ("change", "source", "deterministic")
    return {key: value for key, value in dataclasses.asdict(variant).items() if key not in said}


def source_digest(operation: Operation, variant: Variant) -> str:
    return (
        "" if variant.baseline else hashlib.sha256(kernels.source(operation.kernels, variant).read_bytes()).hexdigest()
    )
