"""Measure a small config in a folder, one job after another, without Snakemake."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from hpcmm import backends
from hpcmm.cluster.launcher import environment
from hpcmm.experiment import plan
from hpcmm.jobs.collect import collect
from hpcmm.model import Batch

PATIENCE_SECONDS = 20  # beyond the expected time of a point


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
    """
    planned = plan.make(config, backends.this_machine())
    planned.write(folder / "plan.json")
    for _ in range(planned.measuring.visits):
        waiting = [each for each in planned.to_measure if not output(folder, each).exists()]
        for batches in [[each] for each in waiting] if alone else [waiting]:
            finish([(each, start(folder, each, alone)) for each in batches], folder, show)
    target = folder / "timings.h5"
    collect(planned, folder, target)
    return target


def output(folder: Path, batch: Batch) -> Path:
    return folder / "raw" / f"{batch.name}.h5"


def start(folder: Path, batch: Batch, alone: bool) -> subprocess.Popen:
    """Start a job that makes one visit of the points of a batch."""
    command = [sys.executable, "-m", "hpcmm.cluster.alone"] if alone else []
    command += [sys.executable, "-m", "mpi4py", "-m", "hpcmm.jobs.measure", "--plan", str(folder / "plan.json")]
    command += ["--batch", batch.name, "--output", str(output(folder, batch)), "--patience", str(PATIENCE_SECONDS)]
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=os.environ | environment(local=True),
    )


def finish(jobs: Iterable[tuple[Batch, subprocess.Popen]], folder: Path, show: Callable[[str], None]) -> None:
    """Wait for jobs; keep what they print as the workflow does, and say which signal ended one."""
    for batch, job in jobs:
        path = folder / "logs" / f"{batch.name}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with path.open("a") as log, job:
                for line in job.stdout:
                    log.write(line)
                    show(line.rstrip("\n"))
                if job.wait() < 0:
                    log.write(f"hpcmm: error: {batch.name}: ended by {signal.Signals(-job.returncode).name}\n")
        finally:
            job.kill()
