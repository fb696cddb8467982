"""Measure a batch: place the inputs, verify, warm up, time."""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from hpcmm import provenance
from hpcmm.backends import open_backend
from hpcmm.interval import interval_rank
from hpcmm.model import Batch, Measurement, Measuring, Operation, Point, Sample, Variant, Verdict
from hpcmm.operations import OPERATIONS
from hpcmm.parallel import world
from hpcmm.parallel.scatter import Scatter
from hpcmm.store import Journal


def settled(seconds: Sequence[float], relative_interval: float) -> bool:
    """Whether the median of these times is known within ``relative_interval``, half-width over median."""
    rank = interval_rank(len(seconds))
    if rank == 0:
        return False
    ordered = sorted(seconds)
    return ordered[-rank] - ordered[rank - 1] <= 2 * relative_interval * statistics.median(ordered)


class Contender:
    """One variant at one point: what the ranks run, and what came of it."""

    def __init__(self, scatter: Scatter, variant: Variant, point: Point):
        self.scatter, self.variant, self.point = scatter, variant, point
        self.run = scatter.prepare(variant, point.parameters)
        self.verdict: Verdict | None = None
        self.samples: list[Sample] = []
        self.seconds: dict[bool, list[float]] = {True: [], False: []}  # slowest rank, by whole call or not
        self.spent = {True: 0.0, False: 0.0}
        self.first_call = 0.0

    def check(self, judge: Callable[[np.ndarray], Verdict] | None) -> None:
        """Do the whole call into poisoned outputs and have its result judged."""
        self.scatter.poison()
        begin = time.perf_counter()
        self.scatter.call(self.run)
        self.first_call = time.perf_counter() - begin
        self.verify(judge)

    def warm_up(self, measuring: Measuring) -> None:
        """Run the kernel untimed, not at all if it takes longer than all repetitions may."""
        begin = time.perf_counter() - self.first_call
        for _ in range(measuring.warmups):
            if self.scatter.comm.bcast(time.perf_counter() - begin, root=0) > measuring.max_seconds:
                break
            self.scatter.kernel(self.run, measuring.cache == "cold")

    def verify(self, judge: Callable[[np.ndarray], Verdict] | None, when: str = "") -> None:
        """Let rank 0 judge the result that it holds; all ranks learn the verdict."""
        comm = self.scatter.comm
        verdict = None
        if judge is not None:
            (result,) = self.scatter.result.values()
            verdict = judge(result)
            if when and not verdict.passed:
                verdict = dataclasses.replace(verdict, where=f"{verdict.where} ({when})")
        self.verdict = comm.bcast(verdict, root=0)

    def repeat(self, whole_call: bool, cold: bool) -> None:
        """Do one timed repetition and keep every rank's sample."""
        scatter = self.scatter
        begin = time.perf_counter()
        phases = scatter.call(self.run) if whole_call else {"kernel": scatter.kernel(self.run, cold)}
        key = "total" if whole_call else "kernel"
        mine = (phases, scatter.backend.state(), time.perf_counter() - begin)
        everyone = scatter.comm.allgather(mine)
        repetition = len(self.seconds[whole_call])
        if scatter.comm.rank == 0:
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
        point, scatter = self.point, self.scatter
        return Measurement(
            point,
            self.variant.name,
            self.variant.baseline,
            self.verdict,
            operation.flops(point.shape, point.parameters),
            operation.bytes(point.shape, point.dtype, point.parameters),
            tuple(self.samples) if self.verdict.passed else (),
            scatter.backend.resources(
                operation, self.variant, scatter.local_shape, scatter.dtype, point.parameters, scatter.arrays
            ),
        )


class Problem:
    """The inputs of points that differ in nothing but the kernel, placed on all ranks, with their judge."""

    def __init__(self, comm, backend, operation: Operation, point: Point, seed: int):
        inputs = self.judge = None
        if comm.rank == 0:
            inputs = draw_inputs(backend, operation, point, seed)
            self.judge = operation.reference(inputs, point.parameters)
        self.scatter = Scatter(comm, backend, operation, point.shape, point.dtype, inputs, is_pinned(point))

    @staticmethod
    def key(operation: Operation, point: Point) -> tuple:
        """What points that can share a problem have in common."""
        return point.shape, point.dtype, is_pinned(point), *(point.parameters[name] for name in operation.parameters)


def is_pinned(point: Point) -> bool:
    """Whether the point's host memory is page-locked, as it is unless its sweep says otherwise."""
    return bool(point.parameters.get("pinned", True))


def draw_inputs(backend, operation: Operation, point: Point, seed: int) -> dict[str, np.ndarray]:
    """Draw the random inputs of a point into the backend's host memory; the same for every variant."""
    rng = np.random.default_rng([seed, *point.shape])
    drawn = operation.draw(rng, point.shape, point.dtype, point.parameters)
    inputs = {}
    for name in list(drawn):
        array = drawn.pop(name)
        inputs[name] = backend.host_empty(array.shape, point.dtype, is_pinned(point))
        inputs[name][...] = array
    return inputs


def measure_point(problem: Problem, operation: Operation, point: Point, measuring: Measuring) -> list[Measurement]:
    """Measure one point beside the baseline of its device, which takes turns with it.

    Returns
    -------
    list of Measurement
        The variant's first, then the baseline's (none if the variant is the baseline); samples are
        on rank 0 only.
    """
    scatter, cold = problem.scatter, measuring.cache == "cold"
    variant = operation.variant(point.variant)
    variants = dict.fromkeys((variant, operation.baseline(variant.device)))
    contenders = [Contender(scatter, each, point) for each in variants]

    for contender in contenders:
        contender.check(problem.judge)
    right = [contender for contender in contenders if contender.verdict.passed]
    if not contenders[0].verdict.passed:
        right = []  # a wrong variant needs no yardstick
    scatter.keep()
    for contender in right:
        contender.warm_up(measuring)
    for whole_call in (True, False):
        waiting = list(right)
        while waiting:
            for contender in list(waiting):
                contender.repeat(whole_call, cold)
                if contender.done(whole_call, measuring):
                    waiting.remove(contender)
                    if not whole_call:
                        scatter.fetch()
                        contender.verify(problem.judge, when="after timing")
            waiting.reverse()  # the order turns round each time, so that a drift of the clock favours nobody
    return [contender.measurement(operation) for contender in contenders]


def describe_ranks(comm, backend) -> dict[str, Any]:
    """Gather provenance of all ranks on rank 0."""
    mine = backend.describe()
    everyone = comm.gather((provenance.collect(), mine), root=0)
    if everyone is None:
        return {}
    first, described = everyone[0]
    gpus = [each["gpu"] for _, each in everyone if "gpu" in each]
    hosts = sorted({each["host"] for each, _ in everyone})
    first["cpu"] |= described.get("cpu", {})
    return first | {"hosts": hosts, "mpi": world.describe(comm), "gpus": gpus}


def measure_batch(
    comm, batch: Batch, measuring: Measuring, share_gpu: bool, config: Mapping[str, Any], output: Path
) -> None:
    """Measure all points of a batch into ``output``, going on from its journal if there is one.

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
    """
    began = psutil.Process().create_time()
    operation = OPERATIONS[batch.operation]
    backend = open_backend(batch.device, world.threads_per_rank(comm), world.local_rank(comm), share_gpu)
    described = describe_ranks(comm, backend)
    journal = None
    if comm.rank == 0:
        described |= {"config": dict(config), "measuring": dataclasses.asdict(measuring)}
        journal = Journal(output.with_suffix(".journal"), batch, described)
    finished = comm.bcast(set(journal.finished) if journal else None, root=0)
    startup = time.time() - began
    timed, problem, placed = 0.0, None, None
    for number, point in enumerate(batch.points, 1):
        if point.key in finished:
            continue
        begin = time.perf_counter()
        if placed != Problem.key(operation, point):
            problem = None  # frees its memory before the next one's is asked for
            backend.release()
            problem, placed = Problem(comm, backend, operation, point, measuring.seed), Problem.key(operation, point)
        measurements = measure_point(problem, operation, point, measuring)
        if journal:
            journal.append(point, measurements)
            on_root = [s.seconds for m in measurements for s in m.samples if s.rank == 0]
            timed += sum(seconds.get("total", seconds["kernel"]) for seconds in on_root)
            progress = f"[{number:{len(str(len(batch.points)))}}/{len(batch.points)}] {batch.name}"
            print(progress, line(operation, measurements), f"({time.perf_counter() - begin:.1f} s)", flush=True)
    if journal:
        if finished:
            print(f"{batch.name}: {len(finished)} points were measured before and are kept", flush=True)
        journal.complete(output)
        print(
            f"{batch.name}: done in {time.time() - began:.1f} s, of which {startup:.1f} s start-up "
            f"and {timed:.1f} s in timed calls and kernels",
            flush=True,
        )


def line(operation: Operation, measurements: Sequence[Measurement]) -> str:
    """One line of progress about a point: what was found, in GFLOP/s or GB/s, and beside which baseline."""
    point = measurements[0].point
    tile = f" tile {point.parameters['tile']:.0f}" if "tile" in point.parameters else ""
    memory = {1.0: " pinned", 0.0: " pageable"}.get(point.parameters.get("pinned"), "")
    text = f"{'x'.join(map(str, point.shape))} {point.dtype}{tile}{memory}"
    verdict = measurements[0].verdict
    if not verdict.passed:
        return f"{text} FAIL at {verdict.where}"
    medians = []
    for measurement in measurements:
        times: dict[int, float] = {}
        for sample in measurement.samples:
            if not sample.call:
                times[sample.repetition] = max(times.get(sample.repetition, 0), sample.seconds["kernel"])
        medians.append(statistics.median(times.values()) if times else math.nan)
    work, unit = (measurements[0].flops, "GFLOP/s") if operation.metric == "flops" else (measurements[0].bytes, "GB/s")
    text += f" PASS {work / medians[0] / 1e9:.4g} {unit}"
    if len(measurements) > 1:
        baseline = measurements[1]
        beside = f"{medians[1] / medians[0]:.3g} x" if baseline.verdict.passed else "FAILED:"
        text += f", {beside} {baseline.contender}"
    return text
