"""From config.yaml to checked values and sweeps: what an experiment asks for, and what is wrong in it."""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import jsonschema
import yaml

from hpcmm.model import TEXTBOOK, HpcmmError, Operation, Variant
from hpcmm.operations import OPERATIONS
from hpcmm.parallel import algorithms_of
from hpcmm.parallel.algorithm import Algorithm

SCHEMA = yaml.safe_load((Path(__file__).parent / "config.schema.yaml").read_text(encoding="utf-8"))
SCALES = tuple(SCHEMA["properties"]["scale"]["enum"])
SWITCHES = {"true": True, "false": False}  # Snakemake passes `--config profile=true` as text
# The words of a YAML author for the types of JSON Schema
TYPES = {
    "array": "a list in brackets",
    "object": "keys with values",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number, such as 0.001",
    "string": "a name",
}

MOST_POINTS = 100_000  # of an experiment: planning them takes seconds, and measuring them days
MOST_PROBLEMS = 20  # that one error lists
MOST_BYTES = 1_000_000  # of a YAML file, which takes a second to read
MOST_VALUES = 10_000  # in a YAML file, once its aliases are expanded


class ConfigError(HpcmmError):
    """A config that cannot be run.

    Parameters
    ----------
    *problems : str
        What is wrong, a line each: key, value, what is allowed. The message has the first ``MOST_PROBLEMS``.
    """

    def __init__(self, *problems: str):
        super().__init__(*problems)
        self.problems = problems

    def __str__(self) -> str:
        more = len(self.problems) - MOST_PROBLEMS
        return "\n".join([*self.problems[:MOST_PROBLEMS], *([f"and {more} more"] if more > 0 else [])])


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Put a file's name ahead of each problem of a ConfigError."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(*(f"{path}: {problem}" for problem in error.problems)) from error


class Loader(yaml.SafeLoader):
    """YAML 1.1 without its surprises.

    Refused are keys that are there twice, aliases of what they stand in, whole numbers to base 60 and 8 (1:30 is 90,
    and 010 is 8), and aliases that expand to more than ``MOST_VALUES``.
    """

    def __init__(self, stream: str | TextIO):
        super().__init__(stream)
        self.values = 0  # so far, aliases expanded
        self.values_of: dict[yaml.Node, int] = {}

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.MarkedYAMLError(problem=f"key {key.value!r} is there twice", problem_mark=key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node:
        mark = self.peek_event().start_mark
        before = self.values
        node = super().compose_node(parent, index)
        if node.end_mark is None:  # one that is not yet read to its end
            raise yaml.MarkedYAMLError(problem="an alias of what it stands in", problem_mark=node.start_mark)
        self.values += self.values_of.get(node, 1)
        self.values_of.setdefault(node, self.values - before)
        if self.values > MOST_VALUES:
            raise yaml.MarkedYAMLError(problem=f"more than {MOST_VALUES} values, aliases expanded", problem_mark=mark)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, KeyError, AttributeError) as error:  # as of the date 2026-13-01
            raise yaml.MarkedYAMLError(problem=f"not a value: {error}", problem_mark=node.start_mark) from error

    def construct_decimal(self, node: yaml.ScalarNode) -> int | float:
        digits = node.value.lstrip("+-")
        whole = node.tag == "tag:yaml.org,2002:int"
        if ":" in digits or (whole and len(digits) > 1 and digits[0] == "0" and digits[1] not in "xb"):
            base = 60 if ":" in digits else 8
            problem = f"{node.value} is a number to base {base} in YAML 1.1; write it to base 10"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
        return self.construct_yaml_int(node) if whole else self.construct_yaml_float(node)


for kind in ("int", "float"):
    Loader.add_constructor(f"tag:yaml.org,2002:{kind}", Loader.construct_decimal)


def parse(text: str | TextIO, place: str | Path) -> Any:
    """Read YAML; ``place`` is what an error names.

    Raises
    ------
    ConfigError
        If it is not YAML, with the line, or refused by ``Loader``.
    """
    try:
        return yaml.load(text, Loader)
    except RecursionError:
        raise ConfigError(f"{place}: nested too deeply") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ConfigError(f"{place}: {where}{error.problem or error.context}") from error
    except yaml.reader.ReaderError as error:
        raise ConfigError(f"{place}: not a text file (a control character at {error.position})") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{place}: not a text file in UTF-8") from error


def read_config(*paths: str | Path) -> dict[str, Any]:
    """Read config files, later ones over earlier.

    Raises
    ------
    ConfigError
        If one cannot be read or is no YAML, with the line.
    """
    config: dict[str, Any] = {}
    for path in paths:
        try:
            with Path(path).open("rb") as file:
                content = file.read(MOST_BYTES + 1)
            text = content.decode()
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ConfigError(f"{path}: not a text file in UTF-8") from error
        if len(content) > MOST_BYTES:
            raise ConfigError(f"{path}: too long; allowed: {MOST_BYTES} bytes")
        read = parse(text, path)
        if not isinstance(read, dict):
            raise ConfigError(f"{path}: {told(read)} is not allowed; allowed: keys with values, as in config.yaml")
        if isinstance(named := read.get("extensions"), list):  # relative to the file that names them
            read["extensions"] = [str(Path(path).parent / each) if isinstance(each, str) else each for each in named]
        merge_into(config, read)
    return config


def merge_into(config: dict[str, Any], changes: Mapping[str, Any]) -> None:
    """Replace values as Snakemake does for ``--config``: what is a mapping on both sides is merged."""
    for key, value in changes.items():
        if isinstance(value, Mapping) and isinstance(config.get(key), dict):
            merge_into(config[key], value)
        else:
            config[key] = value


def validated(config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Sweep]]:
    """Check a whole config: pick the values of its scale, fill in the defaults and look up what its sweeps name.

    Returns
    -------
    dict
        The config with a value for every key.
    dict of str to Sweep

    Raises
    ------
    ConfigError
        With everything that is wrong.
    """
    config = {key: SWITCHES.get(value, value) if isinstance(value, str) else value for key, value in config.items()}
    scale = config.get("scale")
    if scale not in SCALES:
        scale = SCALES[0]  # the schema refuses another one; what else is wrong shows at any scale
    found: list[tuple[tuple, str]] = []  # where and what
    config = filled(at_scale(config, scale, (), found), SCHEMA, scale)
    for error in Validator(SCHEMA).iter_errors(config):
        found += [(tuple(error.absolute_path), problem) for problem in schema_problems(error)]
    problems = list(dict.fromkeys(problem for _, problem in found))
    wrong = {path[:length] for path, _ in found for length in (1, 2)}
    if ("measuring",) not in wrong:
        least, most = (config["measuring"][f"{which}_repetitions"] for which in ("min", "max"))
        if least > most:
            problems.append(f"measuring.min_repetitions: {not_allowed(least)}at most max_repetitions, {most}")
    sweeps = {}
    entries = config["sweeps"] if isinstance(config.get("sweeps"), Mapping) else {}
    for name, entry in entries.items():
        if ("sweeps", name) not in wrong:
            try:
                sweeps[name] = read_sweep(name, entry)
            except ConfigError as error:
                problems += error.problems
    points = sum(sweep.points for sweep in sweeps.values())
    if points > MOST_POINTS and not problems:
        problems.append(f"sweeps: up to {points} points altogether; allowed: at most {MOST_POINTS}")
    if problems:
        raise ConfigError(*problems)
    return config, sweeps


def at_scale(value: Any, scale: str, path: tuple, found: list[tuple[tuple, str]]) -> Any:
    """Replace each mapping from scales to values by the value of ``scale``; a key that has none goes, and is noted."""
    if not isinstance(value, Mapping):
        return value
    picked = {}
    for key, each in value.items():
        place = (*path, key)
        if isinstance(each, Mapping) and each and set(each) <= set(SCALES) and place != ("sweeps",):
            if scale in each:
                picked[key] = each[scale]
            else:
                both = " and ".join(SCALES)
                found.append((place, f"{dotted(place)}: {told(each)} has no value for scale {scale}; give {both}"))
        else:
            picked[key] = at_scale(each, scale, place, found)
    return picked


def filled(value: Any, schema: Mapping[str, Any], scale: str) -> Any:
    """Add the schema's defaults for keys that are not given."""
    if not isinstance(value, Mapping):
        return value
    complete = dict(value)
    for key, part in schema.get("properties", {}).items():
        if "default" in part:
            default = at_scale({key: part["default"]}, scale, (), [])[key]
            complete[key] = filled(complete.get(key, default), part, scale)
    return complete


def told(value: Any) -> str:
    """A value as Python writes it, no longer than a reader wants it."""
    text = repr(value)
    return text if len(text) <= 100 else text[:100] + "..."


def dotted(path: Iterable) -> str:
    """A place in the config, ``"sweeps.size.tiles"``; numbers of list entries are left out."""
    return ".".join(str(part) for part in path if not isinstance(part, int))


def not_allowed(value: Any) -> str:
    return f"{told(value)} is not allowed; allowed: "


def unique_items(validator: Any, wanted: bool, instance: Any, schema: Any) -> Iterator[jsonschema.ValidationError]:
    """Check ``uniqueItems`` by the text of the items: jsonschema compares all pairs where they cannot be sorted."""
    if wanted and validator.is_type(instance, "array"):
        texts = [json.dumps(each, default=str) for each in instance]
        seen: set[str] = set()
        for text, each in zip(texts, instance, strict=True):
            if text in seen:
                yield jsonschema.ValidationError(f"{told(each)} is there twice")
                return
            seen.add(text)


# JSON Schema takes 64.0 for an integer, and Python does not take it for a length; nor has YAML's .inf an end
Validator = jsonschema.validators.extend(
    jsonschema.Draft202012Validator,
    validators={"uniqueItems": unique_items},
    type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER.redefine_many(
        {
            "integer": lambda _, value: type(value) is int,
            "number": lambda _, value: type(value) in (int, float) and abs(value) <= sys.float_info.max,
        }
    ),
)


def schema_problems(error: jsonschema.ValidationError) -> list[str]:
    """What is wrong in a config and what is allowed there, in the words of its author."""
    path = dotted(error.absolute_path)
    place = f"{path}: " if path else ""
    limit = error.validator_value
    name = "propertyNames" in error.absolute_schema_path
    value = f"{place}{'name ' if name else ''}{not_allowed(error.instance)}"
    match error.validator:
        case "additionalProperties":
            known = error.schema["properties"]
            unknown = [key for key in error.instance if key not in known]
            return [f"{place}unknown key {told(key)}; allowed: {', '.join(known)}" for key in unknown]
        case "required":
            missing = [key for key in limit if key not in error.instance]
            return [f"{place}key {key!r} is missing; needed: {', '.join(limit)}" for key in missing]
        case "enum":
            return [value + ", ".join(map(str, limit))]
        case "type":
            return [value + ("text; write it in quotes" if name else TYPES[limit])]
        case "pattern":
            return [value + "letters, digits, '-' and '_', first a letter or digit"]
        case "not":
            return [value + f"all but the scales, {', '.join(SCALES)}"]
        case "maxLength":
            return [value + f"at most {limit} characters"]
        case "minimum" | "maximum":
            return [value + f"at {'least' if error.validator == 'minimum' else 'most'} {limit}"]
        case "exclusiveMinimum":
            return [value + f"more than {limit}"]
        case "uniqueItems":
            return [f"{place}{error.message}; allowed: each value once"]
        case "minItems" | "minProperties":
            return [value + f"at least {limit} entry"]
        case _:
            return [f"{place}{error.message}"]


@dataclass(frozen=True)
class Sweep:
    """What an entry of the config asks for, found to be allowed.

    ``entry`` is that entry, ``place`` where it stands, and ``points`` the most points that it can have.
    """

    place: str
    entry: Mapping[str, Any]
    operation: Operation
    variants: Sequence[Variant]
    algorithms: Sequence[Algorithm]
    dtypes: Sequence[str]
    shapes: Sequence[tuple[int, ...]]
    scalars: Mapping[str, float]
    points: int


def read_sweep(name: str, entry: Mapping[str, Any]) -> Sweep:
    """Look up what an entry names.

    Raises
    ------
    ConfigError
        With everything that is unknown or does not go together.
    """
    place = f"sweeps.{name}"
    if problems := unknown(f"{place}.operation", [entry["operation"]], OPERATIONS):
        raise ConfigError(*problems)
    operation = OPERATIONS[entry["operation"]]
    names = [variant.name for variant in operation.ladder if variant.device == entry.get("device", variant.device)]
    known = {algorithm.name: algorithm for algorithm in algorithms_of(operation)}
    dtypes = entry.get("dtypes", operation.dtypes)
    problems = unknown(f"{place}.variants", entry.get("variants", []), names)
    problems += unknown(f"{place}.algorithms", entry.get("algorithms", []), known)
    problems += unknown(f"{place}.dtypes", dtypes, operation.dtypes)
    variants = [operation.variant(variant) for variant in entry.get("variants", names) if variant in names]
    algorithms = [known[each] for each in entry.get("algorithms", [TEXTBOOK]) if each in known]
    if not problems:
        problems += combined_problems(place, entry, operation, variants, algorithms, dtypes)
    for key in ("alpha", "beta"):
        if key in entry and key not in operation.scalars:
            problems.append(f"{place}.{key}: {operation.name} has no such parameter")
    scalars = {key: float(entry.get(key, value)) for key, value in operation.scalars.items()}
    axes = (variants, algorithms, dtypes, *(entry.get(key, [1]) for key in ("ranks", "tiles", "pinned")))
    each = math.prod(map(len, axes))
    try:
        shapes = sweep_shapes(place, entry, operation, each)
    except ConfigError as error:
        problems += error.problems
    if problems:
        raise ConfigError(*problems)
    return Sweep(place, entry, operation, variants, algorithms, dtypes, shapes, scalars, each * len(shapes))


def combined_problems(
    place: str,
    entry: Mapping[str, Any],
    operation: Operation,
    variants: Sequence[Variant],
    algorithms: Sequence[Algorithm],
    dtypes: Sequence[str],
) -> list[str]:
    """The problems of known names that do not go together."""
    problems = []
    for algorithm, variant in itertools.product(algorithms, variants if "variants" in entry else ()):
        if not algorithm.variants and not algorithm.takes(variant):
            others = ", ".join(each.name for each in operation.ladder if algorithm.takes(each))
            problems.append(
                f"{place}.variants: {variant.name} cannot work on a part of a matrix, as {algorithm.name} needs; "
                f"allowed: {others}"
            )
    for variant in variants if "variants" in entry else ():
        own = operation.dtypes_of(variant)
        if not set(dtypes) & set(own):
            problems += unknown(f"{place}.variants: a type of {variant.name}", dtypes[:1], own)
    widths = sorted({width for variant in variants for width in variant.tiles})
    allowed = widths or ["none, as no variant of this sweep has tiles"]
    return problems + unknown(f"{place}.tiles", entry.get("tiles", []), allowed)


def unknown(place: str, values: Iterable, allowed: Collection) -> list[str]:
    """The problems of those values that are not among the allowed ones."""
    return [f"{place}: {not_allowed(each)}{', '.join(map(str, allowed))}" for each in values if each not in allowed]


def sweep_shapes(place: str, entry: Mapping[str, Any], operation: Operation, each: int) -> list[tuple[int, ...]]:
    """The shapes that an entry asks for, by ``sizes`` or ``shapes``, with ``each`` points at most."""
    dimensions = len(operation.dimensions)
    if ("sizes" in entry) == ("shapes" in entry):
        raise ConfigError(f"{place}: give either sizes or shapes")
    asked = entry["shapes"] if "shapes" in entry else entry["sizes"]
    if isinstance(asked, Mapping):
        start, stop = asked["start"], asked["stop"]
        if start > stop:
            raise ConfigError(f"{place}.sizes.start: {not_allowed(start)}at most stop, {stop}")
        asked = range(start, stop + 1, asked["step"])
    if len(asked) * each > MOST_POINTS:
        raise ConfigError(
            f"{place}: up to {len(asked) * each} points, its sizes times its variants, types, ranks and so on; "
            f"allowed: at most {MOST_POINTS}"
        )
    if "sizes" in entry:
        return [(size,) * dimensions for size in asked]
    if wrong := [shape for shape in asked if len(shape) != dimensions]:
        raise ConfigError(*(f"{place}.shapes: {not_allowed(each)}{', '.join(operation.dimensions)}" for each in wrong))
    return [tuple(shape) for shape in asked]
