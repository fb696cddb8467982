"""Measure the batches of a job, point by point. A point that fails does not end the job."""

import dataclasses
import functools
import math
import os
import socket
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hpcmm.backends import open_backend, visible
from hpcmm.bench import pace, provenance
from hpcmm.bench.energy import why_unreadable
from hpcmm.bench.journal import ENDLESS, Events, Opening
from hpcmm.bench.measure import Problem, measure_point
from hpcmm.bench.status import Elsewhere
from hpcmm.experiment.durations import STARTUP_SECONDS, expected_share
from hpcmm.experiment.plan import Plan
from hpcmm.model import TEXTBOOK, UNCHECKED, HpcmmError, Operation, Verdict
from hpcmm.model.devices import DEVICES
from hpcmm.model.measurement import Batch, Measurement, Measuring, Point
from hpcmm.operations import OPERATIONS, task_of
from hpcmm.parallel import algorithm_of, algorithms_of, world
from hpcmm.parallel.preflight import preflight
from hpcmm.parallel.transports.choice import Connections

NOTABLE_STEAL = 0.01  # share of CPU time from which the log reports it
TIMED = 4  # times of ``max_seconds`` that a point is timed: two contenders, end to end and kernel alone
ATTEMPTS = 2  # maximum attempts to measure a point that ends its job or raises


class PointError(HpcmmError):
    """A point that failed on some ranks only; the ranks are then in different states."""


def describe_ranks(comm, backend, found: dict[str, Any] | None) -> dict[str, Any]:
    everyone = comm.gather((socket.gethostname(), world.node(), backend.describe()), root=0)
    if everyone is None:
        return {}
    found["cpu"] |= everyone[0][2].get("cpu", {})
    gpus = [described["gpu"] for *_, described in everyone if "gpu" in described]
    ranks = [{"node": node, "device": described.get("gpu", {}).get("uuid", "")} for _, node, described in everyone]
    for rank, each in enumerate(ranks):
        print(f"rank {rank} on {each['node']}: {each['device'] or 'CPU'}", flush=True)
    hosts = sorted({host for host, *_ in everyone})
    return found | {"hosts": hosts, "ranks": ranks, "mpi": world.describe(comm), "gpus": gpus}


class Process:
    """A rank of a job, its device and transports for all batches, and the kernels to compile. Collective."""

    def __init__(self, comm, device: str, share_gpu: bool, points: Sequence[Point] = (), transport: str = "auto"):
        self.uncompiled = points
        # Called on every rank with the name of the next step, the upper bound of its seconds, and what to call when
        # these are over, as ``Watchdog.expect``
        self.expect: Callable[..., None] = lambda step, seconds, overdue=None: None
        # Time at which the process began its next batch; at first, the start of the process
        self.free_since = time.perf_counter() - process_age()
        self.comm, self.threads = comm, world.threads_per_rank(comm)
        local_rank = world.local_rank(comm, visible(device))
        with ThreadPoolExecutor(1) as pool:  # git and the installed packages take as long as a GPU to open
            collecting = pool.submit(provenance.collect) if comm.rank == 0 else None
            self.backend = open_backend(device, self.threads, local_rank, share_gpu)
            # On rank 0, the provenance of all ranks
            self.described = describe_ranks(comm, self.backend, collecting.result() if collecting else None)
        self.connections = Connections(comm, self.backend, transport)  # the transports of all batches

    def compile_ahead(self, points: Sequence[Point]) -> None:
        """Compile the kernels of these points, and once those of all batches that this device can run."""
        others = [
            point
            for point in self.uncompiled
            if not OPERATIONS[point.operation].why_not_run_on(self.backend, task_of(point).variant, point.dtype)
        ]
        self.uncompiled = ()
        self.backend.compile_ahead(map(task_of, [*points, *others]), self.threads)

    def close(self) -> None:
        self.connections.close()


def process_of(comm, planned: Plan, batches: Sequence[Batch], expect: Callable[..., None]) -> Process:
    points = [point for batch in batches for point in batch.points]
    process = Process(comm, batches[0].device, planned.share_gpu, points, planned.transport)
    process.expect = expect
    return process


def measure_batch(
    process: Process,
    batch: Batch,
    measuring: Measuring,
    opened: Opening,
    elsewhere: Elsewhere | None = None,
    results: Path | None = None,
) -> list[str]:
    """Measure one visit of each point of a batch, and continue from its journal if it has entries.

    A point in which an earlier job ended comes last. After ``ATTEMPTS`` failed attempts it is recorded as not measured.

    On rank 0, ``opened(batch, provenance)`` returns the journal, ``elsewhere`` has the progress of other batches, and
    ``results`` is the folder that records the time of the visit, for expected times. Return on every rank the points
    that could not be measured, with the reason.
    """
    process.expect(f"{batch.name}: start-up", STARTUP_SECONDS)
    visit = BatchVisit(process, batch, measuring, opened, elsewhere or Elsewhere())
    visit.compile()
    failed = [f"{planned[0].name}: {reason}" for planned in visit.waiting if (reason := visit.measure(*planned))]
    visit.end(results, complete=not failed)
    return failed


class BatchVisit:
    """One visit of the points of a batch that need it, and the problem of the current point. Collective."""

    def __init__(self, process: Process, batch: Batch, measuring: Measuring, opened: Opening, elsewhere: Elsewhere):
        self.process, self.batch, self.measuring, self.connections = process, batch, measuring, process.connections
        self.comm, self.backend, self.operation = process.comm, process.backend, OPERATIONS[batch.operation]
        self.began = process.free_since
        self.described = process.described | provenance.moment()
        self.problem: Problem | None = None
        self.step = ""  # of the measurement of a point; empty outside
        transport, exchanges, unopened = self.open_transports()
        self.memory = preflight(self.comm, self.backend, batch.points, algorithms_of(self.operation))
        refused = {}
        for name, dtype in dict.fromkeys((point.variant, point.dtype) for point in batch.points):
            reason = self.operation.why_not_run_on(self.backend, self.operation.variant(name), dtype)
            refused[name, dtype] = next(filter(None, self.comm.allgather(reason)), "")
        self.why_not = {  # why these ranks cannot measure a point; empty if they can
            point.key: refused[point.variant, point.dtype] or unopened[point.algorithm] or self.memory[point.key][0]
            for point in batch.points
        }
        # journal: on rank 0
        self.journal, why_no_energy = None, why_unreadable(self.backend) if measuring.energy else ""
        if self.comm.rank == 0:
            self.described |= {"measuring": dataclasses.asdict(measuring)}
            self.described |= {"exchanges": exchanges} if exchanges else {}
            self.described |= {"energy": why_no_energy} if why_no_energy else {}
            self.journal = opened(batch, self.described)
        shared = self.comm.bcast(journal_state(self.journal, measuring), root=0)
        measured, self.attempts, visits, self.verdicts = shared
        every = zip(batch.points, batch.fingerprints, batch.predicted, strict=True)
        every = [(visits.get(planned[1], 0), planned) for planned in every if planned[1] not in measured]
        self.visit = min((number for number, _ in every), default=0)  # counted from 0
        # The points to measure, in this order, with their fingerprints and expected seconds
        self.waiting = [planned for number, planned in every if number == self.visit]
        if measuring.job_of(self.visit) % 2:
            self.waiting.reverse()  # other neighbours, and another time since the start
        self.waiting.sort(key=lambda planned: len(self.attempts.get(planned[1], ())))  # else in the plan's order
        self.progress = Progress(batch, [each[2] for each in self.waiting], elsewhere, self.visit, measuring.visits)
        self.startup = self.timed = 0.0
        self.late_runs = 0
        for text in (
            transport and f"transport: {transport}",
            why_no_energy and f"no energy: {why_no_energy}",
            measured and f"{len(measured)} points were measured before and are kept",
            self.visit and f"visit {self.visit + 1} of {measuring.visits}, {len(self.waiting)} points",
        ):
            if text:
                self.report(text)

    def open_transports(self) -> tuple[str, Any, dict[str, str]]:
        """Open the transports, before the free memory is read, as they take device memory.

        Return the name of the config's transport with the reasons why those tried before it do not work, and the times
        of its exchanges, empty if no algorithm of the batch uses it; and by algorithm, why it has no transport.
        """
        algorithms = {point.algorithm: algorithm_of(self.operation, point.algorithm) for point in self.batch.points}
        transport, exchanges = "", None
        choosing = [record for record in algorithms.values() if record.transport is not None and not record.fixed]
        if choosing:
            chosen, others = self.connections.of(choosing[0])
            exchanges = self.connections.times_of(chosen)
            transport = chosen.name + (f" ({others})" if others else "")
        fixed = {name: algorithm.transport for name, algorithm in algorithms.items() if algorithm.fixed}
        unopened = dict.fromkeys(algorithms, "") | {name: self.connections.missing(of) for name, of in fixed.items()}
        return transport, exchanges, unopened

    def report(self, text: str) -> None:
        if self.journal:
            print(f"{self.batch.name}: {text}", flush=True)

    def begin(self, step: str, of: str = "") -> None:
        self.step = f"{step} of {of}" if of else step

    def clear(self, before_next: bool = False) -> None:
        self.problem = None
        self.backend.release(before_next)  # raises if the device can no longer be used

    def compile(self) -> None:
        able = [point for point, *_ in self.waiting if not self.why_not[point.key]]
        seconds = STARTUP_SECONDS + len(self.process.uncompiled) * DEVICES[self.batch.device].prepare_seconds
        self.process.expect(f"{self.batch.name}: compiling", seconds)
        self.process.compile_ahead(able)
        self.startup = time.perf_counter() - self.began

    def measure(self, point: Point, fingerprint: str, seconds: float) -> str:
        """Measure a point and record it; return the reason why it could not be measured, empty if it was."""
        overdue = functools.partial(self.record_overdue, point)
        self.process.expect(f"{self.batch.name}: {point.name}", seconds, overdue)
        tried, reason = self.attempts.get(fingerprint, ()), ""
        if why := self.why_not[point.key]:
            measurements = [unmeasured(point, f"not measured: {why}")]
        elif len(tried) >= ATTEMPTS:
            measurements = [unmeasured(point, f"not measured, tried {len(tried)} times: {tried[-1]}")]
        else:
            measurements, reason = self.attempt(point, fingerprint)
        if self.journal and reason:
            self.progress.done(f"{point.name} not measured: {reason}")
        elif self.journal:
            left = self.measuring.visits - self.visit - 1
            self.journal.append(point, measurements, left if worth_another(measurements[0], self.measuring) else 0)
            self.timed += sum(map(timed_seconds, measurements))
            self.late_runs += sum(measurement.late_runs for measurement in measurements)
            self.progress.done(line(self.operation, measurements))
        return reason

    def record_overdue(self, point: Point, seconds: float) -> str:
        """Record in the journal that a point did not end in its time; return the step that it is in."""
        if self.journal and self.step:
            self.journal.fail(point, f"{self.step} {ENDLESS} {seconds:.0f} s", counts=True)
        return self.step

    def attempt(self, point: Point, fingerprint: str) -> tuple[list[Measurement], str]:
        """Measure one visit of a point; return on every rank also why it failed. Some ranks only: PointError."""
        comm, measurements, failure = self.comm, [], None
        if self.journal:
            self.journal.begin(point)
        comm.Barrier()  # the journal has the point before it can end the job
        self.begin("preparation")
        try:
            how = self.measuring, self.memory[point.key][1], self.visit, self.verdicts.get(fingerprint, {})
            measurements = measure_point(self.problem_of(point), point, *how)
        except Exception as error:
            # the user can fix an HpcmmError; other errors may come from the point itself
            failure = world.describe_error(error), not isinstance(error, HpcmmError)
        except SystemExit:
            if self.journal:  # Slurm ended the job; the point is not the cause
                self.journal.fail(point, "the job was ended from outside", counts=False)
            raise
        finally:
            self.begin("")
        failures = world.gather_failures(comm, failure)
        failed = [rank for rank, each in enumerate(failures) if each]
        if not failed:
            return measurements, ""
        reason = "; ".join(dict.fromkeys(failures[rank][0] for rank in failed))
        if self.journal:
            self.journal.fail(point, reason, counts=any(failures[rank][1] for rank in failed))
        if len(failed) < comm.size:
            if self.journal:
                which = ", ".join(map(str, failed))
                raise PointError(f"{point.name}: {reason} (on rank {which}; the others had no error)")
            comm.Barrier()  # rank 0 ends the job
        # New connections, so that pending messages of the point are not received; first: the device may wait for one
        self.connections.start_afresh()
        self.clear()
        return [], reason

    def problem_of(self, point: Point) -> Problem:
        if self.problem is None or self.placed != Problem.key(point):
            if self.problem:
                self.problem.close()
            self.clear(before_next=True)
            seconds = TIMED * self.measuring.max_seconds
            place = self.connections.ranks, self.backend, point, self.measuring.seed, self.connections
            self.problem, self.placed = Problem(*place, seconds), Problem.key(point)
            self.problem.begin = self.begin
        return self.problem

    def end(self, results: Path | None, complete: bool) -> None:
        if self.problem:
            self.problem.close()
        self.clear()
        if self.journal:
            whole = time.perf_counter() - self.began
            if results and self.waiting:
                bound = sum(each[2] for each in self.waiting) / self.measuring.visits  # predictions are of all visits
                parts = self.startup, self.timed, self.visit
                of_batch = self.batch.name, self.batch.operation, self.batch.device
                pace.record(results, pace.Record(*of_batch, bound, whole - self.startup, *parts))
            self.report_disturbances()
            if complete and self.journal.measured >= set(self.batch.fingerprints):
                self.journal.complete()
            else:
                self.journal.close()
            if complete:
                of = f" for {self.measuring.visits} visits" if self.measuring.visits > 1 else ""
                self.report(
                    f"done in {whole:.1f} s: {self.startup:.1f} s start-up, {self.timed:.1f} s timed calls and "
                    f"kernels; planned: at most {self.batch.seconds:.0f} s{of}"
                )
        self.process.free_since = time.perf_counter()

    def report_disturbances(self) -> None:
        before, counters = self.described.get("counters", {}), provenance.read(provenance.COUNTERS)
        self.journal.end(counters)
        stolen = provenance.stolen(before, counters)
        if stolen >= NOTABLE_STEAL:
            self.report(f"the hypervisor gave {stolen:.0%} of the CPU time of this machine to other guests")
        stops, periods = provenance.throttled(before, counters)
        if stops:
            self.report(f"the CPU quota stopped processes in {stops} of {periods} periods: times are too long")
        if self.late_runs:
            self.report(f"{self.late_runs} kernel runs were repeated because the host queued them too late")


def journal_state(journal: Events | None, measuring: Measuring) -> tuple | None:
    """Return what every rank needs of rank 0's journal: the points to leave out, attempts, visits, verdicts."""
    if journal is None:
        return None
    here = journal.runs[-1].get("ranks")
    verdicts = {
        fingerprint: {
            (each.contender, each.algorithm): each.verdict
            if journal.runs[run].get("ranks") == here
            else dataclasses.replace(each.verdict, bits=())  # other devices may compute other bits
            for run, each in journal.finished[fingerprint]
            if worth_another(each, measuring)
        }
        for fingerprint, (_, left) in journal.visits.items()
        if left
    }
    visits = {fingerprint: count for fingerprint, (count, _) in journal.visits.items()}
    return journal.measured, journal.attempts, visits, verdicts


def worth_another(measurement: Measurement, measuring: Measuring) -> bool:
    """Whether a measurement gets more visits: its result is correct, and no repetition took the whole time limit."""
    seconds = [max(sample.seconds.values()) for sample in measurement.samples]
    return measurement.verdict.passed and max(seconds, default=math.inf) <= measuring.max_seconds


def process_age() -> float:
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    started = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # field 22, starttime, counted from the boot
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started


class Progress:
    """Print the progress, of the whole experiment if it is known; a visit is its share of a point."""

    def __init__(self, batch: Batch, predicted: Sequence[float], elsewhere: Elsewhere, visit: int = 0, visits: int = 1):
        self.batch, self.predicted, self.elsewhere = batch, predicted, elsewhere
        self.visit, self.visits = visit, visits
        self.start = self.last = time.perf_counter()
        self.number = 0

    def done(self, text: str) -> None:
        self.number += 1
        now = time.perf_counter()
        took, self.last = now - self.last, now
        past, whole = sum(self.predicted[: self.number]), sum(self.predicted)
        learned = self.elsewhere.pace
        expected = learned.share(self.batch) if learned.records else 0.0
        share = pace.blended(now - self.start, past, whole, expected / self.visits)
        after = self.visits - self.visit - 1
        later = whole * (1.0 if self.visit else learned.later(self.batch))
        own = share * (whole - past + after * later) + after * learned.startup(self.batch)
        # until a first visit ends, the speed of this one corrects what is guessed of the others, as in ``Pace.share``
        slower = 1.0 if learned.records else math.sqrt(share * self.visits / expected_share(self.batch.device))
        guessed = 0.0 if self.visit else own * (1 - past / whole)
        known = own - guessed + self.elsewhere.seconds - self.elsewhere.guessed
        left = pace.around(known, guessed + slower * self.elsewhere.guessed, learned.visited(self.batch.device))
        total, waiting = len(self.batch.points), len(self.predicted)
        visited = total - waiting + (self.visit * waiting + self.number) / self.visits + self.elsewhere.done
        number = math.floor(visited + 1e-6)
        total += self.elsewhere.total
        place = f"[{number:{len(str(total))}}/{total}] {self.batch.name}"
        visit = f"visit {self.visit + 1} of {self.visits}, " if self.visits > 1 else ""
        print(f"{place} {text} ({visit}{took:.1f} s; {left} left)", flush=True)


def unmeasured(point: Point, why: str) -> Measurement:
    task = task_of(point)
    baseline = task.variant.baseline and point.algorithm == TEXTBOOK
    verdict = Verdict(False, math.nan, math.nan, UNCHECKED, why)
    return Measurement(point, point.variant, baseline, verdict, task.flops, task.bytes, algorithm=point.algorithm)


def timed_seconds(measurement: Measurement) -> float:
    """Return the seconds of all repetitions on rank 0; a call that is also the only kernel repetition counts once."""
    own = [sample for sample in measurement.samples if sample.rank == 0]
    calls = [sample.seconds for sample in own if sample.call]
    alone = [sample.seconds["kernel"] for sample in own if not sample.call]
    if len(calls) == 1 and alone == [calls[0]["kernel"]]:
        alone = []
    return sum(seconds["total"] for seconds in calls) + sum(alone)


def line(operation: Operation, measurements: Sequence[Measurement]) -> str:
    """Return the progress of a point in one line: its rate in 10⁹ per second, and its ratio to the baseline."""
    point = measurements[0].point
    verdict = measurements[0].verdict
    if not verdict.passed:
        return f"{point.name} {verdict.where if verdict.reference == UNCHECKED else f'FAIL: {verdict.where}'}"
    medians = []
    kernel = "kernel" in algorithm_of(operation, point.algorithm).measures
    for measurement in measurements:
        times: dict[int, float] = {}
        for sample in measurement.samples:
            if sample.call != kernel:
                seconds = sample.seconds["kernel" if kernel else "total"]
                times[sample.repetition] = max(times.get(sample.repetition, 0), seconds)
        medians.append(statistics.median(times.values()) if times else math.nan)
    work = measurements[0].flops if operation.metric == "flops" else measurements[0].bytes
    text = f"{point.name} PASS {work / medians[0] / 1e9:.4g} G{operation.rate_unit(point.dtype)}"
    if len(measurements) > 1:
        baseline = measurements[1]
        beside = f"{medians[1] / medians[0]:.3g} x" if baseline.verdict.passed else "FAILED:"
        text += f", {beside} {baseline.contender}" + ("" if point.algorithm == TEXTBOOK else f" {TEXTBOOK}")
    chosen = measurements[0].visits[-1].schedule if measurements[0].visits else ""
    return text + (f", chosen: {chosen}" if chosen else "")
