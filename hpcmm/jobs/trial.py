"""Measure a small config, one process after another, without Snakemake and without files."""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hpcmm import backends, parallel, store
from hpcmm.bench import sanitizing
from hpcmm.bench.journal import CUT_OFF, Recorded, in_order
from hpcmm.experiment import plan
from hpcmm.jobs.collect import reasons_of, rows_of_failures
from hpcmm.model import HpcmmError
from hpcmm.system import surroundings
from hpcmm.system.logs import first_error

PATIENCE_SECONDS = 15  # beyond the expected time of a point
SIGNALLED = "ended by"
SANITIZING_SECONDS = 180.0  # of one kernel


class Visit:
    """A process that makes one visit of the points of some batches. It starts at once, and waits for them.

    If it is ``alone``, it waits until no other measurement runs on this machine.
    """

    def __init__(self, alone: bool = False):
        if missing := parallel.missing():
            raise HpcmmError(f"{missing}: {parallel.INSTALL}")
        receiving, sending = os.pipe()
        command = [sys.executable, "-m", "mpi4py", "-m", "hpcmm.jobs.visit", "--events", str(sending)]
        command += ["--patience", str(PATIENCE_SECONDS)]
        self.job = start(command, alone, stdin=subprocess.PIPE, pass_fds=(sending,))
        os.close(sending)
        self.events = os.fdopen(receiving)

    def measure(self, request: Mapping[str, Any], show: Callable[[str], None]) -> str:
        """Measure, and add what happens to ``request["entries"]``; return why the process ended early, if it did.

        Raise HpcmmError if it ended before it could measure any kernel, as without a working MPI.
        """
        lines: list[str] = []

        def listen() -> None:
            for line in self.job.stdout:
                lines.append(line.rstrip("\n"))
                show(lines[-1])

        listener = threading.Thread(target=listen, daemon=True)
        listener.start()
        with contextlib.suppress(BrokenPipeError):  # it ended already, and its output says why
            self.job.stdin.write(json.dumps(request) + "\n")
            self.job.stdin.flush()
        started = bool(self.events.readline())
        for line in self.events:
            with contextlib.suppress(ValueError):  # the last one, of a process that was killed
                event = json.loads(line)
                request["entries"][event["batch"]].append(event["entry"])
        status = self.job.wait()
        listener.join()
        if status == 0:
            return ""
        reason = f"{SIGNALLED} {signal.Signals(-status).name}" if status < 0 else first_error(lines)
        reason = reason.removeprefix("hpcmm: error: ")
        reason = reason or f"its process ended without an error message; its last line is: {(lines or [''])[-1]}"
        if not started:
            raise HpcmmError(f"the process that measures kernels cannot start: {reason}")
        return reason

    def close(self) -> None:
        """End the process, also one that got nothing to measure."""
        self.job.kill()
        self.job.wait()
        for each in (self.events, self.job.stdin, self.job.stdout):
            with contextlib.suppress(BrokenPipeError):
                each.close()


def measure(
    config: Mapping[str, Any],
    alone: bool = True,
    show: Callable[[str], None] = lambda line: None,
    first: Visit | None = None,
) -> store.Groups:
    """Measure all points of a config, whose jobs have one rank, on this machine; each visit has its own process.

    Points that fail, and the points after one that ends its process, are in the group ``omitted`` with the reason. If
    it is ``alone``, it waits until no other measurement runs here. ``show`` receives each line of progress. The
    ``first`` process was started before.
    """
    planned = plan.make(config, backends.this_machine())
    entries: dict[str, list[dict]] = {batch.name: [] for batch in planned.to_measure}
    whole, endings = dataclasses.asdict(planned), dict.fromkeys(entries, "")
    began = time.time_ns()
    for number in range(planned.measuring.visits):
        waiting = []
        for batch in planned.to_measure:
            if Recorded(batch, entries[batch.name]).whole != set(batch.fingerprints):  # a point needs a further visit
                waiting.append(batch.name)
        for names in [[each] for each in waiting] if alone else filter(None, [waiting]):
            visit, first = first or Visit(alone), None
            job = f"trial {began} {planned.measuring.job_of(number)}"
            try:
                request = {"plan": whole, "job": job, "entries": {name: entries[name] for name in names}}
                endings |= dict.fromkeys(names, visit.measure(request, show))
            finally:
                visit.close()
    parts, unmeasured = [], planned.rows_unmeasured()
    for batch in planned.to_measure:
        content = Recorded(batch, entries[batch.name])
        parts.append(in_order(batch, [], content.runs, content.finished))
        left = (each for each in batch.fingerprints if each not in content.finished)
        failed = {fingerprint: content.failed.get(fingerprint, "") for fingerprint in left}
        if endings[batch.name].startswith(SIGNALLED):
            failed = {each: why.replace(CUT_OFF, endings[batch.name]) for each, why in failed.items()}
        unmeasured += rows_of_failures(batch, reasons_of(batch, failed, endings[batch.name]))
    return store.merged([*parts, *profiles(planned, show)], unmeasured, planned.unprofiled())


def profiles(planned: plan.Plan, show: Callable[[str], None]) -> list[store.Groups]:
    """Return the profiles of a plan; the profiler is another program, so it reads the plan from a file."""
    found = []
    with tempfile.TemporaryDirectory(prefix="hpcmm-profile-") as name:
        for operation in planned.profiled:
            folder = Path(name, operation)
            planned.write(folder / "plan.json")
            command = [sys.executable, "-m", "hpcmm.jobs.profile", "--plan", str(folder / "plan.json")]
            command += ["--operation", operation, "--output", str(folder / "profiles" / f"{operation}.h5")]
            with start(command, alone=True) as job:
                for line in job.stdout:
                    show(line.rstrip("\n"))
            found.append(store.read(folder / "profiles" / f"{operation}.h5"))
    return found


def start(command: Sequence[str], alone: bool = False, **options: Any) -> subprocess.Popen:
    """Start a measuring process, with its output and errors in one pipe; ``options`` are of ``Popen``."""
    before = [sys.executable, "-m", "hpcmm.cluster.alone"] if alone else []
    how = {"stdin": subprocess.DEVNULL, **options, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    environment = surroundings.measuring(os.environ)
    return subprocess.Popen([*before, *command], text=True, errors="replace", env=environment, **how)


def sanitized(
    config: Mapping[str, Any], program: str, tools: Sequence[str] = sanitizing.TOOLS
) -> list[sanitizing.Report]:
    """Run the kernels of a config once under tools of compute-sanitizer, beside each other."""
    with tempfile.TemporaryDirectory(prefix="hpcmm-sanitize-") as folder:
        path = Path(folder, "plan.json")
        plan.make(config, backends.this_machine()).write(path)
        watched = [sys.executable, "-m", "mpi4py", "-m", "hpcmm.jobs.watched", "--plan", path]
        return reports_of({tool: sanitizing.command(program, tool, watched) for tool in tools})


def reports_of(commands: Mapping[str, Sequence[Any]]) -> list[sanitizing.Report]:
    """Run commands by their tools beside each other, for a limited time; return what each reports."""
    jobs = [(tool, start(command, start_new_session=True)) for tool, command in commands.items()]
    until, reports = time.monotonic() + SANITIZING_SECONDS, []
    try:
        for tool, job in jobs:
            try:
                output, late = job.communicate(timeout=max(0, until - time.monotonic()))[0], ""
            except subprocess.TimeoutExpired:
                os.killpg(job.pid, signal.SIGKILL)
                output, late = job.communicate()[0], f"took longer than {SANITIZING_SECONDS:g} s"
            reports.append(sanitizing.read(tool, output, late))
    finally:
        for _, job in jobs:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
                job.wait()
    return reports
