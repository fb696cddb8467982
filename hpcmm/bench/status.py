"""How far a run is, read from its plan, its journals and its files while it goes on."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil

from hpcmm.bench.journal import Glance, glance, kept_file
from hpcmm.experiment import plan
from hpcmm.experiment.durations import STARTUP_SECONDS, rounded_duration
from hpcmm.model import Batch

MOST_LINES = 40  # of a plan with more jobs, those that are done or waiting are counted only


@dataclass(frozen=True)
class Job:
    """Where one batch stands.

    ``done`` points are finished and ``seconds`` are left for the others at most; ``pace`` is the seconds
    that it takes for each that was predicted, None if that is not known. ``stopped`` jobs ended before they were done.
    """

    batch: Batch
    done: int
    begun: bool
    state: str
    seconds: float
    pace: float | None = None
    failed: tuple[str, ...] = ()
    stopped: bool = False


def text(results: Path, now: datetime | None = None) -> str:
    """Return how far a run is, a line a job.

    Parameters
    ----------
    results : Path
        Folder with ``plan.json``, ``raw/`` and ``report.html``.
    now : datetime
        By default the time of the call.
    """
    planned = plan.read(results / "plan.json")
    jobs = [look(results, batch, now or datetime.now(UTC)) for batch in planned.to_measure]
    total, done = sum(len(job.batch.points) for job in jobs), sum(job.done for job in jobs)
    complete = sum(job.done == len(job.batch.points) for job in jobs)
    lines = [f"{results}: {done} of {total} points measured, {complete} of {len(jobs)} jobs done{left(jobs)}"]
    width = max(len(job.batch.name) for job in jobs)
    digits = max(len(str(len(job.batch.points))) for job in jobs)
    shown = jobs if len(jobs) <= MOST_LINES else [job for job in jobs if job.begun]
    for job in shown:
        lines.append(f"{job.batch.name:{width}}  {job.done:{digits}}/{len(job.batch.points):<{digits}}  {job.state}")
        lines += [f"    not measured: {each}" for each in job.failed]
    if len(shown) < len(jobs):
        lines.append(f"and {complete} done, {len(jobs) - len(shown) - complete} waiting")
    if planned.left_out:
        lines.append(f"left out: {len(planned.omitted())} variants of sweeps; python -m hpcmm plan says why")
    if complete == len(jobs) and (results / "report.html").exists():
        lines.append(f"report: {results / 'report.html'}")
    return "\n".join(lines)


def unfinished(planned: plan.Plan, results: Path) -> str:
    """Return what a run that is over left undone, a line a job that was begun; empty if there is none.

    A job that was killed, or that a kernel crashed, could not say in which point.
    """
    lines = []
    for batch in planned.to_measure:
        seen = glance(results / "raw" / f"{batch.name}.journal")
        if seen:
            points = dict(zip(batch.fingerprints, batch.points, strict=True))
            text = f"    {batch.name}: {len(seen.finished & points.keys())} of {len(points)} points"
            for fingerprint in points.keys() - seen.finished - seen.failed.keys():
                if points[fingerprint].key == seen.begun:
                    text += f", ended in {points[fingerprint].name}"
            lines.append(text)
    head = "hpcmm: not all was measured; what was is kept, and the same command again does the rest:"
    return "\n".join([head, *lines]) if lines else ""


def left(jobs: Sequence[Job]) -> str:
    """Say what is left for all jobs, at the pace of those that are being measured."""
    seconds = sum(job.seconds for job in jobs)
    if not seconds:
        return ""
    paces = [job.pace for job in jobs if job.pace is not None]
    if paces:
        return f", about {rounded_duration(seconds * sum(paces) / len(paces))} left, one job after another"
    stopped = any(job.stopped for job in jobs) and all(job.stopped for job in jobs if job.begun)
    nothing = ", no job is running" if stopped else ""
    return f"{nothing}, {rounded_duration(seconds)} left at most, one job after another"


def look(results: Path, batch: Batch, now: datetime) -> Job:
    """Find out where a batch stands, by its file and its journal."""
    output = results / "raw" / f"{batch.name}.h5"
    count = len(batch.points)
    if output.exists() and kept_file(output, batch).exists():
        return Job(batch, count, False, "done", 0)
    seen = glance(output.with_suffix(".journal"))
    if seen is None:
        return Job(batch, 0, False, f"waiting, {rounded_duration(batch.seconds)} at most", batch.seconds)
    points = dict(zip(batch.fingerprints, batch.points, strict=True))
    predicted = dict(zip(batch.fingerprints, batch.predicted, strict=True))
    names = {point.key: point.name for point in batch.points}
    finished = seen.finished & points.keys()
    rest = sum(seconds for fingerprint, seconds in predicted.items() if fingerprint not in finished)
    failed = tuple(f"{points[each].name}: {reason}" for each, reason in seen.failed.items() if each in points)
    recent = sum(predicted[fingerprint] for fingerprint in seen.recent & points.keys())
    took = (seen.changed - seen.started).total_seconds()
    pace = took / recent if recent and took > 0 else None  # a clock that was set back says nothing
    at = names.get(seen.begun, "")
    silent = (now - seen.changed).total_seconds()
    # a point takes what was predicted at most, but for the start of the ranks before the first
    if has_ended(seen) or silent > STARTUP_SECONDS + 2 * max(batch.predicted):
        state = f"stopped {rounded_duration(max(0, silent))} ago" + (f" at {at}" if at else "")
        return Job(batch, len(finished), True, state + "; start the run again", rest, None, failed, stopped=True)
    about = f"about {rounded_duration(rest * pace)}" if pace else f"{rounded_duration(rest)} at most"
    state = f"measuring {at}, {about} left" if at else "starting"
    return Job(batch, len(finished), True, state, rest, pace, failed)


def has_ended(seen: Glance) -> bool:
    """Whether the process that wrote a journal is over; of a process on another machine that is not known."""
    if seen.host != socket.gethostname():
        return False
    try:
        process = psutil.Process(seen.pid)
        reused = process.create_time() > seen.changed.timestamp() + 1  # the number is another process's by now
        return reused or process.status() == psutil.STATUS_ZOMBIE
    except psutil.AccessDenied:
        return False
    except psutil.NoSuchProcess:
        return not psutil.pid_exists(seen.pid)
