"""Measure a small config in a folder, one job after another, without Snakemake."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hpcmm import backends, parallel, surroundings
from hpcmm.bench import sanitizing
from hpcmm.experiment import plan
from hpcmm.jobs.collect import collect
from hpcmm.measurement import Batch
from hpcmm.model import HpcmmError

PATIENCE_SECONDS = 15  # beyond the expected time of a point
SANITIZING_SECONDS = 180.0  # of one kernel


def measure(
    config: Mapping[str, Any], folder: Path, alone: bool = True, show: Callable[[str], None] = lambda line: None
) -> Path:
    """Measure all points of a config on this machine.

    Points that fail, and the rest of a job that a point ends, are in the file's group ``omitted`` with the reason.

    Parameters
    ----------
    config : mapping
        Contents of a config.yaml; each of its jobs has one rank.
    folder : Path
        Empty folder for the plan, the logs and the results.
    alone : bool
        Whether to wait until no other measurement runs on this machine. Without it, jobs run beside each other.
    show : callable
        Receives each line of progress.

    Returns
    -------
    Path
        The timings file.

    Raises
    ------
    HpcmmError
        If mpi4py is not installed: also a job of one rank needs it.
    """
    if missing := parallel.missing():
        raise HpcmmError(f"{missing}: {parallel.INSTALL}")
    planned = plan.make(config, backends.this_machine())
    planned.write(folder / "plan.json")
    began = time.time_ns()
    for visit in range(planned.measuring.visits):
        job = f"trial {began} {planned.measuring.job_of(visit)}"
        waiting = [each for each in planned.to_measure if not each.file(folder).exists()]
        for batches in [[each] for each in waiting] if alone else [waiting]:
            finish([(each.name, start(measuring(folder, each), alone, job=job)) for each in batches], folder, show)
    for operation in planned.profiled:
        finish([(f"profiles/{operation}", start(profiling(folder, operation), alone))], folder, show)
    target = folder / "timings.h5"
    collect(planned, folder, target, separate=True)
    return target


def measuring(folder: Path, batch: Batch) -> list[str]:
    """Return the command of a job that makes one visit of the points of a batch."""
    command = [sys.executable, "-m", "mpi4py", "-m", "hpcmm.jobs.measure", "--results", str(folder)]
    return [*command, "--batch", batch.name, "--patience", str(PATIENCE_SECONDS)]


def profiling(folder: Path, operation: str) -> list[str]:
    """Return the command of a job that profiles the kernels of an operation."""
    command = [sys.executable, "-m", "hpcmm.jobs.profile", "--plan", str(folder / "plan.json")]
    return [*command, "--operation", operation, "--output", str(folder / "profiles" / f"{operation}.h5")]


def start(command: Sequence[str], alone: bool = False, session: bool = False, job: str = "") -> subprocess.Popen:
    """Start a process of a job, with its output and errors in one pipe; in its own session it ends with its children.

    Processes with the same ``job`` make visits of one job.
    """
    return subprocess.Popen(
        [*([sys.executable, "-m", "hpcmm.cluster.alone"] if alone else []), *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=surroundings.measuring(os.environ) | {"HPCMM_JOB": job},
        start_new_session=session,
    )


def sanitized(
    config: Mapping[str, Any], folder: Path, program: str, tools: Sequence[str] = sanitizing.TOOLS
) -> list[sanitizing.Report]:
    """Run the kernels of a config once under tools of compute-sanitizer, beside each other.

    Parameters
    ----------
    config : mapping
        Contents of a config.yaml; each of its jobs has one rank.
    folder : Path
        Empty folder for the plan.
    program : str
        Path of compute-sanitizer.
    tools : sequence of str
    """
    plan.make(config, backends.this_machine()).write(folder / "plan.json")
    watched = [sys.executable, "-m", "mpi4py", "-m", "hpcmm.jobs.sanitized", "--plan", folder / "plan.json"]
    jobs = [(tool, start(sanitizing.command(program, tool, watched), session=True)) for tool in tools]
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


def finish(jobs: Iterable[tuple[str, subprocess.Popen]], folder: Path, show: Callable[[str], None]) -> None:
    """Wait for jobs; keep their output in the logs of the workflow, and report the signal that ended one."""
    for name, job in jobs:
        path = folder / "logs" / f"{name}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with path.open("a") as log, job:
                for line in job.stdout:
                    log.write(line)
                    show(line.rstrip("\n"))
                if job.wait() < 0:
                    log.write(f"hpcmm: error: {name}: ended by {signal.Signals(-job.returncode).name}\n")
        finally:
            job.kill()
