"""From config.yaml to checked values and sweeps: what an experiment asks for, and what is wrong in it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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


def spreads(algorithm: Algorithm, variant: Variant) -> bool:
    """Whether an algorithm goes with a variant: but the textbook's, with those that multiply any part in its place."""
    if algorithm.variants:
        return variant.name in algorithm.variants
    return algorithm.name == TEXTBOOK or not (variant.exact or variant.pitched)
