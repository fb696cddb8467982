"""Measure a point: place its inputs, and let its contenders verify, warm up and repeat in turns."""

import dataclasses
import functools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from hpcmm.bench import guarded, provenance
from hpcmm.bench.contender import Contender
from hpcmm.bench.energy import energy_of, why_unreadable
from hpcmm.bench.errors import Kinds, has_errors
from hpcmm.bench.inputs import draw_inputs
from hpcmm.bench.same_bits import SameBits, multiplies, reduces
from hpcmm.model import TEXTBOOK, Task, Variant, Verdict, untimed
from hpcmm.model.devices import DEVICES
from hpcmm.model.dtypes import Arithmetic
from hpcmm.model.measurement import Measurement, Measuring, Point
from hpcmm.operations import OPERATIONS, task_of
from hpcmm.parallel import algorithm_of
from hpcmm.parallel.distribution import Distribution


def of_visit(measuring: Measuring) -> Measuring:
    """Return the limits of one visit: the repetitions and seconds of a point, divided among its visits."""
    visits = measuring.visits
    return dataclasses.replace(
        measuring,
        min_repetitions=-(-measuring.min_repetitions // visits),
        max_repetitions=-(-measuring.max_repetitions // visits),
        max_seconds=measuring.max_seconds / visits,
    )


class Problem:
    """The inputs of points that differ only in the kernel, on all ranks, and the checks of their results.

    ``seconds`` is the time that one verification may take on the device. ``begin`` is called with each step of a
    measurement and its contender: ``"timing"``, ``"tiled (matmul, grid (4, 4), block (16, 16), ...)"``.
    """

    def __init__(self, comm, backend, point: Point, seed: int, connections=None, seconds: float = math.inf):
        task = task_of(point)
        self.operation, self.inputs = task.operation, None
        part = algorithm_of(self.operation, point.algorithm).part
        self.drawn = tuple(part(task.shape, comm.size, comm.rank)) if part else task.shape
        if part or comm.rank == 0:
            seeds = (seed, comm.rank) if part else (seed,)  # other numbers on each rank
            own = dataclasses.replace(task, shape=self.drawn)
            self.draw = functools.partial(draw_inputs, backend, own, point.page_locked, *seeds)
            self.inputs = self.draw()
        self.bits = {name: backend.checksum(x) for name, x in (self.inputs or {}).items() if backend.in_host_memory}
        self.seconds = seconds
        self.judges: dict[Arithmetic, Callable[[np.ndarray], Verdict]] = {}
        self.backend = backend
        self.comm, self.connections = comm, connections
        self.task, self.point, self.seed = task, point, seed
        self.placed: dict[str, Distribution] = {}
        self.baselines: dict[tuple[str, int], tuple] = {}  # arguments of ``take``, by variant and tile
        self.begin: Callable[[str, str], None] = lambda step, of: None

    def step(self, name: str, contender: Contender) -> None:
        launches = contender.run.launches
        self.begin(name, contender.variant.name + (f" ({launches})" if launches else ""))

    def remember(self, contender: Contender) -> None:
        if not contender.visit and contender.baseline and contender.algorithm == TEXTBOOK and contender.verdict.passed:
            self.baselines[contender.key] = contender.verdict, contender.checksum, contender.found

    def restore_inputs(self, contender: Contender) -> bool:
        """Draw inputs again that a kernel in host memory wrote to, and fail it; return whether it did. Collective."""
        changed = [name for name, bits in self.bits.items() if self.backend.checksum(self.inputs[name]) != bits]
        if not (names := sorted({name for each in self.comm.allgather(changed) for name in each})):
            return False
        for name, array in self.draw().items() if changed else ():
            self.backend.copy(array, self.inputs[name])
        self.judges.clear()
        where = f"wrote to its input {', '.join(names)}"
        contender.verdict = dataclasses.replace(contender.verdict, passed=False, where=where)
        return True

    @functools.cached_property
    def kinds(self) -> Kinds:
        return Kinds(self.backend, self.task, self.seed)

    @untimed
    @functools.cached_property
    def same_bits(self) -> SameBits:
        return SameBits(self.comm, self.backend, self.point, self.seed, self.connections)

    def judge(self, task: Task) -> Callable[[np.ndarray], Verdict] | None:
        """Return the check of results for a task's arithmetic, which has its own bound; None without inputs."""
        task = dataclasses.replace(task, shape=self.drawn)
        kind = dataclasses.replace(task.arithmetic, name="", tensor_units={})
        if self.inputs is not None and kind not in self.judges:
            self.judges[kind] = task.operation.judge(task, self.inputs, self.backend, self.seconds)
        return self.judges.get(kind)

    def distributions(self, algorithms: Sequence[str]) -> dict[str, Distribution]:
        for name in [name for name in self.placed if name not in algorithms]:
            self.placed.pop(name).close()
            self.backend.release()
        for name in algorithms:
            if name not in self.placed:
                algorithm = algorithm_of(self.operation, name)
                transport, _ = self.connections.of(algorithm) if self.connections else (None, "")
                place = self.comm, self.backend, self.task, self.inputs, self.point.page_locked, transport
                algorithm = algorithm.of(self.task.element, self.task.variant.invariant)
                self.placed[name] = algorithm.distribution(*place)
        return {name: self.placed[name] for name in algorithms}

    def close(self) -> None:
        for distribution in self.placed.values():
            distribution.close()

    @staticmethod
    def key(point: Point) -> tuple:
        part = algorithm_of(OPERATIONS[point.operation], point.algorithm).part
        return point.operation, point.shape, point.dtype, point.page_locked, part, *sorted(point.scalars.items())


Earlier = Mapping[tuple[str, str], Verdict] | None  # verdicts of the first visit by contender and algorithm


def measure_point(
    problem: Problem, point: Point, measuring: Measuring, beside: bool = True, visit: int = 0, verdicts: Earlier = None
) -> list[Measurement]:
    """Measure one visit of a point; its repetitions alternate with repetitions of its baseline.

    The baseline is the library of the device. For algorithms other than the textbook's it is the textbook's with the
    same variant, if it is to be measured ``beside``; its kernel alone is a product with B on every rank.

    The limits of ``measuring`` are those of all visits together, which count from 0. Return the measurement of the
    point, then that of the baseline unless the point is the baseline, with samples on rank 0 only.
    """
    problem.backend.cold, problem.backend.tries = measuring.cache == "cold", not measuring.only_verifies
    pairs = contending(problem, point, measuring, beside)
    distributions = problem.distributions(list(dict.fromkeys(name for name, *_ in pairs)))
    earlier = verdicts or {}
    contenders = [
        Contender(distributions[name], variant, point, name, baseline, visit)
        for name, variant, baseline in pairs
        if not visit or (variant.name, name) in earlier
    ]
    for contender in contenders:
        first_result(problem, contender, measuring, earlier, known=contender is not contenders[0])
    right = [contender for contender in contenders if contender.verdict.passed]
    if not contenders[0].verdict.passed:
        right = []  # a wrong variant needs no baseline
    for distribution in distributions.values():
        distribution.save_inputs()
    if len(right) == 2:
        right[0].beside, right[1].beside = right[1], right[0]
    before = provenance.moment()
    take_turns(problem, right, of_visit(measuring))
    if problem.restore_inputs(contenders[0]):
        contenders, right = contenders[:1], []  # the result of its baseline is of other inputs
    for contender in right:
        contender.take_steal(before)
    if not visit:
        measure_once(problem, right, measuring)
    for contender in right:
        contender.verdict = contender.bits.judge(contender.distribution.comm, contender.verdict)
        problem.remember(contender)
    return [contender.measurement() for contender in contenders]


def contending(problem: Problem, point: Point, measuring: Measuring, beside: bool) -> list[tuple[str, Variant, bool]]:
    """Return algorithm and variant of a point and of its baseline, and whether it is the baseline."""
    variant = problem.operation.variant(point.variant)
    if point.algorithm != TEXTBOOK:
        names = dict.fromkeys((point.algorithm, TEXTBOOK) if beside else (point.algorithm,))
        return [(name, variant, name == TEXTBOOK) for name in names]
    library = None if measuring.only_verifies else problem.operation.baseline(variant.device, point.dtype)
    return [(TEXTBOOK, each, each.baseline) for each in filter(None, dict.fromkeys((variant, library)))]


def first_result(problem: Problem, contender: Contender, measuring: Measuring, earlier: Earlier, known: bool) -> None:
    """Run a contender for the first time in this visit, and verify its result, or take what is ``known``."""
    point, visit = contender.point, contender.visit
    if not visit:
        problem.step("reference", contender)
        problem.judge(contender.task)
    problem.step("first call", contender)
    contender.first_run(measuring)
    problem.step("verification", contender)
    if known and contender.key in problem.baselines:
        contender.take(*problem.baselines[contender.key])
    if visit:
        contender.recall(earlier[contender.variant.name, contender.algorithm])
    if contender.verdict is None:
        contender.verify(problem.judge(contender.task))
    problem.restore_inputs(contender)
    own_file = problem.operation.variant(point.variant).path
    if measuring.only_verifies and own_file and contender.verdict.passed and point.ranks == 1:
        where = guarded.mistake(problem.backend, contender.task)
        contender.verdict = dataclasses.replace(contender.verdict, passed=not where, where=where)


def take_turns(problem: Problem, contenders: Sequence[Contender], limits: Measuring) -> None:
    """Time contenders in turns, kind by kind, until each has enough repetitions; verify their last results."""
    for contender in contenders:
        problem.step("warm-up", contender)
        contender.warm_up(limits)
    kinds = [kind == "call" for contender in contenders[:1] for kind in contender.measures]
    for end_to_end in kinds:
        waiting = [contender for contender in contenders if not contender.done(end_to_end, limits)]
        while waiting:
            for contender in list(waiting):
                problem.step("timing", contender)
                contender.repeat(end_to_end, cold=limits.cache == "cold")
                if contender.done(end_to_end, limits):
                    waiting.remove(contender)
                    if end_to_end != kinds[-1]:
                        continue
                    problem.step("verification", contender)
                    contender.verify_again(problem.judge, fetched=end_to_end)
            waiting.reverse()  # the order alternates, so that a drift of the clock affects both alike


def measure_once(problem: Problem, contenders: Sequence[Contender], measuring: Measuring) -> None:
    """Measure energy, errors, bits and the clock, for which one visit suffices."""
    for contender in contenders:
        whole, task = contender.point.ranks == 1, contender.task
        kernel = whole and "kernel" in contender.measures
        if measuring.energy and kernel and not why_unreadable(problem.backend):
            problem.step("energy", contender)
            with contender.in_a_pass("energy"):
                seconds = statistics.median(contender.seconds[False])
                contender.found["energy"] = energy_of(problem.backend, contender.run, seconds)
        if kernel and not DEVICES[contender.variant.device].accelerator and not measuring.only_verifies:
            problem.step("events", contender)
            contender.count_events()
        if measuring.accuracy and whole and has_errors(task) and not contender.found.get("errors"):
            problem.step("errors", contender)
            with contender.in_a_pass("errors"):
                contender.found["errors"] = problem.kinds.errors(task)
        compared = measuring.same_bits and (multiplies(task) or reduces(task))
        if compared and contender.verdict.passed and not contender.found.get("differences"):
            problem.step("bits", contender)
            contender.measure_differences(problem.same_bits)
        if not measuring.only_verifies and math.isnan(contender.found.get("clock", math.nan)):
            problem.step("clock", contender)
            if times := contender.seconds[False]:  # these runs are not timed
                contender.found["clock"] = contender.distribution.clock(contender.run, statistics.median(times))
