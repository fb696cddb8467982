"""Read and check rubric.yaml, with all errors."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcmm.experiment.config import read_config, unknown
from hpcmm.grading import questions
from hpcmm.grading.counts import PROPERTIES, Limits
from hpcmm.model import Operation, Variant
from hpcmm.model.devices import DEVICES, Device
from hpcmm.model.records import beside
from hpcmm.operations import with_kernels
from hpcmm.operations.heads import PYTHON
from hpcmm.system.reader import ConfigError, naming, not_allowed, schema_errors, schema_problems

SCHEMA = beside(__file__, "rubric.schema.yaml")
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
    """One exercise of a rubric; ``seconds`` is its time limit and ``address_space`` its memory in bytes.

    ``sheet`` is that of questions, empty for a kernel; ``ranks`` are the numbers of MPI ranks, empty without MPI;
    ``grids`` are numbers of blocks that must give the same bits.
    """

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
    speed: Speed | None = None
    counts: Limits | None = None
    ranks: tuple[int, ...] = ()
    grids: tuple[int, ...] = ()
    sheet: str = ""
    hint: str = ""

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
    given = read_config(path)
    with naming(path):
        return checked(given)


def checked(given: Mapping[str, Any]) -> Rubric:
    """Check a rubric, and look up its names."""
    errors = [*schema_errors(SCHEMA, given)]
    problems = list(dict.fromkeys(problem for error in errors for problem in schema_problems(error)))
    wrong = {tuple(error.absolute_path)[:2] for error in errors}
    whole = with_defaults(given, SCHEMA)
    exercises = []
    entries = given["exercises"] if isinstance(given.get("exercises"), Mapping) else {}
    for name, entry in entries.items():
        if ("exercises", name) not in wrong and not wrong & {("seconds",), ("memory_mb",)}:
            try:
                exercises.append(exercise_of(name, with_defaults(entry, SCHEMA["$defs"]["exercise"]), whole))
            except ConfigError as error:
                problems += error.problems
    files = [exercise.file for exercise in exercises]
    for each in exercises:
        if files.count(each.file) > 1:
            problems.append(f"exercises.{each.name}.file: {not_allowed(each.file)}a file of its own")
    if problems:
        raise ConfigError(*problems)
    return Rubric(whole["title"], tuple(exercises))


def with_defaults(given: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    return {key: part["default"] for key, part in schema["properties"].items() if "default" in part} | dict(given)


def exercise_of(name: str, entry: Mapping[str, Any], whole: Mapping[str, Any]) -> Exercise:
    """Look up the names in the entry of an exercise; raise ConfigError with its problems."""
    place = f"exercises.{name}"
    file = entry.get("file", f"{name}.cu")
    answers = {questions.SUFFIX: DEVICES["cpu"]}
    kernels = {each.suffix: each for each in DEVICES.values()} | {PYTHON: DEVICES["cpu"]}
    suffixes = answers if "questions" in entry else kernels
    device = suffixes.get(Path(file).suffix)
    known, problems = with_kernels(), []
    if ("questions" in entry) == ("operation" in entry):
        problems.append(f"{place}: give either operation or questions")
    for key, names in (("questions", questions.SHEETS), ("operation", known)):
        problems += unknown(f"{place}.{key}", [entry[key]] if key in entry else [], names)
    if "questions" in entry:
        beside = [key for key in ("ranks", "grids", "counts", "speed") if key in entry]
        problems += [f"{place}.{key}: is of a kernel, not of questions" for key in beside]
    if device is None or Path(file).name != file or file.startswith("."):
        allowed = f"the name of a file with {', '.join(suffixes)}, without a folder"
        problems.append(f"{place}.file: {not_allowed(file)}{allowed}")
    if problems:
        raise ConfigError(*problems)
    exercise = Exercise(
        *(name, file, device, known.get(entry.get("operation"))),
        *(entry["points"], tuple(entry["dtypes"]), entry["shapes"], entry["most"]),
        *(entry.get("seconds", whole["seconds"]), whole["memory_mb"] << 20),
        **{key: tuple(entry.get(key, ())) for key in ("ranks", "grids")},
        sheet=entry.get("questions", ""),
        hint=entry.get("hint", ""),
    )
    return exercise if exercise.sheet else judged_by(place, exercise, entry)


def judged_by(place: str, exercise: Exercise, entry: Mapping[str, Any]) -> Exercise:
    """Add what an exercise judges besides the result: counts and speed."""
    problems = unknown(f"{place}.dtypes", exercise.dtypes, exercise.operation.dtypes)
    if exercise.ranks and not exercise.file.endswith(PYTHON):
        problems.append(f"{place}.ranks: {not_allowed(list(exercise.ranks))}only for a file with {PYTHON}")
    combines = exercise.operation.output.distribution == "combined"
    if exercise.grids and not (exercise.device.accelerator and combines):
        problems.append(f"{place}.grids: {not_allowed(list(exercise.grids))}only for a reduction in CUDA")
    if problems:
        raise ConfigError(*problems)
    found = {}
    for key, of in (("speed", speed_of), ("counts", limits_of)):
        if given := entry.get(key):
            dtype = given.get("dtype", exercise.dtypes[0])
            problems = unknown(f"{place}.{key}.dtype", [dtype], exercise.dtypes)
            if len(given["shape"]) != len(names := exercise.operation.dimensions):
                allowed = f"one number for each of {', '.join(names)}"
                problems.append(f"{place}.{key}.shape: {not_allowed(given['shape'])}{allowed}")
            found[key] = of(f"{place}.{key}", given, exercise, dtype, problems)
    return dataclasses.replace(exercise, **found)


def limits_of(place: str, given: Mapping[str, Any], exercise: Exercise, dtype: str, problems: list[str]) -> Limits:
    allowed = [] if not exercise.device.accelerator else [each for each in PROPERTIES if each != "sent"]
    for key in ("most", "least"):
        problems += unknown(f"{place}.{key}", given.get(key, {}), ["sent"] if exercise.ranks else allowed)
    if problems:
        raise ConfigError(*problems)
    most = dict(given.get("most", {}))
    if allowed:
        most.setdefault("missed", 0)  # a barrier that threads miss is undefined, whatever the exercise is about
    return Limits(tuple(given["shape"]), dtype, most, given.get("least", {}))


def speed_of(place: str, given: Mapping[str, Any], exercise: Exercise, dtype: str, problems: list[str]) -> Speed:
    operation, device = exercise.operation, exercise.device
    rungs = [each.name for each in operation.ladder if each.device == device.name and not each.exact]
    problems += unknown(f"{place}.against", [given["against"]], [*rungs, LIBRARY])
    steps = {each["ratio"]: each["points"] for each in given["steps"]}
    if len(steps) < len(given["steps"]):
        problems.append(f"{place}.steps: a ratio appears twice; allowed: each ratio once")
    if not problems:
        library = given["against"] == LIBRARY
        against = operation.baseline(device.name, dtype) if library else operation.variant(given["against"])
        problems += unknown(f"{place}.against: a type of {against.name}", [dtype], operation.dtypes_of(against))
    if problems:
        raise ConfigError(*problems)
    repetitions = with_defaults(given, SCHEMA["$defs"]["speed"])["repetitions"]
    return Speed(against, tuple(given["shape"]), dtype, repetitions, steps)
