"""Read and check rubric.yaml, with all errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcmm.devices import DEVICES, Device
from hpcmm.experiment.config import read_config, unknown
from hpcmm.model import Operation, Variant
from hpcmm.operations import with_kernels
from hpcmm.operations.heads import PYTHON
from hpcmm.reader import ConfigError, naming, not_allowed, schema_errors, schema_of, schema_problems

SCHEMA = schema_of(Path(__file__).with_name("rubric.schema.yaml"))
LIBRARY = "library"


@dataclass(frozen=True)
class Speed:
    """Points for speed: the rung or library to compare with, the problem to time, and the points from each ratio on."""

    against: Variant
    shape: tuple[int, ...]
    dtype: str
    repetitions: int
    steps: Mapping[float, float]

    def points(self, ratio: float) -> float:
        """Return the points for a ratio.

        >>> Speed(None, (), "float32", 9, {0.5: 1, 1.0: 3}).points(0.7)
        1
        """
        return max((points for step, points in self.steps.items() if ratio >= step), default=0)


@dataclass(frozen=True)
class Exercise:
    """One exercise of a rubric; ``seconds`` is its time limit and ``address_space`` its memory in bytes."""

    name: str
    file: str
    device: Device
    operation: Operation
    points: float
    dtypes: tuple[str, ...]
    shapes: int
    most: int
    seconds: float
    address_space: int
    speed: Speed | None

    @property
    def of(self) -> float:
        """The points that can be reached."""
        return self.points + (max(self.speed.steps.values()) if self.speed else 0)


@dataclass(frozen=True)
class Rubric:
    """A checked rubric."""

    title: str
    exercises: tuple[Exercise, ...]


def read(path: Path) -> Rubric:
    """Read a rubric.

    Raises
    ------
    ConfigError
        With all problems.
    """
    given = read_config(path)
    with naming(path):
        return checked(given)


def checked(given: Mapping[str, Any]) -> Rubric:
    """Check a rubric, and look up its names."""
    found = [(tuple(error.absolute_path), error) for error in schema_errors(SCHEMA, given)]
    problems = list(dict.fromkeys(problem for _, error in found for problem in schema_problems(error)))
    wrong = {path[:2] for path, _ in found}
    default = {key: part["default"] for key, part in SCHEMA["properties"].items() if "default" in part}
    whole = default | dict(given)
    exercises = []
    entries = given["exercises"] if isinstance(given.get("exercises"), Mapping) else {}
    for name, entry in entries.items():
        if ("exercises", name) not in wrong and not wrong & {("seconds",), ("memory_mb",)}:
            try:
                exercises.append(exercise_of(name, entry, whole))
            except ConfigError as error:
                problems += error.problems
    files = [each.file for each in exercises]
    for each in exercises:
        if files.count(each.file) > 1:
            problems.append(f"exercises.{each.name}.file: {not_allowed(each.file)}a file of its own")
    if problems:
        raise ConfigError(*problems)
    return Rubric(whole["title"], tuple(exercises))


def exercise_of(name: str, entry: Mapping[str, Any], whole: Mapping[str, Any]) -> Exercise:
    """Look up the names in the entry of an exercise."""
    place = f"exercises.{name}"
    properties = SCHEMA["$defs"]["exercise"]["properties"]
    entry = {key: part["default"] for key, part in properties.items() if "default" in part} | dict(entry)
    file = entry.get("file", f"{name}.cu")
    suffixes = {each.suffix: each for each in DEVICES.values()} | {PYTHON: DEVICES["cpu"]}
    device = suffixes.get(Path(file).suffix)
    known = with_kernels()
    problems = unknown(f"{place}.operation", [entry["operation"]], known)
    if device is None or Path(file).name != file or file.startswith("."):
        problems.append(
            f"{place}.file: {not_allowed(file)}the name of a file with {', '.join(suffixes)}, without a folder"
        )
    if problems:
        raise ConfigError(*problems)
    operation = known[entry["operation"]]
    problems += unknown(f"{place}.dtypes", entry["dtypes"], operation.dtypes)
    speed = None
    if "speed" in entry and not problems:
        try:
            speed = speed_of(f"{place}.speed", entry, operation, device)
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(*problems)
    return Exercise(
        *(name, file, device, operation, entry["points"], tuple(entry["dtypes"]), entry["shapes"], entry["most"]),
        entry.get("seconds", whole["seconds"]),
        whole["memory_mb"] << 20,
        speed,
    )


def speed_of(place: str, entry: Mapping[str, Any], operation: Operation, device: Device) -> Speed:
    """Look up the names in the entry of a speed."""
    given = entry["speed"]
    dtype = given.get("dtype", entry["dtypes"][0])
    rungs = [each.name for each in operation.ladder if each.device == device.name and not each.exact]
    problems = unknown(f"{place}.against", [given["against"]], [*rungs, LIBRARY])
    problems += unknown(f"{place}.dtype", [dtype], entry["dtypes"])
    if len(given["shape"]) != len(operation.dimensions):
        names = ", ".join(operation.dimensions)
        problems.append(f"{place}.shape: {not_allowed(given['shape'])}one number for each of {names}")
    steps = {each["ratio"]: each["points"] for each in given["steps"]}
    if len(steps) < len(given["steps"]):
        problems.append(f"{place}.steps: a ratio appears twice; allowed: each ratio once")
    if not problems:
        library = given["against"] == LIBRARY
        against = operation.baseline(device.name, dtype) if library else operation.variant(given["against"])
        problems += unknown(f"{place}.against: a type of {against.name}", [dtype], operation.dtypes_of(against))
    if problems:
        raise ConfigError(*problems)
    repetitions = given.get("repetitions", SCHEMA["$defs"]["speed"]["properties"]["repetitions"]["default"])
    return Speed(against, tuple(given["shape"]), dtype, repetitions, steps)
