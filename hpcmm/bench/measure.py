"""Measure a point: place its inputs, verify, warm up, time."""

import dataclasses
import functools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from hpcmm.bench import guarded, provenance
from hpcmm.bench.energy import energy_of, why_unreadable
from hpcmm.bench.errors import Kinds, has_errors
from hpcmm.bench.inputs import draw_inputs
from hpcmm.bench.interval import interval_rank
from hpcmm.bench.same_bits import Bits, Difference, SameBits, broken, columns_of, multiplies, reduces, why_uncompared
from hpcmm.bench.sanitizing import MARK_OF_POINT
from hpcmm.model import ONE_CALL, TEXTBOOK, DeviceError, Task, Variant, Verdict, untimed
from hpcmm.model.devices import DEVICES
from hpcmm.model.dtypes import Arithmetic
from hpcmm.model.launch import Run
from hpcmm.model.measurement import Measurement, Measuring, Point, Sample, Visit
from hpcmm.operations import OPERATIONS, tables, task_of
from hpcmm.operations.tables import TRIAL
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

    The half-width of the ratio is the root of the sum of squares of both. A contender also
    stops once it adds at most half of the ratio's variance: repetitions of the other one then help more.
    """
    own = half_width(seconds)
    if beside is None:
        return own <= relative_interval
    return own <= relative_interval / math.sqrt(2) or math.hypot(own, half_width(beside)) <= relative_interval


def is_look(repetitions: int, least: int) -> bool:
    """Whether the stopping rule looks at the interval after so many repetitions.

    It looks first after ``least`` repetitions, and then each time their number has grown by a tenth. Each look sorts
    the times, and a rule that looks often stops early by chance.

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


KEPT = ("verdict", "checksum", "clock", "errors", "differences")  # of a baseline, for further points of its problem


class Contender:
    """One variant at one point, distributed by one algorithm, with the samples of the ranks.

    ``measures`` are the kinds of repetitions of the point, as in ``Algorithm``. ``verdict`` is None until the first
    result of the visit is verified. ``checksum`` is of the bits of the last verified result on this rank. ``beside`` is
    the contender that takes turns with it, if any.
    """

    def __init__(
        self, distribution: Distribution, variant: Variant, point: Point, algorithm: str, baseline: bool, visit: int = 0
    ):
        self.distribution, self.variant, self.point = distribution, variant, point
        self.algorithm, self.baseline = algorithm, baseline
        self.task = dataclasses.replace(task_of(point), variant=variant)
        self.measures = algorithm_of(self.task.operation, point.algorithm).measures
        self.run = Run.of(distribution.prepare(self.task))  # that of an extension may be a function
        if distribution.comm.size > 1 and tables.settle(distribution.comm):
            self.run = Run.of(distribution.prepare(self.task))
        self.visit, self.verdict = visit, None
        self.checksum: int | None = None
        self.bits = Bits(why_uncompared(variant, algorithm))
        self.samples: list[Sample] = []
        self.seconds: dict[bool, list[float]] = {True: [], False: []}  # slowest rank, by whether end to end
        self.spent = {True: 0.0, False: 0.0}
        self.looking = 0.0  # seconds that the stopping rule took on this rank since the last repetition
        self.first_call = 0.0
        self.late_runs = 0
        self.clock = math.nan
        self.busy_seconds = self.steal_seconds = math.nan
        self.energy: Mapping[str, float] = {}
        self.events: Mapping[str, float] = {}
        self.errors: Mapping[str, float] = {}
        self.differences: Mapping[str, float] = {}
        self.beside: Contender | None = None

    @property
    def key(self) -> tuple[str, int]:
        return self.variant.name, self.task.tile if self.variant.tiles else 0

    def first_run(self, measuring: Measuring) -> None:
        """Run an end-to-end call into poisoned outputs.

        On a CPU, a call that exceeds the time limit of all repetitions is the only repetition. On a GPU the first call
        also loads the kernel, and is never counted.
        """
        self.distribution.poison()
        begin = time.perf_counter()
        phases = self.distribution.call(self.run)
        everyone = self.distribution.comm.allgather(
            (phases, self.distribution.backend.state(), time.perf_counter() - begin)
        )
        self.bits.look(self.distribution.checksum)
        self.first_call = max(spent for _, _, spent in everyone)
        if self.distribution.backend.in_host_memory and self.first_call > measuring.max_seconds:
            if "call" in self.measures:
                self.record(True, everyone)
            if "kernel" in self.measures:
                self.record(False, [({"kernel": phases["kernel"]}, state, spent) for phases, state, spent in everyone])

    def warm_up(self, measuring: Measuring) -> None:
        """Warm up: run the timed code untimed, unless one run exceeds the time limit of all repetitions."""
        begin = time.perf_counter() - self.first_call
        for _ in range(measuring.warmups):
            if self.distribution.comm.bcast(time.perf_counter() - begin, root=0) > measuring.max_seconds:
                break
            if "kernel" in self.measures:
                self.distribution.kernel(self.run, cold=False)  # end-to-end calls follow, with warm caches
            else:
                self.distribution.call(self.run)

    def verify(self, judge: Callable[[np.ndarray], Verdict] | None, when: str = "") -> None:
        """Verify the result on rank 0, or each rank's part there; writes outside the arrays are wrong on any rank."""
        comm = self.distribution.comm
        verdict = None
        if judge is not None:
            (result,) = self.distribution.result.values()
            verdict = judge(result)
        every = comm.allgather((verdict, self.run.complaint()))
        verdicts = [each for each, _ in every if each]  # of rank 0, or of all ranks
        self.verdict = next((each for each in verdicts if not each.passed), verdicts[0])
        for rank, (each, complaint) in enumerate(every):
            if complaint or (each and not each.passed):
                where = "; ".join(filter(None, (complaint, each.where if each else "")))
                where = (f"rank {rank}: " if rank else "") + where + (f" ({when})" if when else "")
                self.verdict = dataclasses.replace(self.verdict, passed=False, where=where)
                break
        if self.verdict.passed and self.algorithm in ONE_CALL:
            self.checksum = self.distribution.checksum()
            self.verdict = dataclasses.replace(self.verdict, bits=tuple(comm.allgather(self.checksum)))

    def verify_again(self, problem: "Problem", fetched: bool) -> None:
        if not self.has_bits(self.checksum):
            if not fetched:
                self.distribution.fetch()
            self.verify(problem.judge(self.task), when="after timing")

    def has_bits(self, checksum: int | None) -> bool:
        """Whether the last result is bitwise equal to the verified one with this checksum on this rank. Collective.

        False if the kernel wrote outside its arrays, or without a checksum: for algorithms other than the textbook's,
        the arrays on a rank may not be the whole result.
        """
        same = checksum is not None and self.distribution.checksum() == checksum and not self.run.complaint()
        return bool(self.distribution.comm.allreduce(int(same)) == self.distribution.comm.size)

    def take(self, earlier: Mapping[str, Any]) -> None:
        """Reuse what is earlier about this baseline, if the last result has the same bits. Collective."""
        if self.has_bits(earlier["checksum"]):
            vars(self).update(earlier)

    def recall(self, first: Verdict) -> None:
        """Reuse the verdict of the first visit if the result has the same bits; fail if it promises them. Collective.

        The verdict has no bits to compare with if they are not the whole result, or were computed on other devices.
        Without a table that all visits share, each may run another build after a trial; other bits are then verified.
        """
        if not first.bits:
            return
        checksum = first.bits[self.distribution.comm.rank]
        if self.has_bits(checksum):
            self.verdict, self.checksum = first, checksum
            return
        picks = self.distribution.comm.allgather(self.distribution.pick(self.task))  # that of each rank's part
        if not self.bits.skipped and not any(TRIAL in pick for pick in picks):
            where = self.run.complaint() or "bits differ from the verified result of the first visit"
            self.verdict = dataclasses.replace(first, passed=False, where=where)

    def repeat(self, end_to_end: bool, cold: bool) -> None:
        distribution = self.distribution
        begin = time.perf_counter()
        late = distribution.late_runs
        phases = distribution.call(self.run) if end_to_end else {"kernel": distribution.kernel(self.run, cold)}
        self.late_runs += distribution.late_runs - late
        self.bits.look(self.distribution.checksum)
        mine = (phases, distribution.backend.state(), time.perf_counter() - begin + self.looking)
        self.looking = 0.0
        self.record(end_to_end, distribution.comm.allgather(mine))

    @contextmanager
    def in_a_pass(self, what: str) -> Iterator[None]:
        """Report an error of the device, such as too little memory: the times of the point are complete."""
        try:
            yield
        except DeviceError as error:
            if self.distribution.comm.size > 1:
                raise  # other ranks may wait for this one
            print(f"{self.point.name}: no {what} of {self.variant.name}: {error}", flush=True)

    def measure_energy(self) -> None:
        backend = self.distribution.backend
        if not why_unreadable(backend):
            with self.in_a_pass("energy"):
                self.energy = energy_of(backend, self.run, statistics.median(self.seconds[False]))

    def count_events(self) -> None:
        distribution, found = self.distribution, {}

        def once() -> None:
            found.update(distribution.backend.counted(self.run))

        with suppress(DeviceError):
            distribution.kernel(dataclasses.replace(self.run, once=once), cold=distribution.backend.cold)
        self.events = found

    @untimed
    def measure_differences(self, same_bits: SameBits) -> None:
        """Measure what the bits of the result depend on; fail if the record promises that they do not. Collective."""
        found: Mapping[str, Difference] = {}
        with self.in_a_pass("comparison of bits"):
            found = self.distribution.comm.bcast(same_bits.differences(self.task, self.algorithm), root=0)
        self.differences = columns_of(found)
        if where := broken(self.variant, self.algorithm, found, not self.bits.skipped):
            self.verdict = dataclasses.replace(self.verdict, passed=False, where=where)

    def record(self, end_to_end: bool, everyone: Sequence[tuple[Mapping, Mapping, float]]) -> None:
        """Keep a repetition: phases, state of the device, and total seconds of each rank."""
        key = "total" if end_to_end else "kernel"
        repetition = len(self.seconds[end_to_end])
        if self.distribution.comm.rank == 0:
            self.samples += [
                Sample(repetition, rank, end_to_end, each, state, self.visit)
                for rank, (each, state, _) in enumerate(everyone)
            ]
        self.seconds[end_to_end].append(max(each[key] for each, _, _ in everyone))
        self.spent[end_to_end] += max(spent for _, _, spent in everyone)

    def done(self, end_to_end: bool, measuring: Measuring) -> bool:
        """Apply the stopping rule. All ranks have the same times, and so the same answer."""
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
        self.looking += time.perf_counter() - begin  # shared by the allgather of the next repetition
        return enough

    @untimed
    def take_steal(self, before: Mapping[str, Any]) -> None:
        """Take the CPU times of the node since an earlier ``provenance.moment``. Collective."""
        mine = provenance.spent(before["counters"], provenance.moment()["counters"])
        self.busy_seconds, self.steal_seconds = max(self.distribution.comm.allgather(mine), key=lambda times: times[1])

    @untimed
    def visited(self) -> Visit:
        distribution = self.distribution
        pages = distribution.comm.allgather(distribution.backend.huge_pages(distribution.arrays.values()))
        least = float(np.fmin.reduce(pages))  # a rank without rows has no arrays
        return Visit(self.visit, self.run.choice or distribution.schedule, least, self.busy_seconds, self.steal_seconds)

    def measurement(self) -> Measurement:
        """Return the measurement; a failed check leaves no times. Collective."""
        distribution = self.distribution
        return Measurement(
            self.point,
            self.variant.name,
            self.baseline,
            self.verdict,
            self.task.flops,
            self.task.bytes,
            tuple(self.samples) if self.verdict.passed else (),
            distribution.resources(self.task),
            self.algorithm,
            distribution.transport_name,
            (self.visited(),),
            self.late_runs,
            self.energy if self.verdict.passed else {},
            distribution.pick(self.task),
            self.clock,
            self.errors,
            self.differences,
            self.events,
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
            self.inputs = draw_inputs(backend, own, point.page_locked, *seeds)
        self.seconds = seconds
        self.judges: dict[Arithmetic, Callable[[np.ndarray], Verdict]] = {}
        self.backend = backend
        self.comm, self.connections = comm, connections
        self.task, self.point, self.seed = task, point, seed
        self.placed: dict[str, Distribution] = {}
        self.baselines: dict[tuple[str, int], dict[str, Any]] = {}  # ``KEPT``, by variant and tile
        self.begin: Callable[[str, str], None] = lambda step, of: None

    def step(self, name: str, contender: Contender) -> None:
        launches = contender.run.launches
        self.begin(name, contender.variant.name + (f" ({launches})" if launches else ""))

    def remember(self, contender: Contender) -> None:
        if not contender.visit and contender.baseline and contender.algorithm == TEXTBOOK and contender.verdict.passed:
            self.baselines[contender.key] = {name: getattr(contender, name) for name in KEPT}

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


def measure_point(
    problem: Problem,
    point: Point,
    measuring: Measuring,
    beside: bool = True,
    visit: int = 0,
    verdicts: Mapping[tuple[str, str], Verdict] | None = None,
) -> list[Measurement]:
    """Measure one visit of a point; its repetitions alternate with repetitions of its baseline.

    The baseline is the library of the device. For algorithms other than the textbook's it is the textbook's with the
    same variant, if it is to be measured ``beside``; its kernel alone is a product with B on every rank.

    The limits of ``measuring`` are those of all visits together, which count from 0. ``verdicts`` has those of the
    first visit by contender and algorithm. Return the measurement of the point, then that of the baseline unless the
    point is the baseline, with samples on rank 0 only.
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


def first_result(
    problem: Problem,
    contender: Contender,
    measuring: Measuring,
    earlier: Mapping[tuple[str, str], Verdict],
    known: bool,
) -> None:
    """Run a contender for the first time in this visit, and verify its result, or take what is ``known``."""
    point, visit = contender.point, contender.visit
    if not visit:
        problem.step("reference", contender)
        problem.judge(contender.task)
    problem.step("first call", contender)
    contender.first_run(measuring)
    problem.step("verification", contender)
    if known and contender.key in problem.baselines:
        contender.take(problem.baselines[contender.key])
    if visit:
        contender.recall(earlier[contender.variant.name, contender.algorithm])
    if contender.verdict is None:
        contender.verify(problem.judge(contender.task))
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
                    contender.verify_again(problem, fetched=end_to_end)
            waiting.reverse()  # the order alternates, so that a drift of the clock affects both alike


def measure_once(problem: Problem, contenders: Sequence[Contender], measuring: Measuring) -> None:
    """Measure energy, errors, bits and the clock, for which one visit suffices."""
    for contender in contenders:
        whole, task = contender.point.ranks == 1, contender.task
        kernel = whole and "kernel" in contender.measures
        if measuring.energy and kernel:
            problem.step("energy", contender)
            contender.measure_energy()
        if kernel and not DEVICES[contender.variant.device].accelerator and not measuring.only_verifies:
            problem.step("events", contender)
            contender.count_events()
        if measuring.accuracy and whole and has_errors(task) and not contender.errors:
            problem.step("errors", contender)
            with contender.in_a_pass("errors"):
                contender.errors = problem.kinds.errors(task)
        compared = measuring.same_bits and (multiplies(task) or reduces(task))
        if compared and contender.verdict.passed and not contender.differences:
            problem.step("bits", contender)
            contender.measure_differences(problem.same_bits)
        if not measuring.only_verifies and math.isnan(contender.clock):
            problem.step("clock", contender)
            if times := contender.seconds[False]:  # these runs are not timed
                contender.clock = contender.distribution.clock(contender.run, statistics.median(times))


def run_for_profiler(comm, backend, points: Sequence[Point], measuring: Measuring) -> list[Verdict]:
    """Run each right kernel once under a profiler, marked by its point's number; return the verdicts."""
    verdicts, problem, placed = [], None, None
    for number, point in enumerate(points, 1):
        if placed != Problem.key(point):
            problem = None  # frees its memory before the next one is allocated
            backend.release()
            problem, placed = Problem(comm, backend, point, measuring.seed), Problem.key(point)
            distribution = problem.distributions([TEXTBOOK])[TEXTBOOK]
            distribution.save_inputs()
        variant = problem.operation.variant(point.variant)
        contender = Contender(distribution, variant, point, TEXTBOOK, variant.baseline)
        contender.first_run(measuring)
        contender.verify(problem.judge(contender.task))
        if contender.verdict.passed:
            distribution.kernel(backend.marked(contender.run, number), cold=False)
            distribution.fetch()
            contender.verify(problem.judge(contender.task), when="under the profiler")
        verdicts.append(contender.verdict)
        outcome = "PASS" if contender.verdict.passed else f"FAIL: {contender.verdict.where}"
        print(f"[{number}/{len(points)}] {point.name} {outcome}", flush=True)
    return verdicts


def run_for_sanitizer(comm, backend, points: Sequence[Point], measuring: Measuring) -> None:
    for point in points:
        print(f"{MARK_OF_POINT}{point.name}", flush=True)
        problem = Problem(comm, backend, point, measuring.seed)
        distribution = problem.distributions([TEXTBOOK])[TEXTBOOK]
        variant = problem.operation.variant(point.variant)
        contender = Contender(distribution, variant, point, TEXTBOOK, variant.baseline)
        contender.first_run(measuring)
        problem.close()
