"""One variant at one point: its runs, their verdicts, and the samples of its repetitions."""

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from hpcmm.bench import provenance
from hpcmm.bench.interval import is_look, settled
from hpcmm.bench.same_bits import Bits, Difference, SameBits, broken, columns_of, why_uncompared
from hpcmm.model import ONE_CALL, DeviceError, Task, Variant, Verdict, untimed
from hpcmm.model.launch import Run
from hpcmm.model.measurement import Measurement, Measuring, Point, Sample, Visit
from hpcmm.operations import tables, task_of
from hpcmm.operations.tables import TRIAL
from hpcmm.parallel import algorithm_of
from hpcmm.parallel.distribution import Distribution

KEPT = ("clock", "errors", "differences")  # of what a pass found for a baseline, for further points of its problem


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
        self.busy_seconds = self.steal_seconds = math.nan
        self.found: dict[str, Any] = {}  # by passes of their own: fields of ``Measurement``
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
        verdict, complaint = None, self.run.complaint()  # first: the judge computes, too
        if judge is not None:
            (result,) = self.distribution.result.values()
            verdict = judge(result)
        every = comm.allgather((verdict, complaint))
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

    def verify_again(self, judge: Callable[[Task], Callable[[np.ndarray], Verdict] | None], fetched: bool) -> None:
        if not self.has_bits(self.checksum):
            if not fetched:
                self.distribution.fetch()
            self.verify(judge(self.task), when="after timing")

    def has_bits(self, checksum: int | None) -> bool:
        """Whether the last result is bitwise equal to the verified one with this checksum on this rank. Collective.

        False if the kernel wrote outside its arrays, or without a checksum: for algorithms other than the textbook's,
        the arrays on a rank may not be the whole result.
        """
        same = checksum is not None and self.distribution.checksum() == checksum and not self.run.complaint()
        return bool(self.distribution.comm.allreduce(int(same)) == self.distribution.comm.size)

    def take(self, verdict: Verdict, checksum: int | None, found: Mapping[str, Any]) -> None:
        """Reuse the earlier results of this baseline if its last result has the same bits. Collective."""
        if self.has_bits(checksum):
            self.verdict, self.checksum = verdict, checksum
            self.found = {name: value for name, value in found.items() if name in KEPT}

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

    def count_events(self) -> None:
        distribution, found = self.distribution, {}

        def once() -> None:
            found.update(distribution.backend.counted(self.run))

        with suppress(DeviceError):
            distribution.kernel(dataclasses.replace(self.run, once=once), cold=distribution.backend.cold)
        self.found["events"] = found

    @untimed
    def measure_differences(self, same_bits: SameBits) -> None:
        """Measure what the bits of the result depend on; fail if the record promises that they do not. Collective."""
        found: Mapping[str, Difference] = {}
        with self.in_a_pass("comparison of bits"):
            found = self.distribution.comm.bcast(same_bits.differences(self.task, self.algorithm), root=0)
        self.found["differences"] = columns_of(found)
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
        distribution, found = self.distribution, self.found
        return Measurement(
            *(self.point, self.variant.name, self.baseline, self.verdict, self.task.flops, self.task.bytes),
            samples=tuple(self.samples) if self.verdict.passed else (),
            resources=distribution.resources(self.task),
            algorithm=self.algorithm,
            transport=distribution.transport_name,
            visits=(self.visited(),),
            late_runs=self.late_runs,
            pick=distribution.pick(self.task),
            **found | ({} if self.verdict.passed else {"energy": {}}),
        )
