"""Measure a point: place its inputs, verify, warm up, time."""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from hpcmm.bench.bits import Bits, why_uncompared
from hpcmm.interval import interval_rank
from hpcmm.model import TEXTBOOK, Measurement, Measuring, Point, Sample, Task, Variant, Verdict
from hpcmm.operations import task_of
from hpcmm.parallel import algorithm_of
from hpcmm.parallel.distribution import Distribution


def half_width(seconds: Sequence[float]) -> float:
    """Return the half-width of the 95 % interval of the median over the median; inf for fewer than 6 times."""
    rank = interval_rank(len(seconds))
    if rank == 0:
        return math.inf
    ordered = sorted(seconds)
    return (ordered[-rank] - ordered[rank - 1]) / 2 / statistics.median(ordered)


def settled(seconds: Sequence[float], beside: Sequence[float] | None, relative_interval: float) -> bool:
    """Whether the median, and its ratio to the median of the times ``beside`` it, are known to ``relative_interval``.

    The half-width of the ratio is the root of the sum of squares of both. Times that take up no more than an equal
    share of it are settled, too: further ones would help less than those of the other contender.
    """
    own = half_width(seconds)
    if beside is None:
        return own <= relative_interval
    return own <= relative_interval / math.sqrt(2) or math.hypot(own, half_width(beside)) <= relative_interval


def is_look(repetitions: int, least: int) -> bool:
    """Whether the stopping rule looks at the interval after so many repetitions.

    It looks first after ``least`` and then each time a tenth more are done. Looking costs a sort, and a rule
    that looks often stops on lucky samples.

    >>> [count for count in range(50) if is_look(count, 16)]
    [16, 17, 18, 19, 20, 22, 24, 26, 28, 30, 33, 36, 39, 42, 46]
    """
    look = least
    while look < repetitions:
        look += max(1, look // 10)
    return look == repetitions


def of_visit(measuring: Measuring) -> Measuring:
    """Return the limits of one visit: the repetitions and seconds of a point, divided among its visits."""
    visits = measuring.visits
    return dataclasses.replace(
        measuring,
        min_repetitions=-(-measuring.min_repetitions // visits),
        max_repetitions=-(-measuring.max_repetitions // visits),
        max_seconds=measuring.max_seconds / visits,
    )


class Contender:
    """One variant at one point, spread by one algorithm: what the ranks run, and what came of it.

    ``measures`` are the kinds of repetitions that its point asks for, as an ``Algorithm`` has them. ``verdict`` is that
    of the first visit; in the first visit it is None until the result was judged. ``beside`` is the contender that
    takes turns with it, if any.
    """

    def __init__(
        self,
        spread: Distribution,
        variant: Variant,
        point: Point,
        algorithm: str,
        baseline: bool,
        measures: Sequence[str],
        visit: int = 0,
        verdict: Verdict | None = None,
    ):
        self.spread, self.variant, self.point = spread, variant, point
        self.algorithm, self.baseline, self.measures = algorithm, baseline, measures
        self.task = dataclasses.replace(task_of(point), variant=variant)
        self.run = spread.prepare(self.task)
        self.visit, self.verdict = visit, verdict
        self.bits = Bits(why_uncompared(variant, algorithm))
        self.samples: list[Sample] = []
        self.seconds: dict[bool, list[float]] = {True: [], False: []}  # slowest rank, by whole call or not
        self.spent = {True: 0.0, False: 0.0}
        self.looking = 0.0  # seconds that the stopping rule took on this rank since the last repetition
        self.first_call = 0.0
        self.late_runs = 0
        self.beside: Contender | None = None

    def check(self, judge: Callable[[np.ndarray], Verdict] | None, measuring: Measuring) -> None:
        """Do the whole call into poisoned outputs, and have its result judged in the first visit.

        On a CPU, a call that takes longer than all repetitions may is the one repetition. On a GPU
        the first call may be long for loading the kernel, and is never counted.
        """
        self.spread.poison()
        begin = time.perf_counter()
        phases = self.spread.call(self.run)
        everyone = self.spread.comm.allgather((phases, self.spread.backend.state(), time.perf_counter() - begin))
        self.compare_bits()
        self.first_call = max(spent for _, _, spent in everyone)
        if self.spread.backend.in_host_memory and self.first_call > measuring.max_seconds:
            if "call" in self.measures:
                self.record(True, everyone)
            if "kernel" in self.measures:
                self.record(False, [({"kernel": phases["kernel"]}, state, spent) for phases, state, spent in everyone])
        if self.verdict is None:
            self.verify(judge)

    def warm_up(self, measuring: Measuring) -> None:
        """Run what is timed untimed, not at all if it takes longer than all repetitions may."""
        begin = time.perf_counter() - self.first_call
        for _ in range(measuring.warmups):
            if self.spread.comm.bcast(time.perf_counter() - begin, root=0) > measuring.max_seconds:
                break
            if "kernel" in self.measures:
                self.spread.kernel(self.run, measuring.cache == "cold")
            else:
                self.spread.call(self.run)

    def verify(self, judge: Callable[[np.ndarray], Verdict] | None, when: str = "") -> None:
        """Let rank 0 judge the result that it holds; all ranks learn the verdict."""
        comm = self.spread.comm
        verdict = None
        if judge is not None:
            (result,) = self.spread.result.values()
            verdict = judge(result)
            if when and not verdict.passed:
                verdict = dataclasses.replace(verdict, where=f"{verdict.where} ({when})")
        self.verdict = comm.bcast(verdict, root=0)

    def repeat(self, end_to_end: bool, cold: bool) -> None:
        """Do one timed repetition and keep every rank's sample."""
        spread = self.spread
        begin = time.perf_counter()
        late = spread.late_runs
        phases = spread.call(self.run) if end_to_end else {"kernel": spread.kernel(self.run, cold)}
        self.late_runs += spread.late_runs - late
        self.compare_bits()
        mine = (phases, spread.backend.state(), time.perf_counter() - begin + self.looking)
        self.looking = 0.0
        self.record(end_to_end, spread.comm.allgather(mine))

    def compare_bits(self) -> None:
        """Compare the checksum of the last result with that of the first one, if they must be equal."""
        if not self.bits.skipped:
            self.bits.look(self.spread.checksum())

    def record(self, end_to_end: bool, everyone: Sequence[tuple[Mapping, Mapping, float]]) -> None:
        """Keep a repetition: each rank's phases, state of its device, and seconds that it took in all."""
        key = "total" if end_to_end else "kernel"
        repetition = len(self.seconds[end_to_end])
        if self.spread.comm.rank == 0:
            self.samples += [
                Sample(repetition, rank, end_to_end, each, state, self.visit)
                for rank, (each, state, _) in enumerate(everyone)
            ]
        self.seconds[end_to_end].append(max(each[key] for each, _, _ in everyone))
        self.spent[end_to_end] += max(spent for _, _, spent in everyone)

    def done(self, end_to_end: bool, measuring: Measuring) -> bool:
        """The stopping rule; every rank comes to the same answer from the same times."""
        times = self.seconds[end_to_end]
        if not times:
            return False
        if self.spent[end_to_end] >= measuring.max_seconds or len(times) >= measuring.max_repetitions:
            return True
        if not is_look(len(times), measuring.min_repetitions):
            return False
        begin = time.perf_counter()
        beside = self.beside.seconds[end_to_end] if self.beside else None
        enough = settled(times, beside, measuring.relative_interval)
        self.looking += time.perf_counter() - begin  # the next repetition's allgather makes it known to all ranks
        return enough

    def measurement(self) -> Measurement:
        """Return what happened; a failed check leaves no times."""
        spread = self.spread
        return Measurement(
            self.point,
            self.variant.name,
            self.baseline,
            self.verdict,
            self.task.flops,
            self.task.bytes,
            tuple(self.samples) if self.verdict.passed else (),
            spread.resources(self.task),
            self.algorithm,
            spread.transport_name,
            spread.schedule,
            self.late_runs,
        )


class Problem:
    """The inputs of points that differ in nothing but the kernel, placed on all ranks, with their judge.

    Without ``judged`` there is no judge: only the first visit of a point verifies results.
    """

    def __init__(self, comm, backend, point: Point, seed: int, transport=None, judged: bool = True):
        task = task_of(point)
        self.operation, self.inputs, self.judge = task.operation, None, None
        if comm.rank == 0:
            self.inputs = draw_inputs(backend, task, point.page_locked, seed)
            self.judge = task.operation.reference(task, self.inputs) if judged else None
        self.backend = backend
        self.place = comm, backend, task, self.inputs, point.page_locked, transport
        self.spreads: dict[str, Distribution] = {}

    def spread(self, algorithms: Sequence[str]) -> dict[str, Distribution]:
        """Place the problem for these algorithms at once, and for no other."""
        for name in [name for name in self.spreads if name not in algorithms]:
            self.spreads.pop(name).close()
            self.backend.release()
        for name in algorithms:
            if name not in self.spreads:
                self.spreads[name] = algorithm_of(self.operation, name).distribution(*self.place)
        return {name: self.spreads[name] for name in algorithms}

    def close(self) -> None:
        """Give up what other ranks and the driver know of the arrays, on all ranks at once."""
        for spread in self.spreads.values():
            spread.close()

    @staticmethod
    def key(point: Point) -> tuple:
        """Return what points that can share a problem have in common."""
        return point.operation, point.shape, point.dtype, point.page_locked, *sorted(point.scalars.items())


def draw_inputs(backend, task: Task, pinned: bool, seed: int) -> dict[str, np.ndarray]:
    """Draw the random inputs of a task into the backend's host memory; the same for every variant."""
    drawn = task.operation.draw(np.random.default_rng([seed, *task.shape]), task)
    inputs = {}
    for name in list(drawn):
        array = drawn.pop(name)
        inputs[name] = backend.host_empty(array.shape, task.dtype, pinned)
        inputs[name][...] = array
    return inputs


def measure_point(
    problem: Problem,
    point: Point,
    measuring: Measuring,
    beside: bool = True,
    visit: int = 0,
    verdicts: Mapping[tuple[str, str], Verdict] | None = None,
) -> list[Measurement]:
    """Measure one point in one visit beside its baseline, which takes turns with it.

    That is the baseline of the device; of any other algorithm than the textbook's, the textbook's with the
    same variant, if ``beside`` says that there is room for it. Its kernel alone is a product with B on every rank.

    Parameters
    ----------
    problem : Problem
    point : Point
    measuring : Measuring
        Of all visits together.
    beside : bool
        Whether there is room for the baseline of an algorithm.
    visit : int
        Counted from 0.
    verdicts : mapping
        By contender and algorithm, the verdicts of the first visit on what a later visit is to time.

    Returns
    -------
    list of Measurement
        The point's first, then the baseline's (none if the point is that itself); samples are on rank 0 only.
    """
    cold, operation, limits = measuring.cache == "cold", problem.operation, of_visit(measuring)
    variant, measures = operation.variant(point.variant), algorithm_of(operation, point.algorithm).measures
    names = dict.fromkeys((point.algorithm, TEXTBOOK) if beside else (point.algorithm,))
    spreads = problem.spread(list(names))
    if point.algorithm == TEXTBOOK:
        variants = dict.fromkeys((variant, operation.baseline(variant.device, point.dtype)))
        pairs = [(TEXTBOOK, each, each.baseline) for each in variants]
    else:
        pairs = [(name, variant, name == TEXTBOOK) for name in names]
    known = verdicts or {}
    contenders = [
        Contender(spreads[name], each, point, name, yard, measures, visit, known.get((each.name, name)))
        for name, each, yard in pairs
        if not visit or (each.name, name) in known
    ]

    for contender in contenders:
        contender.check(problem.judge, measuring)
    right = [contender for contender in contenders if contender.verdict.passed]
    if not contenders[0].verdict.passed:
        right = []  # a wrong variant needs no baseline
    for spread in spreads.values():
        spread.save_inputs()
    if len(right) == 2:
        right[0].beside, right[1].beside = right[1], right[0]
    for contender in right:
        contender.warm_up(limits)
    for end_to_end in [kind == "call" for kind in measures]:
        waiting = [contender for contender in right if not contender.done(end_to_end, limits)]
        while waiting:
            for contender in list(waiting):
                contender.repeat(end_to_end, cold)
                if contender.done(end_to_end, limits):
                    waiting.remove(contender)
                    if visit or end_to_end != (measures[-1] == "call"):
                        continue
                    if not end_to_end:
                        contender.spread.fetch()
                    contender.verify(problem.judge, when="after timing")
            waiting.reverse()  # the order turns round each time, so that a drift of the clock favours nobody
    for contender in right:
        contender.verdict = contender.bits.judge(contender.spread.comm, contender.verdict)
    return [contender.measurement() for contender in contenders]


def run_for_profiler(comm, backend, points: Sequence[Point], measuring: Measuring) -> list[Verdict]:
    """Run the kernel of each point once where a profiler sees it, marked by the point's number from 1.

    Returns
    -------
    list of Verdict
        Of each point's run under the profiler; one that was wrong before is not shown to it.
    """
    verdicts, problem, placed = [], None, None
    for number, point in enumerate(points, 1):
        if placed != Problem.key(point):
            problem = None  # frees its memory before the next one's is asked for
            backend.release()
            problem, placed = Problem(comm, backend, point, measuring.seed), Problem.key(point)
            spread = problem.spread([TEXTBOOK])[TEXTBOOK]
            spread.save_inputs()
        variant = problem.operation.variant(point.variant)
        measures = algorithm_of(problem.operation, TEXTBOOK).measures
        contender = Contender(spread, variant, point, TEXTBOOK, variant.baseline, measures)
        contender.check(problem.judge, measuring)
        if contender.verdict.passed:
            spread.kernel(backend.marked(contender.run, number), cold=False)
            spread.fetch()
            contender.verify(problem.judge, when="under the profiler")
        verdicts.append(contender.verdict)
        outcome = "PASS" if contender.verdict.passed else f"FAIL: {contender.verdict.where}"
        print(f"[{number}/{len(points)}] {point.name} {outcome}", flush=True)
    return verdicts
