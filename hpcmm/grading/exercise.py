"""Grade one file: correctness on random shapes and inputs, then speed beside a rung or the library.

Truth and verdict stay in this process. A kernel's process sees the inputs only, and the truth is computed after the
result has arrived.
"""

from __future__ import annotations

import contextlib
import dataclasses
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

from hpcmm import backends
from hpcmm.backends.emulated.launch import ORDERS, extent, located
from hpcmm.experiment import calls, own_kernels
from hpcmm.grading import counts, questions, session, sources
from hpcmm.grading.rubric import Exercise, Speed
from hpcmm.grading.sandbox import NotGraded, Sandbox
from hpcmm.grading.session import Refused, Session
from hpcmm.grading.sources import MOST_ERROR, Tools
from hpcmm.model import Operand, Task, Variant
from hpcmm.operations import guards, heads
from hpcmm.operations.guards import Guarded
from hpcmm.operations.heads import PYTHON
from hpcmm.system.reader import ConfigError

RUNS = 3  # per shape; the inputs of a random one of the later runs are drawn anew, the others repeat
SCALARS = (1.5, 0.0, -0.75, 1.0)  # each scalar argument takes these in turn, the next one the next of them
MULTIPLE = 32  # every dimension of one shape is a multiple of it
NOT_HANDED_IN = "not handed in"
RANKS = Path(__file__).with_name("ranks.py")
REST_SECONDS = 0.02  # in which the process of a kernel must use no CPU time
START_SECONDS = 60.0  # a process of the package may take this long to start and to compile


@dataclass(frozen=True)
class Grade:
    """The grade of one exercise.

    Parameters
    ----------
    exercise, file : str
    device : str
        ``"cpu"``, ``"cuda"`` or ``"cuda, emulated"``.
    passed : bool
        Whether every result is correct.
    why : str
        The reason why it is not; empty for a pass.
    points, of : float
        Points, and those that can be reached.
    ungraded : float
        Those that this machine cannot give, because it has no GPU.
    error, bound : float
        The largest error over all runs, and its bound; NaN without a result.
    against : str
        Rung or library beside which it was timed; empty if it was not.
    ratio, seconds, seconds_against : float
        Speed over that of ``against``, and the medians of both; NaN without.
    """

    exercise: str
    file: str
    device: str
    passed: bool
    why: str
    points: float
    of: float
    ungraded: float = 0.0
    error: float = float("nan")
    bound: float = float("nan")
    against: str = ""
    ratio: float = float("nan")
    seconds: float = float("nan")
    seconds_against: float = float("nan")


class Runner:
    """A process in which a kernel runs on its shared memory."""

    def __init__(self, process: Session):
        self.process = process

    def ask(self, request: Any) -> float:
        """Send a request; return the seconds until the reply.

        Raises
        ------
        Refused
            If the reply is an error.
        """
        reply = self.process.ask(request)
        if reply.content:
            raise Refused(str(reply.content))
        return reply.seconds

    def run(self, task: Task, places: Sequence[Guarded]) -> float:
        """Run a task once on arrays in the shared memory; return the seconds."""
        raise NotImplementedError

    def counted(self, task: Task, places: Sequence[Guarded]) -> counts.Counts:
        """Run a task once, and return what it did."""
        raise NotImplementedError

    def located(self, message: str) -> str:
        """Return a message with lines of the source in place of addresses."""
        return message

    def argument(self, value: Any) -> list:
        """Return an argument for ``native``: an address in the shared memory, or a number."""
        if isinstance(value, np.ndarray):
            return ["at", value.ctypes.data - self.process.memory.ctypes.data]
        return [value.dtype.str[1:], value.item()]


class Native(Runner):
    """A C kernel."""

    def run(self, task: Task, places: Sequence[Guarded]) -> float:
        arrays = {place.name: place.of(self.process.memory) for place in places}
        values = [*task.operation.arguments(task, arrays), np.int32(cores())]
        return self.ask([{"arguments": [self.argument(value) for value in values]}])


class Emulated(Runner):
    """A CUDA kernel in the host emulation, with the threads of a block in a random order."""

    def __init__(self, process: Session, rng: np.random.Generator, tools: Tools):
        super().__init__(process)
        self.rng, self.tools = rng, tools
        self.grid = 0  # number of blocks of each launch; 0: as the geometry says

    def run(self, task: Task, places: Sequence[Guarded]) -> float:
        try:
            return self.ask(self._launches(task, places, counted=False))
        except Refused as refused:
            raise Refused(self.located(str(refused))) from None

    def counted(self, task: Task, places: Sequence[Guarded]) -> counts.Counts:
        launches = self._launches(task, places, counted=True)
        self.ask(launches)
        return counts.read(self.process.ask(["counts"]).content, len(launches))

    def located(self, message: str) -> str:
        return located(message, self.tools.library, self.tools.source, self._output_of)

    def _launches(self, task: Task, places: Sequence[Guarded], counted: bool) -> list[dict]:
        whole = self.process.memory
        arrays = {place.name: place.of(whole) for place in places}
        for place in workspace(task, places[-1].end):
            place.whole(whole).fill(task.element.poison)
            arrays[place.name] = place.of(whole)
        calls = []
        for launch in task.geometry.launches(task, arrays):
            arguments = [self.argument(value) for value in launch.arguments]
            bounds = [
                [at, at + extent(value)]
                for (_, at), value in zip(arguments, launch.arguments, strict=True)
                if isinstance(value, np.ndarray)
            ]
            order = int(self.rng.integers(len(ORDERS)))
            calls.append(
                {
                    **{"arguments": arguments, "grid": (self.grid,) if self.grid else launch.grid},
                    **{"block": launch.block, "bounds": bounds},
                    **{"order": order, "counted": counted, "dynamic_bytes": launch.shared_bytes},
                }
            )
        return calls

    def _output_of(self, command: Sequence[str]) -> str:
        try:
            return self.tools.run(command, read=[self.tools.library])[0].decode(errors="replace")
        except (Refused, NotGraded):
            return ""


class Interpreted(Runner):
    """A function of a Python file, which each of several MPI ranks calls, if there are some."""

    def __init__(self, process: Session, ranks: Sequence[int]):
        super().__init__(process)
        self.ranks, self.runs = ranks, 0

    def run(self, task: Task, places: Sequence[Guarded]) -> float:
        self.runs += 1
        return self._run(task, places, self.ranks[self.runs % len(self.ranks)] if self.ranks else 0)

    def counted(self, task: Task, places: Sequence[Guarded]) -> counts.Counts:
        self._run(task, places, max(self.ranks))
        return counts.read(self.process.ask(["counts"]).content, 1)

    def _run(self, task: Task, places: Sequence[Guarded], ranks: int) -> float:
        arrays = {place.name: place.of(self.process.memory) for place in places}
        begin = self.process.memory.ctypes.data
        given = {
            name: [array.ctypes.data - begin, array.shape, array.strides, array.dtype.str]
            for name, array in arrays.items()
        }
        try:
            return self.ask([{"arguments": {**given, **task.scalars}, "ranks": ranks}])
        except Refused as refused:
            raise Refused(f"{refused}, with {ranks} ranks," if ranks else str(refused)) from None


def workspace(task: Task, begin: int) -> list[Guarded]:
    """Return the places of the arrays that a kernel needs besides its operands."""
    places = []
    for name, needed in task.workspace.items():
        begin = -(-begin // guards.ALIGNMENT) * guards.ALIGNMENT
        (count,) = needed.shape
        places.append(Guarded(name, begin, (count + 2 * guards.ELEMENTS,), (count,), needed.dtype))
        begin = places[-1].end
    return places


class OnDevice(Runner):
    """A variant of this package on any device, or a kernel on a GPU."""

    def run(self, task: Task, places: Sequence[Guarded]) -> float:
        self.ask(
            {
                "place": [dataclasses.astuple(place) for place in places],
                **{"shape": task.shape, "dtype": task.dtype, "scalars": dict(task.scalars), "tile": task.tile},
            }
        )
        seconds = self.ask("run")
        self.ask("fetch")
        return seconds


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def grade(path: Path, exercise: Exercise, rng: np.random.Generator, isolation: Sandbox) -> Grade:
    """Grade one file, which may be missing. Errors fail the exercise, except errors of this machine, which are raised.

    Raises
    ------
    NotGraded
        If this machine cannot grade it.
    """
    missing = backends.missing(exercise.device.name)
    device = f"{exercise.device.name}{', emulated' if missing else ''}"
    if exercise.sheet:
        return answered(path, exercise)
    found = Grade(exercise.name, exercise.file, device, False, "", 0.0, exercise.of)
    if missing and exercise.speed:
        found = dataclasses.replace(found, ungraded=exercise.of - exercise.points)
    try:
        path, variant = admitted(path, exercise)
        with tempfile.TemporaryDirectory(prefix="hpcmm-") as folder:
            tools = Tools(isolation, path, Path(folder), exercise.seconds)
            errors = []
            for dtype in exercise.dtypes:
                shapes = draw_shapes(exercise, rng)
                timed = exercise.speed if not missing and exercise.speed and exercise.speed.dtype == dtype else None
                with runner(tools, variant, exercise, dtype, [*shapes, *([timed.shape] if timed else [])], rng) as own:
                    errors.append(check(own, exercise, variant, dtype, shapes, rng))
                    if timed:
                        found = dataclasses.replace(found, **times(own, exercise, variant, timed, rng, isolation))
                    own.process.check_clock(REST_SECONDS)
            if exercise.counts:
                check_counts(tools, variant, exercise, exercise.counts, rng)
            for dtype in exercise.dtypes if exercise.grids else ():
                check_bits(tools, variant, exercise, dtype, rng)
    except NotGraded:
        raise
    except Refused as refused:
        return dataclasses.replace(found, why=hinted(str(refused), exercise))
    except Exception as error:  # for example of a head with values that nothing expects
        return dataclasses.replace(found, why=f"cannot be graded: {type(error).__name__}: {error}"[:MOST_ERROR])
    error, bound = max(errors)
    points = exercise.points + (exercise.speed.points(found.ratio) if exercise.speed else 0.0)
    return dataclasses.replace(found, passed=True, points=points, error=error, bound=bound)


def answered(path: Path, exercise: Exercise) -> Grade:
    """Grade the answers to questions."""
    found = Grade(exercise.name, exercise.file, exercise.device.name, False, "", 0.0, exercise.of)
    try:
        why = questions.fault(own_file(path), exercise.sheet)
    except Refused as refused:
        why = str(refused)
    if why:
        return dataclasses.replace(found, why=hinted(why, exercise))
    return dataclasses.replace(found, passed=True, points=exercise.points)


def hinted(why: str, exercise: Exercise) -> str:
    """Return why a file fails, with the hint of its exercise below."""
    return f"{why}\nhint: {exercise.hint}" if exercise.hint and why != NOT_HANDED_IN else why


def own_file(path: Path) -> Path:
    """Return the absolute path of a file; refuse what is not one."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise Refused("is not a file of its own")
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
    if wrong := [each for each in exercise.dtypes if each not in own.variant.dtypes]:
        raise Refused(f"its head leaves out the element type {wrong[0]}")
    return path, own.variant


def head_of(path: Path, exercise: Exercise) -> own_kernels.OwnKernel:
    """Read the head of a file. A Python file is not run: that it has the function shows in its process."""
    head, _ = heads.head_of(heads.text_of(path), path)
    if "call" in head or calls.contract_of(head):
        raise Refused("its head describes another call or a part of the exercise; a solution has the whole function")
    if path.suffix != PYTHON:
        return own_kernels.read(path)
    (own,) = own_kernels.of_module(path, SimpleNamespace(**{exercise.operation.name: lambda **_: None}))
    return own


def draw_shapes(exercise: Exercise, rng: np.random.Generator) -> list[tuple[int, ...]]:
    """Draw shapes: ragged ones, and among them one of multiples of a tile and one with a dimension of 1."""
    count = len(exercise.operation.dimensions)
    shapes = [tuple(int(each) for each in rng.integers(1, exercise.most + 1, count)) for _ in range(exercise.shapes)]
    whole = [max(1, -(-each // MULTIPLE) * MULTIPLE) for each in shapes[0]]
    shapes[0] = tuple(min(each, exercise.most) for each in whole)
    if len(shapes) > 1:
        thin = list(shapes[1])
        thin[rng.integers(count)] = 1
        shapes[1] = tuple(thin)
    return [shapes[i] for i in rng.permutation(len(shapes))]


@contextlib.contextmanager
def runner(
    tools: Tools,
    variant: Variant,
    exercise: Exercise,
    dtype: str,
    shapes: Sequence[tuple[int, ...]],
    rng: np.random.Generator,
    emulate: bool = False,
) -> Iterator[Runner]:
    """Compile a file for an element type, and start its process; in the emulation where there is no GPU."""
    tasks = [
        Task(exercise.operation, variant, shape, dtype, exercise.operation.scalars, first_tile(variant))
        for shape in shapes
    ]
    size = max(guards.most_bytes(task) for task in tasks)
    limits, symbol = (exercise.seconds, exercise.address_space), exercise.operation.kernels
    if tools.source.suffix == PYTHON:
        mpi = {"runtime": str(RANKS)} if exercise.ranks else {}
        with session.native(
            tools.isolation, tools.source, exercise.operation.name, mpi, size, *limits, cores()
        ) as process:
            yield Interpreted(process, exercise.ranks)
    elif not exercise.device.accelerator:
        sources.compiled(tools, tasks[0].macros)
        with session.native(tools.isolation, tools.library, symbol, {}, size, *limits, cores()) as process:
            yield Native(process)
    elif emulate or backends.missing(exercise.device.name):
        size = max(max((place.end for place in workspace(task, size)), default=size) for task in tasks)
        if math.prod(getattr(tasks[0].geometry, "cluster", (1,))) > 1:
            raise Refused("clusters of several blocks do not run in the host emulation")
        entry = dataclasses.asdict(sources.emulated(tools, symbol, tasks[0].macros))
        with session.native(tools.isolation, tools.library, symbol, entry, size, *limits, 1) as process:
            yield Emulated(process, rng, tools)
    else:
        with on_device(
            exercise, {"file": str(tools.source)}, size, exercise.seconds + START_SECONDS, tools.isolation
        ) as own:
            yield own


@contextlib.contextmanager
def on_device(
    exercise: Exercise, what: Mapping[str, str], size: int, seconds: float, isolation: Sandbox
) -> Iterator[Runner]:
    """Start a process of the package with a variant, or with a kernel for a GPU."""
    setup = {"device": exercise.device.name, "threads": cores(), "operation": exercise.operation.name, **what}
    with session.device(isolation, setup, size, seconds) as process:
        yield OnDevice(process)


def first_tile(variant: Variant) -> int:
    return next(iter(variant.tiles), 0)


def tile_beside(against: Variant, tile: int) -> int:
    """Return the tile of the rung beside which a kernel is timed: the kernel's own one, if the rung has it."""
    return tile if tile in against.tiles else max(against.tiles, default=0)


def check(
    own: Runner,
    exercise: Exercise,
    variant: Variant,
    dtype: str,
    shapes: Sequence[tuple[int, ...]],
    rng: np.random.Generator,
) -> tuple[float, float]:
    """Run a kernel at all shapes, several times each; return the largest error and its bound."""
    found, turn = (0.0, 0.0), int(rng.integers(len(SCALARS)))
    names = exercise.operation.scalars
    pitched = not exercise.ranks
    for i, shape in enumerate(shapes):
        scalars = {name: SCALARS[(turn + i + j) % len(SCALARS)] for j, name in enumerate(names)}
        task = Task(exercise.operation, variant, shape, dtype, scalars, first_tile(variant))
        inputs, again = exercise.operation.draw(rng, task), int(rng.integers(1, RUNS))
        for turn_of_shape in range(RUNS):
            if turn_of_shape == again:
                inputs = exercise.operation.draw(rng, task)
            error, bound, _ = judged(own, task, inputs, rng, turn_of_shape, pitched)
            found = max(found, (error, bound))
    return found


def check_counts(tools: Tools, variant: Variant, exercise: Exercise, limits: counts.Limits, rng: np.random.Generator):
    """Refuse a correct kernel that did not find its result as the exercise asks."""
    operation = exercise.operation
    task = Task(operation, variant, limits.shape, limits.dtype, operation.scalars, first_tile(variant))
    with runner(tools, variant, exercise, limits.dtype, [limits.shape], rng, emulate=True) as own:
        inputs, places = operation.draw(rng, task), guards.layout(task, rng, pitched=False)
        guards.fill(own.process.memory, places, task, inputs, rng)
        try:
            why = limits.fault(own.counted(task, places))
        except Refused as refused:
            why = str(refused)  # of the emulation, where a GPU has found nothing
        if why:
            raise Refused(own.located(why))


def check_bits(tools: Tools, variant: Variant, exercise: Exercise, dtype: str, rng: np.random.Generator) -> None:
    """Refuse a reduction whose result, or its bits, depend on the number of blocks."""
    operation = exercise.operation
    task = Task(operation, variant, (exercise.most,), dtype, operation.scalars, first_tile(variant))
    exact = operation.draw(rng, task)
    rounded = {name: rng.standard_normal(x.shape).astype(x.dtype) for name, x in exact.items()}
    found: dict[int, np.ndarray] = {}
    with runner(tools, variant, exercise, dtype, [task.shape], rng, emulate=True) as own:
        for own.grid in exercise.grids:
            try:
                judged(own, task, exact, rng)
                places = guards.layout(task, rng)
                guards.fill(own.process.memory, places, task, rounded, rng)
                own.run(task, places)
            except Refused as refused:
                raise Refused(f"in a grid of {own.grid}: {refused}") from None
            (result,) = (each for each in places if each.name == output(task).name)
            found[own.grid] = result.of(own.process.memory).copy()
    first, *others = found
    for blocks in others:
        if found[blocks].tobytes() != found[first].tobytes():
            results = " and ".join(f"{found[each]} in a grid of {each}" for each in (first, blocks))
            raise Refused(f"the bits depend on the number of blocks: {results} from {exercise.most} {dtype}")


def output(task: Task) -> Operand:
    """Return the operand that a task writes."""
    return next(each for each in task.operation.operands if each.role != "in")


def judged(
    own: Runner,
    task: Task,
    inputs: Mapping[str, np.ndarray],
    rng: np.random.Generator,
    turn: int = 0,
    pitched: bool = True,
) -> tuple[float, float, float]:
    """Run a kernel once; return error, bound and seconds.

    Raises
    ------
    Refused
        If the result is wrong, or the kernel wrote elsewhere.
    """
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
    got = next(place for place in places if place.name == output(task).name).of(after)
    verdict = task.operation.reference(task, inputs)(got)
    if not verdict.passed:
        raise Refused(f"wrong result {where}: {verdict.where} (element: result - reference = difference)")
    return verdict.error, verdict.bound, seconds


def times(
    own: Runner, exercise: Exercise, variant: Variant, speed: Speed, rng: np.random.Generator, isolation: Sandbox
) -> dict[str, Any]:
    """Time a kernel and the rung or library in turns.

    Each run of the kernel is on inputs drawn anew, and judged. Of the rung or library only the first run is judged, as
    this takes most of the time; its other runs are on the arrays that it left.
    """
    operation = exercise.operation
    task = Task(operation, variant, speed.shape, speed.dtype, operation.scalars, first_tile(variant))
    beside = dataclasses.replace(task, variant=speed.against, tile=tile_beside(speed.against, task.tile))
    limit = exercise.seconds * (speed.repetitions + 1) + START_SECONDS
    places = guards.layout(beside, rng, pitched=False)
    mine, theirs = [], []
    with contextlib.ExitStack() as stack:
        try:
            yardstick = stack.enter_context(
                on_device(exercise, {"variant": speed.against.name}, guards.most_bytes(task), limit, isolation)
            )
        except Refused as refused:
            raise NotGraded(f"{exercise.name}: {speed.against.name} cannot run: {refused}") from None
        for turn in range(speed.repetitions + 1):  # the first one warms up
            inputs = operation.draw(rng, task)
            mine.append(judged(own, task, inputs, rng, pitched=False)[2])
            try:
                if turn == 0:
                    theirs.append(judged(yardstick, beside, inputs, rng, pitched=False)[2])
                else:
                    theirs.append(yardstick.run(beside, places))
            except Refused as refused:
                raise NotGraded(f"{exercise.name}: {speed.against.name} {refused}") from None
    seconds, seconds_against = statistics.median(mine[1:]), statistics.median(theirs[1:])
    return {
        "against": speed.against.name,
        "ratio": seconds_against / seconds,
        "seconds": seconds,
        "seconds_against": seconds_against,
    }
