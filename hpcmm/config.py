"""From config.yaml to checked values and sweeps: what an experiment asks for, and what is wrong in it."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import jsonschema
import yaml

from hpcmm.model import TEXTBOOK, Algorithm, HpcmmError, Operation, Variant
from hpcmm.operations import OPERATIONS

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
            "number": lambda _, value: type(value) in (int, float) and abs(value) <= sys.float_info.max,
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


MOST_POINTS = 100_000  # of a sweep: planning them takes seconds, and measuring them days


class ConfigError(HpcmmError):
    """A config that cannot be run; the message names the key, the value and what is allowed."""


class Loader(yaml.SafeLoader):
    """YAML as it is, but for a key that is there twice: the second would take the first one's place unseen."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.MarkedYAMLError(problem=f"key {key.value!r} is there twice", problem_mark=key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node:
        node = super().compose_node(parent, index)
        if node.end_mark is None:  # one that is not yet read to its end
            raise yaml.MarkedYAMLError(problem="an alias of what it stands in", problem_mark=node.start_mark)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, KeyError, AttributeError) as error:  # as of the date 2026-13-01
            raise yaml.MarkedYAMLError(problem=f"not a value: {error}", problem_mark=node.start_mark) from error


def parse(text: str | TextIO, place: str | Path) -> Any:
    """Read YAML; ``place`` is what an error names."""
    try:
        return yaml.load(text, Loader)
    except RecursionError:
        raise ConfigError(f"{place}: brackets or indents in one another without end") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{place}: {error}") from error


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
                read = parse(file, path)
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from error
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


def validated(config: Mapping[str, Any]) -> dict[str, Any]:
    """Pick the values of the chosen scale and hold the result against the schema."""
    scale = config.get("scale", SCALES[0])
    require("scale", scale, SCALES)
    sweeps = config.get("sweeps")
    for name in sweeps if isinstance(sweeps, Mapping) else ():
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


def at_scale(value: Any, scale: str, place: str = "") -> Any:
    """Replace each mapping from scales to values by the value of ``scale``."""
    if isinstance(value, Mapping):
        if value and set(value) <= set(SCALES):
            if scale not in value:
                both = " and ".join(SCALES)
                raise ConfigError(f"config: {place}: {told(value)} has no value for scale {scale}; give {both}")
            return value[scale]
        return {key: at_scale(each, scale, f"{place}.{key}" if place else str(key)) for key, each in value.items()}
    return value


def told(value: Any) -> str:
    """A value as Python writes it, no longer than a reader wants it."""
    text = repr(value)
    return text if len(text) <= 100 else text[:100] + "..."


def schema_message(error: jsonschema.ValidationError) -> str:
    """What is wrong in a config and what is allowed there, in the words of its author."""
    place = ".".join(str(part) for part in error.absolute_path) or "top level"
    limit = error.validator_value
    match error.validator:
        case "additionalProperties":
            unknown = [key for key in error.instance if key not in error.schema["properties"]]
            return f"config: {place}: unknown key {told(unknown[0])}; allowed: {', '.join(error.schema['properties'])}"
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
            return f"config: {place}: name {told(error.instance)}; allowed: letters, digits, '-' and '_'"
        case "maxLength":
            return f"config: {place}: name {told(error.instance)}; allowed: at most {limit} characters"
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
    return f"config: {place}: {told(error.instance)}; {allowed}"


def require(place: str, value: Any, allowed: Collection) -> None:
    """Refuse a value that is not one of those allowed at its place."""
    if value not in allowed:
        raise ConfigError(f"config: {place}: {told(value)}; allowed: {', '.join(map(str, allowed))}")


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
    axes = (variants, algorithms, dtypes, *(entry.get(key, [1]) for key in ("ranks", "tiles", "pinned")))
    shapes = sweep_shapes(place, entry, operation, math.prod(map(len, axes)))
    return Sweep(place, entry, operation, variants, algorithms, dtypes, shapes, parameters)


def sweep_shapes(place: str, entry: Mapping[str, Any], operation: Operation, points: int) -> list[tuple[int, ...]]:
    """The shapes that an entry asks for, by ``sizes`` or ``shapes``; each has so many points at most."""
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
        if len(sizes) * points > MOST_POINTS:
            raise ConfigError(
                f"config: {place}: up to {len(sizes) * points} points, its sizes times its variants, types, ranks and "
                f"so on; allowed: at most {MOST_POINTS}"
            )
        return [(size,) * dimensions for size in sizes]
    for shape in entry["shapes"]:
        if len(shape) != dimensions:
            raise ConfigError(f"config: {place}.shapes: {shape!r}; allowed: {', '.join(operation.dimensions)}")
    return [tuple(shape) for shape in entry["shapes"]]


def spreads(algorithm: Algorithm, variant: Variant) -> bool:
    """Whether an algorithm goes with a variant: but the textbook's, with those that multiply any part in its place."""
    if algorithm.variants:
        return variant.name in algorithm.variants
    return algorithm.name == TEXTBOOK or not (variant.exact or variant.pitched)
