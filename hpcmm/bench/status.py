"""The progress of a run, from its plan, journals and files while it runs."""

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import psutil

from hpcmm.bench.done import PAGE, is_done
from hpcmm.bench.journal import CUT_OFF, Recorded, glance, is_complete, journal_of, on_disk
from hpcmm.bench.pace import Pace, Record, learned
from hpcmm.experiment import plan
from hpcmm.experiment.durations import STARTUP_SECONDS, estimate, rounded_duration
from hpcmm.model.measurement import Batch, Job
from hpcmm.system.text import plural

MOST_LINES = 40  # in longer plans, finished and waiting batches are only counted


@dataclass(frozen=True)
class BatchState:
    """The progress of one batch.

    ``done`` points are finished, ``unmeasured`` of them without a result, and the others take at most ``seconds``. In
    a batch that waits these include its share of the starts of its job; ``left`` is this batch, with no time for its
    finished points. ``visited`` counts each point by the share of its visits that it has. ``took`` is the elapsed time
    of the visit that runs, None if unknown. ``at`` is the name of the last point that was begun. ``silent`` is the time
    since the last write of a job that ended early, None for others. A ``paused`` batch waits for its next visit, while
    the job visits its other batches.
    """

    batch: Batch
    done: int
    begun: bool
    seconds: float
    visited: float
    took: Record | None = None
    at: str = ""
    failed: tuple[str, ...] = ()
    silent: float | None = None
    paused: bool = False
    left: Batch | None = None
    unmeasured: int = 0

    @property
    def complete(self) -> bool:
        return not self.begun and self.left is None

    @property
    def running(self) -> bool:
        return self.begun and self.silent is None and not self.paused

    def expected(self, pace: Pace) -> float:
        if not self.begun:
            return pace.seconds(self.left) if self.left else 0.0
        share = min(1.0, self.took.seconds / self.took.predicted) if self.took else pace.share(self.batch)
        startup = pace.startup(self.batch) if self.silent is not None else 0.0
        return min(self.seconds, startup + share * self.seconds)

    def state(self, pace: Pace) -> str:
        if self.complete:
            return "done"
        left = estimate(self.expected(pace), self.seconds)
        if not self.begun:
            return f"waiting, {left}"
        if self.paused:
            return f"waiting for its next visit, {left} left"
        if self.silent is not None:
            place = f" at {self.at}" if self.at else ""
            return f"stopped {rounded_duration(max(0, self.silent))} ago{place}; start the run again"
        return f"measuring {self.at}, {left} left" if self.at else "starting"


@dataclass(frozen=True)
class Elsewhere:
    """The other batches: points visited, points in all, and seconds left; and the pace of all batches.

    ``guessed`` are the seconds of batches of which no visit has ended.
    """

    done: float = 0
    total: int = 0
    seconds: float = 0.0
    guessed: float = 0.0
    pace: Pace = field(default_factory=Pace)


def look_at_all(
    results: Path, planned: plan.Plan, known: Mapping[str, BatchState] | None = None
) -> tuple[list[BatchState], Pace]:
    """Return the progress of each batch, read again unless it is ``known`` by name, and the pace."""
    known = known or {}
    states = {batch.name: known.get(batch.name) or look(results, batch) for batch in planned.to_measure}
    for job in planned.jobs:
        if waiting := tuple(left for batch in job.batches if (left := states[batch.name].left)):
            for batch, bound in zip(waiting, Job(waiting).bounds, strict=True):
                states[batch.name] = replace(states[batch.name], seconds=bound)
    pace = Pace([*learned(results), *(state.took for state in states.values() if state.took)])
    return list(states.values()), pace


def text(results: Path) -> str:
    """Return the progress of a run, one line per batch, from the folder with its plan, ``raw/`` and ``report.html``."""
    planned = plan.read(results / "plan.json")
    states, pace = look_at_all(results, planned)
    complete = sum(state.complete for state in states)
    lines = [f"{results}: {progress(states, pace)}"]
    width = max(len(state.batch.name) for state in states)
    digits = max(len(str(len(state.batch.points))) for state in states)
    shown = states if len(states) <= MOST_LINES else [state for state in states if state.begun]
    for state in shown:
        place = f"{state.done:{digits}}/{len(state.batch.points):<{digits}}"
        lines.append(f"{state.batch.name:{width}}  {place}  {state.state(pace)}")
        lines += [f"    not measured: {each}" for each in state.failed]
    if len(shown) < len(states):
        lines.append(f"and {complete} done, {len(states) - len(shown) - complete} waiting")
    if planned.unmeasured:
        variants = plural(len(planned.rows_unmeasured()), "variant")
        lines.append(f"not measured: {variants} of sweeps; hpcmm plan shows the reasons")
    if complete == len(states):
        page = results / PAGE
        current = is_done(planned, results)
        lines.append(f"report: {page}" if current else f"report: {page} does not show these results; run again")
    return "\n".join(lines)


def progress(states: Sequence[BatchState], pace: Pace) -> str:
    total = sum(len(state.batch.points) for state in states)
    done, unmeasured = sum(state.done for state in states), sum(state.unmeasured for state in states)
    rest = f" ({unmeasured} not measured)" * bool(unmeasured) + f", {total - done} to measure" * (done < total)
    complete = sum(state.complete for state in states)
    line = f"{done - unmeasured} of {total} points measured{rest}, {complete} of {len(states)} batches done"
    bound = sum(state.seconds for state in states)
    if not bound:
        return line
    left = estimate(sum(state.expected(pace) for state in states), bound)
    if any(state.running for state in states) or not any(state.silent is not None for state in states):
        return f"{line}, {left} left, one job after another"
    return f"{line}, no job is running; the rest takes {left}, one job after another"


def ahead(results: Path, planned: plan.Plan) -> str:
    states, pace = look_at_all(results, planned)
    waiting = {state.batch.name: state for state in states if not state.complete}
    jobs = sum(any(batch.name in waiting for batch in job.batches) for job in planned.jobs)
    points = sum(len(state.batch.points) - state.done for state in waiting.values())
    done = sum(state.done for state in states)
    kept = f"{done} of {done + points} points are measured; " if done else ""
    if not points:
        return f"hpcmm: nothing to measure: {done} of {done} points are current"
    left = estimate(
        sum(state.expected(pace) for state in waiting.values()), sum(state.seconds for state in waiting.values())
    )
    jobs_left, order = ("1 job", "") if jobs == 1 else (f"{jobs} jobs", ", one job after another")
    todo = "1 point" if points == 1 else f"{points} points"
    return f"hpcmm: {kept}{todo} in {jobs_left} to measure, {left}{order}"


class Others:
    """The progress of the other batches of an experiment, in the only process that measures it at a time."""

    def __init__(self, results: Path, planned: plan.Plan):
        self.results, self.planned = results, planned
        self.known: dict[str, BatchState] = {}

    def than(self, batch: Batch) -> Elsewhere:
        """Return the progress of the other batches; only files of those measured since the last call are read."""
        states, pace = look_at_all(self.results, self.planned, known=self.known)
        others = [state for state in states if state.batch.name != batch.name]
        self.known = {state.batch.name: state for state in others}
        return Elsewhere(
            sum(state.visited for state in others),
            sum(len(state.batch.points) for state in others),
            sum(state.expected(pace) for state in others),
            sum(pace.seconds(state.left) for state in others if state.left and not pace.knows(state.left)),
            pace,
        )


def unfinished(planned: plan.Plan, results: Path) -> str:
    """Return the batches that a run left, one line each, and the points in which their jobs ended."""
    lines = []
    for batch in planned.to_measure:
        if seen := glance(batch.file(results), batch):
            begun, _ = seen.begun
            ended = [point.name for point in batch.points if point.key == begun and seen.last_reason(point) == CUT_OFF]
            text = f"    {batch.name}: {len(seen.whole)} of {len(batch.points)} points"
            lines.append(text + "".join(f", ended in {name}" for name in ended))
    head = "hpcmm: some points were not measured; the others are kept. Run the same command again:"
    return "\n".join([head, *lines]) if lines else ""


def look(results: Path, batch: Batch) -> BatchState:
    output = batch.file(results)
    count = len(batch.points)
    stored = on_disk(output, batch)
    unmeasured = len(stored) - sum(stored.values())
    if is_complete(output, batch):
        return BatchState(batch, count, False, 0, count, unmeasured=unmeasured)
    seen, predicted = glance(output, batch), dict(zip(batch.fingerprints, batch.predicted, strict=True))
    if seen is None:
        bounds = tuple(0.0 if fingerprint in stored else seconds for fingerprint, seconds in predicted.items())
        left, done = replace(batch, predicted=bounds, seconds=batch.startup + sum(bounds)), len(stored)
        return BatchState(batch, done, False, batch.seconds, done, left=left, unmeasured=unmeasured)
    names = {point.key: point.name for point in batch.points}
    shares = {fingerprint: 1.0 if fingerprint in stored else seen.share(fingerprint) for fingerprint in predicted}
    rest = sum(seconds * (1 - shares[fingerprint]) for fingerprint, seconds in predicted.items())
    reasons = [(point.name, seen.last_reason(point)) for point in batch.points]
    failed = tuple(f"{name}: {reason}" for name, reason in reasons if reason not in ("", CUT_OFF))
    recent = sum(predicted[fingerprint] * share for fingerprint, share in seen.recent.items())
    changed = datetime.fromtimestamp(journal_of(output).stat().st_mtime, UTC)
    seconds = (changed - datetime.fromisoformat(seen.runs[-1]["utc"])).total_seconds()
    begun, visit = seen.begun
    at = names.get(begun, "")
    if at and visit:
        at += f" in visit {visit + 1}"
    silent = (datetime.now(UTC) - changed).total_seconds()
    # a point takes at most its predicted time; the first one also waits for the start of the ranks
    paused = seen.ended and not failed
    took = None
    if recent and seconds > 0 and not paused:  # no estimate if the clock was set back; ended visits are in a file
        took = Record(batch.name, batch.operation, batch.device, recent, seconds, visit=visit)
    over = not paused and (has_ended(seen, changed) or silent > STARTUP_SECONDS + 2 * max(batch.predicted))
    finished, visited = sum(share == 1 for share in shares.values()), sum(shares.values())
    return BatchState(batch, finished, True, rest, visited, took, at, failed, silent if over else None, paused)


def has_ended(seen: Recorded, changed: datetime) -> bool:
    """Whether the process that wrote a journal has ended; unknown for a process on another machine."""
    if seen.host != socket.gethostname():
        return False
    try:
        process = psutil.Process(seen.pid)
        reused = process.create_time() > changed.timestamp() + 1  # another process has the number now
        return reused or process.status() == psutil.STATUS_ZOMBIE
    except psutil.AccessDenied:
        return False
    except psutil.NoSuchProcess:
        return not psutil.pid_exists(seen.pid)
