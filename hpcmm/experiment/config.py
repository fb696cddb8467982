"""Read and check config.yaml: from text to values and sweeps, with all errors."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcmm.kernels import file_of, is_file, name_of
from hpcmm.model import TEXTBOOK, Operation, Variant
from hpcmm.model.devices import DEVICES
from hpcmm.model.dtypes import DTYPES, DType
from hpcmm.model.records import beside
from hpcmm.operations import OPERATIONS
from hpcmm.operations.shapes import drawn
from hpcmm.parallel import algorithms_of
from hpcmm.parallel.algorithm import Algorithm
from hpcmm.system.reader import ConfigError, dotted, not_allowed, parse, schema_errors, schema_problems, short, text_of
from hpcmm.system.text import choices

SCHEMA = beside(__file__, "config.schema.yaml")
SCALES = tuple(SCHEMA["properties"]["scale"]["enum"])
SWITCHES = {"true": True, "false": False}  # Snakemake passes `--config profile=true` as text
MOST_POINTS = 100_000  # of an experiment: planning them takes seconds, measuring them days
# Step and largest magnitude of scalars with which results are exact in int32, and in float32 with small integers as
# inputs: see matmul.draw
INTEGERS, FRACTIONS = (1, 16), (0.0625, 64)


def read_config(*paths: str | Path, changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Read a config from files, of which later ones change earlier ones, and the changes of a command line."""
    config: dict[str, Any] = {}
    for path in paths:
        read = parse(text_of(path), path)
        if not isinstance(read, dict):
            wrong = "is empty" if read is None else f"{short(read)} is not allowed"
            raise ConfigError(f"{path}: {wrong}; allowed: keys with values")
        locate_files(read, path)
        merge_into(config, read)
    merge_into(config, changes or {})
    locate_files(config, paths[-1])
    return config


def locate_files(config: Mapping[str, Any], path: str | Path) -> None:
    """Make the paths of extensions and kernels absolute: they are relative to the folder of the config's file."""
    folder, extensions = Path(path).resolve().parent, config.get("extensions")
    places = [(extensions, i) for i in range(len(extensions))] if isinstance(extensions, list) else []
    for names, i in (*places, *kernel_places(config)):
        if isinstance(names[i], str):
            names[i] = str(folder / names[i])


def kernel_places(config: Mapping[str, Any]) -> Iterator[tuple[list, int]]:
    """Yield the places where the sweeps of a config name files as variants: a list and an index."""
    sweeps = config.get("sweeps")
    for entry in sweeps.values() if isinstance(sweeps, Mapping) else ():
        variants = entry.get("variants") if isinstance(entry, Mapping) else None
        for each in variants.values() if isinstance(variants, Mapping) else (variants,):
            if isinstance(each, list):
                yield from ((each, i) for i, name in enumerate(each) if isinstance(name, str) and is_file(name))


def merge_into(config: dict[str, Any], changes: Mapping[str, Any]) -> None:
    """Replace values as Snakemake does for ``--config``: two mappings are merged."""
    for key, value in changes.items():
        if isinstance(value, Mapping) and isinstance(config.get(key), dict):
            merge_into(config[key], value)
        else:
            config[key] = value


def changes_of(overrides: Sequence[str]) -> dict[str, Any]:
    """Read changes of a config as ``hpcmm run``: ``KEY=VALUE`` replaces a value or merges two mappings."""
    changes: dict[str, Any] = {}
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals:
            allowed = "KEY=VALUE; a file is: --config-file FILE"
            raise ConfigError(f"--config {override}: not an override; allowed: {allowed}")
        parsed = parse(value, f"--config {override}")
        for name in reversed(key.split(".")):
            parsed = {name: parsed}
        merge_into(changes, parsed)
    return changes


def validated(config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Sweep]]:
    """Check a config; return it complete at its scale, and its sweeps by name, or raise all problems."""
    config = {key: SWITCHES.get(value, value) if isinstance(value, str) else value for key, value in config.items()}
    scale = config.get("scale")
    if scale not in SCALES:
        scale = SCALES[0]  # the schema reports the unknown scale; other problems show at any scale
    found: list[tuple[tuple, str]] = []  # path and problem
    config = filled(at_scale(config, scale, (), found), SCHEMA, scale)
    for error in schema_errors(SCHEMA, config):
        found += [(tuple(error.absolute_path), problem) for problem in schema_problems(error)]
    problems = list(dict.fromkeys(problem for _, problem in found))
    wrong = {path[:length] for path, _ in found for length in (1, 2)}
    if ("measuring",) not in wrong:
        limits = config["measuring"]
        for less, more in (("min_repetitions", "max_repetitions"), ("jobs", "visits")):
            if limits[less] > limits[more]:
                problems.append(f"measuring.{less}: {not_allowed(limits[less])}at most {more}, {limits[more]}")
    sweeps = {}
    entries = config["sweeps"] if isinstance(config.get("sweeps"), Mapping) else {}
    for name, entry in entries.items():
        if ("sweeps", name) not in wrong:
            try:
                sweeps[name] = read_sweep(name, entry)
            except ConfigError as error:
                problems += error.problems
        elif isinstance(entry, Mapping):
            bad = {path[2] for path, _ in found if path[:2] == ("sweeps", name) and len(path) > 2}
            problems += name_problems(f"sweeps.{name}", {key: entry[key] for key in entry if key not in bad})
    points = sum(sweep.points for sweep in sweeps.values())
    if points > MOST_POINTS and not problems:
        problems.append(f"sweeps: up to {points} points altogether; allowed: at most {MOST_POINTS}")
    if problems:
        raise ConfigError(*problems)
    return config, sweeps


def at_scale(value: Any, scale: str, path: tuple, found: list[tuple[tuple, str]]) -> Any:
    """Replace each mapping from scales to values by the value of ``scale``; report and drop keys without one."""
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
                found.append((place, f"{dotted(place)}: {short(each)} has no value for scale {scale}; give {both}"))
        else:
            picked[key] = at_scale(each, scale, place, found)
    return picked


def filled(value: Any, schema: Mapping[str, Any], scale: str) -> Any:
    if not isinstance(value, Mapping):
        return value
    complete = dict(value)
    for key, part in schema.get("properties", {}).items():
        if "default" in part:
            default = at_scale({key: part["default"]}, scale, (), [])[key]
            complete[key] = filled(complete.get(key, default), part, scale)
    return complete


@dataclass(frozen=True)
class Sweep:
    """A sweep of the config: its place there, its entry, and the records of the names in it."""

    place: str
    entry: Mapping[str, Any]
    operation: Operation
    variants: Sequence[Variant]
    algorithms: Sequence[Algorithm]
    dtypes: Sequence[str]
    scalars: Mapping[str, float]

    @property
    def per_shape(self) -> int:
        """An upper bound of the points of a shape."""
        axes = self.variants, self.algorithms, self.dtypes
        return math.prod(map(len, (*axes, *(self.entry.get(key, [1]) for key in ("ranks", "tiles", "pinned")))))

    @property
    def points(self) -> int:
        """An upper bound of its number of points."""
        return self.per_shape * max(map(len, self.shapes.values()))

    @functools.cached_property
    def shapes(self) -> dict[str, list[tuple[int, ...]]]:
        """The shapes by device, from ``sizes`` or ``shapes``; ConfigError if they are wrong."""
        if ("sizes" in self.entry) == ("shapes" in self.entry):
            raise ConfigError(f"{self.place}: give either sizes or shapes")
        given = self.entry.get("sizes", self.entry.get("shapes"))
        if isinstance(given, Mapping) and set(given) <= set(DEVICES):
            return {name: self.shapes_of(f"{self.place}.{name}", given.get(name, [])) for name in DEVICES}
        return dict.fromkeys(DEVICES, self.shapes_of(self.place, given))

    def shapes_of(self, place: str, given: Any) -> list[tuple[int, ...]]:
        """Return the shapes of an entry that are the same on each device."""
        names = self.operation.dimensions
        if isinstance(given, Mapping) and "drawn" in given:
            if names != ("m", "n", "k"):
                raise ConfigError(f"{place}.shapes.drawn: {not_allowed(self.operation.name)}operations on m, n, k")
            given = drawn(given["drawn"], given["count"], given["seed"])
        elif isinstance(given, Mapping):
            start, stop = given["start"], given["stop"]
            if start > stop:
                raise ConfigError(f"{place}.sizes.start: {not_allowed(start)}at most stop, {stop}")
            given = range(start, stop + 1, given["step"])
        if (points := len(given) * self.per_shape) > MOST_POINTS:
            about = "sizes times variants, types, ranks and so on"
            raise ConfigError(f"{place}: up to {points} points: {about}; allowed: at most {MOST_POINTS}")
        if "sizes" in self.entry:
            return [(size,) * len(names) for size in given]
        if wrong := [shape for shape in given if len(shape) != len(names)]:
            raise ConfigError(*(f"{place}.shapes: {not_allowed(each)}{', '.join(names)}" for each in wrong))
        return [tuple(shape) for shape in given]

    def problems(self) -> list[str]:
        """Return the problems of names that cannot be combined."""
        place, operation, dtypes, found = self.place, self.operation, self.dtypes, []
        named = self.variants if "variants" in self.entry else ()
        for algorithm, variant in itertools.product(self.algorithms, named):
            if not algorithm.variants and not algorithm.takes(variant):
                others = ", ".join(each.name for each in operation.ladder if algorithm.takes(each))
                found.append(
                    f"{place}.variants: {variant.name} cannot compute on a block of a matrix, "
                    f"which {algorithm.name} needs; allowed: {others}"
                )
        for algorithm in self.algorithms:
            if not any(map(algorithm.takes_type, dtypes)):
                found.append(
                    f"{place}.algorithms: {algorithm.name} supports only types whose sums are of the same type; "
                    f"allowed in dtypes: {', '.join(filter(algorithm.takes_type, operation.dtypes))}"
                )
        types = {variant.name: operation.dtypes_of(variant) for variant in self.variants}
        for variant in named:
            if not set(dtypes) & set(types[variant.name]):
                found += unknown(f"{place}.variants: a type of {variant.name}", dtypes[:1], types[variant.name])
        able = [dtype for dtype in operation.dtypes if any(dtype in own for own in types.values())]
        if not named and not set(dtypes) & set(able):
            found += unknown(f"{place}.dtypes: a type of device {self.entry.get('device')}", dtypes[:1], able)
        widths = sorted({width for variant in self.variants for width in variant.tiles})
        allowed = widths or ["none, because no variant of this sweep has tiles"]
        return found + unknown(f"{place}.tiles", self.entry.get("tiles", []), allowed)


def read_sweep(name: str, entry: Mapping[str, Any]) -> Sweep:
    """Look up the names in the entry of a sweep; raise ConfigError with all that are wrong."""
    place = f"sweeps.{name}"
    problems = name_problems(place, entry)
    if entry["operation"] not in OPERATIONS:
        raise ConfigError(*problems)
    operation = OPERATIONS[entry["operation"]]
    given, names = variants_of(operation, entry)
    known = {algorithm.name: algorithm for algorithm in algorithms_of(operation)}
    variants = [operation.variant(variant) for variant in dict.fromkeys(given) if variant in names]
    dtypes = entry.get("dtypes", operation.dtypes_of_all(variants))
    algorithms = [known[each] for each in entry.get("algorithms", [TEXTBOOK]) if each in known]
    scalars = {key: float(entry[key]) for key in operation.scalars if key in entry}
    sweep = Sweep(place, entry, operation, variants, algorithms, dtypes, scalars)
    problems = problems or sweep.problems()
    for key in ("alpha", "beta"):
        if key in entry and key not in operation.scalars:
            problems.append(f"{place}.{key}: {operation.name} has no such parameter")
    for dtype, (key, value) in itertools.product(filter(DTYPES.get, dtypes), scalars.items()):
        if allowed := scalars_of(DTYPES[dtype], value):
            problems.append(f"{place}.{key}: {not_allowed(value)}{allowed} for {dtype}")
    try:
        _ = sweep.shapes
    except ConfigError as error:
        problems += error.problems
    if problems:
        raise ConfigError(*problems)
    return sweep


def scalars_of(element: DType, value: float) -> str:
    """Return what alpha and beta may be, if they may not have this value: right results might be infinite, or zero."""
    if element.exact:
        step, most = INTEGERS if element.is_integer else FRACTIONS
        fits = value % step == 0 and abs(value) <= most
        return "" if fits else f"multiples of {step} up to {most}, with which results are exact,"
    least, most = (math.log2(each) // 2 for each in (element.results.smallest_subnormal, element.results.largest))
    fits = value == 0 or 2**least <= abs(value) <= 2**most
    return "" if fits else f"0, or magnitudes from 2^{least:.0f} to 2^{most:.0f}"


def name_problems(place: str, entry: Mapping[str, Any]) -> list[str]:
    """Return the unknown names in the entry of a sweep, which may lack keys."""
    if entry.get("operation") not in OPERATIONS:
        return unknown(f"{place}.operation", [entry["operation"]] if "operation" in entry else [], OPERATIONS)
    operation = OPERATIONS[entry["operation"]]
    problems = unknown(f"{place}.variants", *variants_of(operation, entry))
    algorithms = [algorithm.name for algorithm in algorithms_of(operation)]
    problems += unknown(f"{place}.algorithms", entry.get("algorithms", []), algorithms)
    return problems + unknown(f"{place}.dtypes", entry.get("dtypes", []), operation.dtypes)


def variants_of(operation: Operation, entry: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the names of an entry's variants, by default all that are allowed, and the allowed names."""
    names = [variant.name for variant in operation.ladder if variant.device == entry.get("device", variant.device)]
    return [of_file(operation, each) if is_file(each) else each for each in entry.get("variants", names)], names


def of_file(operation: Operation, name: str) -> str:
    """Return the name of the variant whose source is a file, else the file's."""
    path, values = file_of(name)
    path = Path(path).resolve()
    own = name_of(path, values)
    return next((own for variant in operation.ladder if (variant.path, variant.name) == (path, own)), name)


def unknown(place: str, values: Iterable, allowed: Collection) -> list[str]:
    return [f"{place}: {not_allowed(value)}{choices(value, allowed)}" for value in values if value not in allowed]
