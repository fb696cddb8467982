"""Measure a batch: place the inputs, verify, warm up, time."""

from __future__ import annotations

import dataclasses
import math
import socket
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from hpcmm import provenance
from hpcmm.backends import gpu_uuids, open_backend
from hpcmm.interval import interval_rank
from hpcmm.journal import Journal
from hpcmm.model import (
    TEXTBOOK,
    UNCHECKED,
    Batch,
    HpcmmError,
    Measurement,
    Measuring,
    Operation,
    Point,
    Sample,
    Variant,
    Verdict,
)
from hpcmm.operations import OPERATIONS
from hpcmm.parallel import world
from hpcmm.parallel.distribution import Distribution, distribute
from hpcmm.parallel.memory import MemoryShortageError, preflight
from hpcmm.parallel.transports import exchange_times, open_transport
from hpcmm.plan import STARTUP_SECONDS, duration

ATTEMPTS = 2  # to measure a point that ends its job or raises


class PointError(HpcmmError):
    """A point that failed on some ranks only, which leaves them in different states."""


def settled(seconds: Sequence[float], relative_interval: float) -> bool:
    """Whether the median of these times is known within ``relative_interval``, half-width over median."""
    rank = interval_rank(len(seconds))
    if rank == 0:
        return False
    ordered = sorted(seconds)
    return ordered[-rank] - ordered[rank - 1] <= 2 * relative_interval * statistics.median(ordered)


class Contender:
    """One variant at one point, spread by one algorithm: what the ranks run, and what came of it.

    ``measures`` are the kinds of repetitions that its point asks for, as an ``Algorithm`` has them.
    """

    def __init__(
        self,
        spread: Distribution,
        variant: Variant,
        point: Point,
        algorithm: str,
        baseline: bool,
        measures: Sequence[str],
    ):
        self.spread, self.variant, self.point = spread, variant, point
        self.algorithm, self.baseline, self.measures = algorithm, baseline, measures
        self.run = spread.prepare(variant, point.parameters)
        self.verdict: Verdict | None = None
        self.samples: list[Sample] = []
        self.seconds: dict[bool, list[float]] = {True: [], False: []}  # slowest rank, by whole call or not
        self.spent = {True: 0.0, False: 0.0}
        self.first_call = 0.0

    def check(self, judge: Callable[[np.ndarray], Verdict] | None, measuring: Measuring) -> None:
        """Do the whole call into poisoned outputs and have its result judged.

        On a CPU, a call that takes longer than all repetitions may is the one repetition. On a GPU
        the first call may be long for loading the kernel, and is never counted.
        """
        self.spread.poison()
        begin = time.perf_counter()
        phases = self.spread.call(self.run)
        everyone = self.spread.comm.allgather((phases, self.spread.backend.state(), time.perf_counter() - begin))
        self.first_call = max(spent for _, _, spent in everyone)
        if self.spread.backend.in_host_memory and self.first_call > measuring.max_seconds:
            if "call" in self.measures:
                self.keep(True, everyone)
            if "kernel" in self.measures:
                self.keep(False, [({"kernel": phases["kernel"]}, state, spent) for phases, state, spent in everyone])
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

    def repeat(self, whole_call: bool, cold: bool) -> None:
        """Do one timed repetition and keep every rank's sample."""
        spread = self.spread
        begin = time.perf_counter()
        phases = spread.call(self.run) if whole_call else {"kernel": spread.kernel(self.run, cold)}
        mine = (phases, spread.backend.state(), time.perf_counter() - begin)
        self.keep(whole_call, spread.comm.allgather(mine))

    def keep(self, whole_call: bool, everyone: Sequence[tuple[Mapping, Mapping, float]]) -> None:
        """Keep a repetition: each rank's phases, state of its device, and seconds that it took in all."""
        key = "total" if whole_call else "kernel"
        repetition = len(self.seconds[whole_call])
        if self.spread.comm.rank == 0:
            self.samples += [
                Sample(repetition, rank, whole_call, each, state) for rank, (each, state, _) in enumerate(everyone)
            ]
        self.seconds[whole_call].append(max(each[key] for each, _, _ in everyone))
        self.spent[whole_call] += max(spent for _, _, spent in everyone)

    def done(self, whole_call: bool, measuring: Measuring) -> bool:
        """The stopping rule; every rank comes to the same answer from the same times."""
        times = self.seconds[whole_call]
        if not times:
            return False
        if self.spent[whole_call] >= measuring.max_seconds or len(times) >= measuring.max_repetitions:
            return True
        return len(times) >= measuring.min_repetitions and settled(times, measuring.relative_interval)

    def measurement(self, operation: Operation) -> Measurement:
        """Return what happened; a failed check leaves no times."""
        point, spread = self.point, self.spread
        return Measurement(
            point,
            self.variant.name,
            self.baseline,
            self.verdict,
            operation.flops(point.shape, point.parameters),
            operation.bytes(point.shape, point.dtype, point.parameters),
            tuple(self.samples) if self.verdict.passed else (),
            spread.resources(self.variant, point.parameters),
            self.algorithm,
            spread.carried,
            spread.schedule,
        )


class Problem:
    """The inputs of points that differ in nothing but the kernel, placed on all ranks, with their judge."""

    def __init__(self, comm, backend, operation: Operation, point: Point, seed: int, transport=None):
        self.operation, self.inputs, self.judge = operation, None, None
        if comm.rank == 0:
            self.inputs = draw_inputs(backend, operation, point, seed)
            self.judge = operation.reference(self.inputs, point.parameters)
        self.backend = backend
        self.place = comm, backend, operation, point.shape, point.dtype, self.inputs, point.pinned, transport
        self.spreads: dict[str, Distribution] = {}

    def spread(self, algorithms: Sequence[str]) -> dict[str, Distribution]:
        """Place the problem for these algorithms at once, and for no other."""
        for name in [name for name in self.spreads if name not in algorithms]:
            self.spreads.pop(name).close()
            self.backend.release()
        for name in algorithms:
            if name not in self.spreads:
                self.spreads[name] = distribute(self.operation.algorithm(name), *self.place)
        return {name: self.spreads[name] for name in algorithms}

    def close(self) -> None:
        """Give up what other ranks and the driver know of the arrays, on all ranks at once."""
        for spread in self.spreads.values():
            spread.close()

    @staticmethod
    def key(operation: Operation, point: Point) -> tuple:
        """What points that can share a problem have in common."""
        return point.shape, point.dtype, point.pinned, *(point.parameters[name] for name in operation.parameters)


def draw_inputs(backend, operation: Operation, point: Point, seed: int) -> dict[str, np.ndarray]:
    """Draw the random inputs of a point into the backend's host memory; the same for every variant."""
    rng = np.random.default_rng([seed, *point.shape])
    drawn = operation.draw(rng, point.shape, point.dtype, point.parameters)
    inputs = {}
    for name in list(drawn):
        array = drawn.pop(name)
        inputs[name] = backend.host_empty(array.shape, point.dtype, point.pinned)
        inputs[name][...] = array
    return inputs


def measure_point(
    problem: Problem, operation: Operation, point: Point, measuring: Measuring, beside: bool = True
) -> list[Measurement]:
    """Measure one point beside its yardstick, which takes turns with it.

    That is the baseline of the device; of any other algorithm than the textbook's, the textbook's with the
    same variant, if ``beside`` says that there is room for it. Its kernel alone is a product with B on every rank.

    Returns
    -------
    list of Measurement
        The point's first, then the yardstick's (none if the point is that itself); samples are on rank 0 only.
    """
    cold = measuring.cache == "cold"
    variant, measures = operation.variant(point.variant), operation.algorithm(point.algorithm).measures
    names = dict.fromkeys((point.algorithm, TEXTBOOK) if beside else (point.algorithm,))
    spreads = problem.spread(list(names))
    if point.algorithm == TEXTBOOK:
        variants = dict.fromkeys((variant, operation.baseline(variant.device)))
        pairs = [(TEXTBOOK, each, each.baseline) for each in variants]
    else:
        pairs = [(name, variant, name == TEXTBOOK) for name in names]
    contenders = [Contender(spreads[name], each, point, name, yard, measures) for name, each, yard in pairs]

    for contender in contenders:
        contender.check(problem.judge, measuring)
    right = [contender for contender in contenders if contender.verdict.passed]
    if not contenders[0].verdict.passed:
        right = []  # a wrong variant needs no yardstick
    for spread in spreads.values():
        spread.keep()
    for contender in right:
        contender.warm_up(measuring)
    for whole_call in [kind == "call" for kind in measures]:
        waiting = [contender for contender in right if not contender.done(whole_call, measuring)]
        while waiting:
            for contender in list(waiting):
                contender.repeat(whole_call, cold)
                if contender.done(whole_call, measuring):
                    waiting.remove(contender)
                    if whole_call != (measures[-1] == "call"):
                        continue
                    if not whole_call:
                        contender.spread.fetch()
                    contender.verify(problem.judge, when="after timing")
            waiting.reverse()  # the order turns round each time, so that a drift of the clock favours nobody
    return [contender.measurement(operation) for contender in contenders]


def run_for_profiler(comm, backend, points: Sequence[Point], measuring: Measuring) -> list[Verdict]:
    """Run the kernel of each point once where a profiler sees it, marked by the point's number from 1.

    Returns
    -------
    list of Verdict
        Of each point's run under the profiler; one that was wrong before is not shown to it.
    """
    verdicts, problem, placed = [], None, None
    for number, point in enumerate(points, 1):
        operation = OPERATIONS[point.operation]
        if placed != Problem.key(operation, point):
            problem = None  # frees its memory before the next one's is asked for
            backend.release()
            problem, placed = Problem(comm, backend, operation, point, measuring.seed), Problem.key(operation, point)
            spread = problem.spread([TEXTBOOK])[TEXTBOOK]
            spread.keep()
        variant = operation.variant(point.variant)
        measures = operation.algorithm(TEXTBOOK).measures
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


def describe_ranks(comm, backend) -> dict[str, Any]:
    """Gather provenance of all ranks on rank 0, which alone starts other programs for it."""
    everyone = comm.gather((socket.gethostname(), world.node(), backend.describe()), root=0)
    if everyone is None:
        return {}
    found = provenance.collect()
    found["cpu"] |= everyone[0][2].get("cpu", {})
    gpus = [described["gpu"] for *_, described in everyone if "gpu" in described]
    for rank, (_, node, described) in enumerate(everyone):
        print(f"rank {rank} on {node}: {described['gpu']['uuid'] if 'gpu' in described else 'CPU'}", flush=True)
    return found | {"hosts": sorted({host for host, *_ in everyone}), "mpi": world.describe(comm), "gpus": gpus}


class Bench:
    """The ranks of a job with their devices, and on them the problem of the point that is measured.

    All methods are collective.

    Parameters
    ----------
    comm : MPI.Comm
    backend : CpuBackend or CudaBackend
    batch : Batch
    measuring : Measuring
    transport : str
        What is to carry exchanges between the ranks.
    """

    def __init__(self, comm, backend, batch: Batch, measuring: Measuring, transport: str):
        self.comm, self.backend, self.measuring, self.transport = comm, backend, measuring, transport
        self.operation = operation = OPERATIONS[batch.operation]
        algorithms = [operation.algorithm(name) for name in dict.fromkeys(point.algorithm for point in batch.points)]
        self.spread = next((algorithm for algorithm in algorithms if algorithm.name != TEXTBOOK), None)
        self.problem: Problem | None = None
        self.placed: tuple | None = None
        self.connect()
        self.exchanges = exchange_times(self.carrier) if self.carrier else None
        self.memory = preflight(comm, backend, operation, batch.points)
        self.unsuited = {
            name: next(filter(None, comm.allgather(operation.variant(name).unsuited_to(backend.capability))), "")
            for name in dict.fromkeys(point.variant for point in batch.points)
        }

    def connect(self) -> None:
        """Open ways between the ranks on which nothing is under way."""
        self.ranks = world.duplicate(self.comm)
        self.carrier, self.others = None, ""
        if self.spread:
            self.carrier, self.others = open_transport(self.ranks, self.backend, self.transport, self.spread.transport)

    def measure(self, point: Point) -> list[Measurement]:
        """Measure a point, on the problem of the one before if it has the same.

        Raises
        ------
        MemoryShortageError
            If it cannot fit.
        """
        lacking, beside = self.memory[point.key]
        if lacking:
            raise MemoryShortageError(lacking)
        key = Problem.key(self.operation, point)
        if self.placed != key:
            if self.problem:
                self.problem.close()
            self.clear()
            self.problem = Problem(self.ranks, self.backend, self.operation, point, self.measuring.seed, self.carrier)
            self.placed = key
        return measure_point(self.problem, self.operation, point, self.measuring, beside)

    def clear(self) -> None:
        """Free the problem's memory before another one's is asked for."""
        self.problem = self.placed = None
        self.backend.release()  # raises if the device is of no more use

    def start_afresh(self) -> None:
        """Go on after a point that failed: what the ranks were about to send must not be taken for what comes next."""
        self.clear()
        self.connect()

    def close(self) -> None:
        if self.problem:
            self.problem.close()
        if self.carrier:
            self.carrier.close()


def measure_batch(
    comm,
    batch: Batch,
    measuring: Measuring,
    share_gpu: bool,
    config: Mapping[str, Any],
    output: Path,
    transport: str = "auto",
    expect: Callable[[str, float], None] = lambda doing, seconds: None,
) -> list[str]:
    """Measure all points of a batch into ``output``, going on from its journal if there is one.

    Points that were measured before, with the same kernel and in the same way, are taken from the
    journal or from earlier files of the batch. A point in which an earlier job ended comes last, and
    after ``ATTEMPTS`` of them it is recorded as missing, with the reason.

    Parameters
    ----------
    comm : MPI.Comm
    batch : Batch
    measuring : Measuring
    share_gpu : bool
        Whether ranks may share a GPU.
    config : mapping
        The experiment's config, kept in the provenance.
    output : Path
        HDF5 file; the journal lies beside it with the suffix ``.journal``.
    transport : str
        What is to carry exchanges between the ranks.
    expect : callable
        Told of what comes next on every rank, and of the seconds that it should take at most.

    Returns
    -------
    list of str
        On every rank, what could not be measured, and why; then there is no output, but the journal.
    """
    expect(f"{batch.name}: start-up", STARTUP_SECONDS)
    began = psutil.Process().create_time()
    local_rank = world.local_rank(comm, gpu_uuids() if batch.device == "cuda" else ())
    backend = open_backend(batch.device, world.threads_per_rank(comm), local_rank, share_gpu)
    described = describe_ranks(comm, backend)
    bench = Bench(comm, backend, batch, measuring, transport)
    journal = None
    if comm.rank == 0:
        described |= {"config": dict(config), "measuring": dataclasses.asdict(measuring)}
        described |= {"exchanges": bench.exchanges} if bench.exchanges else {}
        journal = Journal(output.with_suffix(".journal"), batch, described)
    measured, attempts = comm.bcast((journal.measured, journal.attempts) if journal else None, root=0)
    planned = list(zip(batch.points, batch.fingerprints, batch.predicted, strict=True))
    waiting = [each for each in planned if each[1] not in measured]
    waiting.sort(key=lambda each: len(attempts.get(each[1], ())))  # else in the order of the plan
    progress = Progress(batch, [seconds for _, _, seconds in waiting])
    if journal and bench.carrier and bench.carrier.name:
        progress.tell(f"exchanges go by {bench.carrier.name}" + (f" ({bench.others})" if bench.others else ""))
    if journal and len(waiting) < len(planned):
        progress.tell(f"{len(planned) - len(waiting)} points were measured before and are kept")

    startup, timed, missing = time.time() - began, 0.0, []
    for point, fingerprint, predicted in waiting:
        expect(f"{batch.name}: {point.name}", predicted)
        tried, reason = attempts.get(fingerprint, ()), ""
        if unsuited := bench.unsuited[point.variant]:
            measurements = [unmeasured(bench.operation, point, f"not measured: {unsuited}")]
        elif len(tried) >= ATTEMPTS:
            measurements = [unmeasured(bench.operation, point, f"not measured, tried {len(tried)} times: {tried[-1]}")]
        else:
            measurements, reason = attempt(bench, point, journal)
        if reason:
            missing.append(f"{point.name}: {reason}")
        if journal and reason:
            progress.done(f"{point.name} not measured: {reason}")
        elif journal:
            journal.append(point, measurements)
            timed += sum(map(timed_seconds, measurements))
            progress.done(line(bench.operation, measurements))
    bench.close()
    if journal and not missing:
        journal.complete(output)
        progress.tell(
            f"done in {time.time() - began:.1f} s, of which {startup:.1f} s start-up and {timed:.1f} s in timed "
            f"calls and kernels; planned were {batch.seconds:.0f} s at most"
        )
    elif journal:
        journal.close()
    return missing


def attempt(bench: Bench, point: Point, journal: Journal | None) -> tuple[list[Measurement], str]:
    """Measure a point, and have all ranks know how it went; the journal, on rank 0, knows that it was begun.

    Returns
    -------
    list of Measurement
    str
        On every rank, why it could not be measured; empty if it was.

    Raises
    ------
    PointError
        On rank 0, if it failed on some ranks only.
    """
    comm, measurements, failure = bench.comm, [], None
    if journal:
        journal.begin(point)
    comm.Barrier()  # whatever the point does to its job, the journal has it
    try:
        measurements = bench.measure(point)
    except Exception as error:
        # an HpcmmError is for the user to mend; anything else may be the point's own fault
        failure = world.describe_error(error), not isinstance(error, HpcmmError)
    except SystemExit:
        if journal:  # Slurm wants the nodes back: no fault of the point
            journal.fail(point, "the job was ended from outside", counts=False)
        raise
    failures = world.exchange(comm, failure)
    failed = [rank for rank, each in enumerate(failures) if each]
    if not failed:
        return measurements, ""
    reason = "; ".join(dict.fromkeys(failures[rank][0] for rank in failed))
    if journal:
        journal.fail(point, reason, counts=any(failures[rank][1] for rank in failed))
    if len(failed) < comm.size:
        if journal:
            which = ", ".join(map(str, failed))
            raise PointError(f"{point.name}: {reason} (on rank {which}; the others had no error)")
        comm.Barrier()  # rank 0 ends the job
    bench.start_afresh()
    return [], reason


class Progress:
    """Tells on rank 0's output how far a batch is, and how long it will take by what it took so far."""

    def __init__(self, batch: Batch, predicted: Sequence[float]):
        self.batch, self.predicted = batch, predicted
        self.start = self.last = time.perf_counter()
        self.number = 0

    def tell(self, text: str) -> None:
        print(f"{self.batch.name}: {text}", flush=True)

    def done(self, text: str) -> None:
        """Tell of the next point."""
        self.number += 1
        now = time.perf_counter()
        took, self.last = now - self.last, now
        spent = now - self.start
        left = spent * sum(self.predicted[self.number :]) / sum(self.predicted[: self.number])
        total = len(self.batch.points)
        number = total - len(self.predicted) + self.number
        place = f"[{number:{len(str(total))}}/{total}] {self.batch.name}"
        print(f"{place} {text} ({took:.1f} s; {duration(left)} left)", flush=True)


def unmeasured(operation: Operation, point: Point, why: str) -> Measurement:
    """What is recorded of a point that no attempt could finish, or that the device cannot run: why."""
    variant = operation.variant(point.variant)
    return Measurement(
        point,
        variant.name,
        variant.baseline and point.algorithm == TEXTBOOK,
        Verdict(False, math.nan, math.nan, UNCHECKED, why),
        operation.flops(point.shape, point.parameters),
        operation.bytes(point.shape, point.dtype, point.parameters),
        algorithm=point.algorithm,
    )


def timed_seconds(measurement: Measurement) -> float:
    """Seconds of all repetitions on rank 0; a call that was the one repetition of its kernel too counts once."""
    own = [sample for sample in measurement.samples if sample.rank == 0]
    calls = [sample.seconds for sample in own if sample.call]
    alone = [sample.seconds["kernel"] for sample in own if not sample.call]
    if len(calls) == 1 and alone == [calls[0]["kernel"]]:
        alone = []
    return sum(seconds["total"] for seconds in calls) + sum(alone)


def line(operation: Operation, measurements: Sequence[Measurement]) -> str:
    """One line of progress about a point: what was found, in GFLOP/s or GB/s, and beside which baseline."""
    point = measurements[0].point
    verdict = measurements[0].verdict
    if not verdict.passed:
        return f"{point.name} {verdict.where if verdict.reference == UNCHECKED else f'FAIL: {verdict.where}'}"
    medians = []
    kernel = "kernel" in operation.algorithm(point.algorithm).measures
    for measurement in measurements:
        times: dict[int, float] = {}
        for sample in measurement.samples:
            if sample.call != kernel:
                seconds = sample.seconds["kernel" if kernel else "total"]
                times[sample.repetition] = max(times.get(sample.repetition, 0), seconds)
        medians.append(statistics.median(times.values()) if times else math.nan)
    work, unit = (measurements[0].flops, "GFLOP/s") if operation.metric == "flops" else (measurements[0].bytes, "GB/s")
    text = f"{point.name} PASS {work / medians[0] / 1e9:.4g} {unit}"
    if len(measurements) > 1:
        baseline = measurements[1]
        beside = f"{medians[1] / medians[0]:.3g} x" if baseline.verdict.passed else "FAILED:"
        spread = "" if point.algorithm == TEXTBOOK else f" {TEXTBOOK}"
        text += f", {beside} {baseline.contender}{spread}"
    return text + (f", schedule {measurements[0].schedule}" if measurements[0].schedule else "")
