"""Grade one file: correctness on random shapes and inputs, then speed beside a rung or the library.

Truth and verdict stay in this process. A kernel's process sees the inputs only, and the truth is computed after the
result has arrived.
"""

import contextlib
import dataclasses
import functools
import math
import os
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.random import Generator

from hpcmm import backends
from hpcmm.experiment import calls, own_kernels
from hpcmm.grading import counts, questions, session, sources
from hpcmm.grading.rubric import Exercise, Speed
from hpcmm.grading.runners import Emulated, Interpreted, Native, OnDevice, Runner, workspace
from hpcmm.grading.sandbox import NotGraded, Sandbox
from hpcmm.grading.session import Refused
from hpcmm.grading.sources import MOST_ERROR, Tools
from hpcmm.model import NotTested, Task, Variant
from hpcmm.operations import cores, guards, heads
from hpcmm.operations.guards import Guarded
from hpcmm.operations.heads import PYTHON
from hpcmm.system.reader import ConfigError

RUNS = 3  # per shape; the inputs of a random one of the later runs are drawn anew, the others repeat
SCALARS = (1.5, 0.0, -0.75, 1.0)  # each scalar argument takes these in turn, the next one the next of them
MULTIPLE = 32  # every dimension of one shape is a multiple of it
NOT_HANDED_IN = "not handed in"
UNREADABLE = ". NaN is from what must not be read: beyond a row or a matrix, results not yet written, C if beta is 0"
RANKS = Path(__file__).with_name("ranks.py")
REST_SECONDS = 0.02  # in which the process of a kernel must use no CPU time
START_SECONDS = 60.0  # a process of the package may take this long to start and to compile


@dataclass(frozen=True)
class Grade:
    exercise: str
    file: str
    device: str  # ``"cpu"``, ``"cuda"`` or ``"cuda, emulated"``
    passed: bool  # whether every result is correct
    why: str  # the reason why it is not; empty for a pass
    # points, of: points, and the most that a solution can get
    points: float
    of: float
    ungraded: float = 0.0  # points that this machine cannot give, because it has no GPU
    # error, bound: the largest error over all runs, and its bound; NaN without a result
    error: float = float("nan")
    bound: float = float("nan")
    against: str = ""  # rung or library beside which it was timed; empty if it was not
    # ratio, seconds, seconds_against: speed over that of ``against``, and the medians of both; NaN without
    ratio: float = float("nan")
    seconds: float = float("nan")
    seconds_against: float = float("nan")


def grade(path: Path, exercise: Exercise, rng: Generator, isolation: Sandbox) -> Grade:
    """Grade one file, which may be missing. Errors fail the exercise, but errors of this machine are raised."""
    missing = backends.missing(exercise.device.name)
    device = f"{exercise.device.name}{', emulated' if missing else ''}"
    ungraded = exercise.of - exercise.points if missing and exercise.speed else 0.0
    found = Grade(exercise.name, exercise.file, device, False, "", 0.0, exercise.of, ungraded)
    try:
        measured = solved(path, exercise, rng, isolation)
    except NotGraded:
        raise
    except Refused as refused:
        hint = f"\nhint: {exercise.hint}" if exercise.hint and str(refused) != NOT_HANDED_IN else ""
        return dataclasses.replace(found, why=f"{refused}{hint}")
    except NotTested as missed:
        why = str(missed).removeprefix(NotTested.PREFIX)
        return dataclasses.replace(found, why=f"cannot be graded on this machine: {why}")
    except Exception as error:  # for example of a head with values that nothing expects
        return dataclasses.replace(found, why=f"cannot be graded: {type(error).__name__}: {error}"[:MOST_ERROR])
    found = dataclasses.replace(found, **measured, passed=True)
    points = exercise.points + (exercise.speed.points(found.ratio) if exercise.speed else 0.0)
    return dataclasses.replace(found, points=points)


def solved(path: Path, exercise: Exercise, rng: Generator, isolation: Sandbox) -> dict[str, Any]:
    """Refuse wrong answers and kernels; return the fields of ``Grade`` about the error and the speed of a kernel."""
    if exercise.sheet:
        if why := questions.fault(own_file(path), exercise.sheet):
            raise Refused(why)
        return {}
    path, variant = admitted(path, exercise)
    with tempfile.TemporaryDirectory(prefix="hpcmm-") as folder:
        solution = Solution(exercise, variant, Tools(isolation, path, Path(folder), exercise.seconds), rng)
        error, bound = max(solution.check(dtype) for dtype in exercise.dtypes)
        if exercise.counts:
            solution.check_counts(exercise.counts)
        for dtype in exercise.dtypes if exercise.grids else ():
            solution.check_bits(dtype)
    return {**solution.times, "error": error, "bound": bound}


def own_file(path: Path) -> Path:
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise Refused("is a link, a folder or a pipe; hand in the file itself")
    if not path.exists():
        raise Refused(NOT_HANDED_IN)
    return path.resolve()


def admitted(path: Path, exercise: Exercise) -> tuple[Path, Variant]:
    """Return the absolute path of a file, and its record; refuse a file that cannot be graded."""
    path = own_file(path)
    try:
        own = head_of(path, exercise)
    except ConfigError as error:
        raise Refused(str(error).replace(f"{path.parent}{os.sep}", "")) from None
    if exercise.operation.name not in own.operations:
        raise Refused(f"computes {own.operations[0]}; the exercise is {exercise.operation.name}")
    if own.variant.options:
        raise Refused("its head has options for the compiler, which a solution must not have")
    if own.variant.device != exercise.device.name:
        raise Refused(f"its head has device: {own.variant.device}; the exercise is for device: {exercise.device.name}")
    if wrong := [dtype for dtype in exercise.dtypes if dtype not in own.variant.dtypes]:
        raise Refused(f"its head leaves out the element type {wrong[0]}")
    return path, own.variant


def head_of(path: Path, exercise: Exercise) -> own_kernels.OwnKernel:
    """Read the head of a file. A Python file is not run: that it has the function shows in its process."""
    head, _ = heads.head_of(heads.text_of(path), path)
    if calls.calls_of(head) or calls.contract_of(head):
        raise Refused("its head describes another call or a part of the exercise; a solution has the whole function")
    if path.suffix != PYTHON:
        return own_kernels.read(path)
    (own,) = own_kernels.of_module(path, SimpleNamespace(**{exercise.operation.name: lambda **_: None}))
    return own


def draw_shapes(exercise: Exercise, rng: Generator) -> list[tuple[int, ...]]:
    """Draw shapes: ragged ones, and among them one of multiples of a tile and one with a dimension of 1."""
    count = len(exercise.operation.dimensions)
    shapes = [tuple(int(each) for each in rng.integers(1, exercise.most + 1, count)) for _ in range(exercise.shapes)]
    whole = [max(1, -(-shape // MULTIPLE) * MULTIPLE) for shape in shapes[0]]
    shapes[0] = tuple(min(each, exercise.most) for each in whole)
    if len(shapes) > 1:
        thin = list(shapes[1])
        thin[rng.integers(count)] = 1
        shapes[1] = tuple(thin)
    return [shapes[i] for i in rng.permutation(len(shapes))]


class Solution:
    def __init__(self, exercise: Exercise, variant: Variant, tools: Tools, rng: Generator):
        self.exercise, self.operation, self.variant = exercise, exercise.operation, variant
        self.tools, self.rng = tools, rng
        self.missing = backends.missing(exercise.device.name)
        self.times: dict[str, Any] = {}  # fields of ``Grade`` about its speed; empty if it is not timed

    def task(self, shape: Sequence[int], dtype: str, scalars: Mapping[str, float] | None = None) -> Task:
        tile = next(iter(self.variant.tiles), 0)
        return Task(self.operation, self.variant, tuple(shape), dtype, scalars or self.operation.scalars, tile)

    @contextlib.contextmanager
    def running(self, dtype: str, shapes: Sequence[Sequence[int]], emulate: bool = False) -> Iterator[Runner]:
        """Compile the file for an element type, and start its process; in the emulation where there is no GPU."""
        exercise, tools, tasks = self.exercise, self.tools, [self.task(shape, dtype) for shape in shapes]
        size, symbol = max(guards.most_bytes(task) for task in tasks), self.operation.kernels
        limits = exercise.seconds, exercise.address_space
        start = functools.partial(session.native, tools.isolation, limits=limits)
        if tools.source.suffix == PYTHON:
            mpi = {"runtime": str(RANKS)} if exercise.ranks else {}
            with start(tools.source, {"symbol": self.operation.name, **mpi}, size, threads=cores.count()) as process:
                yield Interpreted(process, exercise.ranks)
        elif not exercise.device.accelerator:
            sources.compiled(tools, tasks[0].macros)
            with start(tools.library, {"symbol": symbol}, size, threads=cores.count()) as process:
                yield Native(process)
        elif emulate or self.missing:
            size = max([size, *(place.end for task in tasks for place in workspace(task, size))])
            if math.prod(getattr(tasks[0].geometry, "cluster", (1,))) > 1:
                raise Refused("clusters of several blocks do not run in the host emulation")
            entry = {"symbol": symbol} | dataclasses.asdict(sources.emulated(tools, symbol, tasks[0].macros))
            with start(tools.library, entry, size, threads=1) as process:
                yield Emulated(process, self.rng, tools)
        else:
            with self.on_device({"file": str(tools.source)}, size, exercise.seconds + START_SECONDS) as own:
                yield own

    @contextlib.contextmanager
    def on_device(self, what: Mapping[str, str], size: int, seconds: float) -> Iterator[Runner]:
        setup = {"device": self.exercise.device.name, "threads": cores.count(), **what}
        setup["operation"] = self.operation.name
        with session.device(self.tools.isolation, setup, size, seconds) as process:
            yield OnDevice(process)

    def check(self, dtype: str) -> tuple[float, float]:
        """Run the kernel at all shapes, several times each, and time it; return the largest error and its bound."""
        found, turn, speed = (0.0, 0.0), int(self.rng.integers(len(SCALARS))), self.exercise.speed
        shapes = draw_shapes(self.exercise, self.rng)
        timed = [speed] if not self.missing and speed and speed.dtype == dtype else []
        with self.running(dtype, [*shapes, *(each.shape for each in timed)]) as own:
            for i, shape in enumerate(shapes):
                names = enumerate(self.operation.scalars, turn + i)
                task = self.task(shape, dtype, {name: SCALARS[j % len(SCALARS)] for j, name in names})
                inputs, again = self.operation.draw(self.rng, task), int(self.rng.integers(1, RUNS))
                for run in range(RUNS):
                    if run == again:
                        inputs = self.operation.draw(self.rng, task)
                    found = max(found, judged(own, task, inputs, self.rng, run, not self.exercise.ranks)[:2])
            for each in timed:
                self.times = self.timed(own, each)
            own.process.check_clock(REST_SECONDS)
        return found

    def check_counts(self, limits: counts.Limits) -> None:
        """Refuse a correct kernel that did not find its result as the exercise asks."""
        task = self.task(limits.shape, limits.dtype)
        with self.running(limits.dtype, [limits.shape], emulate=True) as own:
            inputs, places = self.operation.draw(self.rng, task), guards.layout(task, self.rng, pitched=False)
            guards.fill(own.process.memory, places, task, inputs, self.rng)
            try:
                why = limits.fault(own.counted(task, places))
            except Refused as refused:
                why = str(refused)  # of the emulation, where a GPU has found nothing
            if why:
                raise Refused(own.located(why))

    def check_bits(self, dtype: str) -> None:
        """Refuse a reduction whose result, or its bits, depend on the number of blocks."""
        most = self.exercise.most
        empty, task = self.task([0], dtype), self.task([most], dtype)
        nothing, exact = (self.operation.draw(self.rng, each) for each in (empty, task))
        rounded = {name: self.rng.standard_normal(x.shape).astype(x.dtype) for name, x in exact.items()}
        found: dict[int, np.ndarray] = {}
        with self.running(dtype, [task.shape], emulate=True) as own:
            for own.grid in self.exercise.grids:
                try:
                    judged(own, empty, nothing, self.rng)
                    judged(own, task, exact, self.rng)
                    places = guards.layout(task, self.rng)
                    guards.fill(own.process.memory, places, task, rounded, self.rng)
                    own.run(task, places)
                except Refused as refused:
                    raise Refused(f"in a grid of {own.grid}: {refused}") from None
                found[own.grid] = result(task, places, own.process.memory).copy()
        first, *others = found
        for blocks in others:
            if found[blocks].tobytes() != found[first].tobytes():
                results = " and ".join(f"{found[each]} in a grid of {each}" for each in (first, blocks))
                raise Refused(f"the bits depend on the number of blocks: {results} from {most} {dtype}")

    def timed(self, own: Runner, speed: Speed) -> dict[str, Any]:
        """Time the kernel and the rung or library in turns.

        Each run of the kernel is on inputs drawn anew, and judged. Of the rung or library only the first run is judged,
        as this takes most of the time; its other runs are on the arrays that it left.
        """
        against, task = speed.against, self.task(speed.shape, speed.dtype)
        tile = task.tile if task.tile in against.tiles else max(against.tiles, default=0)
        beside = dataclasses.replace(task, variant=against, tile=tile)
        limit = self.exercise.seconds * (speed.repetitions + 1) + START_SECONDS
        places = guards.layout(beside, self.rng, pitched=False)
        mine, theirs, doing = [], [], "cannot run: "
        with contextlib.ExitStack() as stack:
            for turn in range(speed.repetitions + 1):  # the first one warms up
                inputs = self.operation.draw(self.rng, task)
                mine.append(judged(own, task, inputs, self.rng, pitched=False)[2])
                try:
                    if turn == 0:
                        variant = self.on_device({"variant": against.name}, guards.most_bytes(task), limit)
                        yardstick, doing = stack.enter_context(variant), ""
                        theirs.append(judged(yardstick, beside, inputs, self.rng, pitched=False)[2])
                    else:
                        theirs.append(yardstick.run(beside, places))
                except Refused as refused:
                    raise NotGraded(f"{self.exercise.name}: {against.name} {doing}{refused}") from None
        seconds, beside_it = statistics.median(mine[1:]), statistics.median(theirs[1:])
        return {"against": against.name, "ratio": beside_it / seconds, "seconds": seconds, "seconds_against": beside_it}


def result(task: Task, places: Sequence[Guarded], memory: np.ndarray) -> np.ndarray:
    return next(place for place in places if place.name == task.operation.output.name).of(memory)


def judged(
    own: Runner, task: Task, inputs: Mapping[str, np.ndarray], rng: Generator, turn: int = 0, pitched: bool = True
) -> tuple[float, float, float]:
    """Run a kernel once; return error, bound and seconds. Refuse wrong results, and writes elsewhere."""
    whole = own.process.memory
    places = guards.layout(task, rng, pitched)
    guards.fill(whole, places, task, inputs, rng)
    used = whole[: places[-1].end]
    before = used.copy()
    scalars = "".join(f", {name} = {value:g}" for name, value in task.scalars.items())
    where = f"at {'x'.join(map(str, task.shape))} {task.dtype}{scalars}{f', call {turn + 1}' if turn else ''}"
    try:
        seconds = own.run(task, places)
    except Refused as refused:
        raise Refused(f"{refused} {where}") from None
    after = used.copy()  # the process is stopped
    if wrong := guards.trespass(before, after, places, task):
        raise Refused(f"{wrong} {where}")
    verdict = task.operation.reference(task, inputs)(result(task, places, after))
    if not verdict.passed:
        why = UNREADABLE if ": nan - " in verdict.where else ""
        raise Refused(f"wrong result {where}: {verdict.where} (element: result - reference = difference){why}")
    return verdict.error, verdict.bound, seconds
