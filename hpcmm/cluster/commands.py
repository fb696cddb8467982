"""Run Slurm's programs with a time limit, and report once when one of them does not answer.

With a busy or restarting controller, a program may hang, fail, or time out after the work was done. Such a failure
says nothing about a job. A call therefore returns Slurm's answer or raises ``NoAnswer``.
"""

import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import CompletedProcess
from typing import TypeVar

from hpcmm.model import HpcmmError
from hpcmm.system.programs import TIMED_OUT, limited

PATIENCE = 600  # seconds without an answer after which a submission or a start is given up
SECONDS_PER_CALL = 60
SECONDS_UNTIL_REPORTED = 60
LONGEST_PAUSE = 60

Answer = TypeVar("Answer")


class NoAnswer(HpcmmError):
    """A program of Slurm failed or did not end in time."""


class NotInstalled(HpcmmError):
    """A program of Slurm is not on the PATH."""


def reason(reply: CompletedProcess) -> str:
    """Return why a program failed."""
    if reply.returncode == TIMED_OUT:
        return "timed out"
    lines = [line.strip() for line in reply.stderr.splitlines() if line.strip()]
    return lines[-1] if lines else f"exit status {reply.returncode}"


def patience() -> float:
    """Return how many seconds Slurm may be silent: ``slurm_patience`` of ``site.yaml``."""
    return float(os.environ.get("HPCMM_SLURM_PATIENCE", PATIENCE))


def find(program: str) -> str:
    """Return the path of one of Slurm's programs, skipping the wrappers in ``jobs/bin``."""
    jobs = os.environ.get("HPCMM_JOBS")
    wrappers = Path(jobs, "bin").resolve() if jobs else None
    folders = os.environ.get("PATH", "").split(os.pathsep)
    path = os.pathsep.join(folder for folder in folders if Path(folder or ".").resolve() != wrappers)
    found = shutil.which(program, path=path)
    if found is None:
        raise NotInstalled(f"Slurm's {program} is not on the PATH")
    return found


def call(program: str, *arguments: str) -> CompletedProcess:
    # the user's own settings of squeue and sacct may hide jobs
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SQUEUE_", "SACCT_"))}
    return limited([find(program), *arguments], min(SECONDS_PER_CALL, max(patience(), 1)), environment)


since: dict[str, float] = {}  # when a program that does not answer was first called in vain
reported: set[str] = set()  # programs whose silence was reported


def silent_for(program: str) -> float:
    return time.monotonic() - since[program] if program in since else 0.0


def answered(program: str) -> None:
    if program in reported:
        reported.remove(program)
        report(f"{program} answers again after {silent_for(program):.0f} s")
    since.pop(program, None)


def unanswered(program: str, began: float, reason: str) -> None:
    since.setdefault(program, began)
    if program not in reported and silent_for(program) >= SECONDS_UNTIL_REPORTED:
        reported.add(program)
        go_on = "jobs go on, and those that ended are noticed once it answers"
        report(f"{program} has not answered for {silent_for(program):.0f} s ({reason}); {go_on}")


def check_output(program: str, *arguments: str, harmless: str = "") -> str:
    """Run one of Slurm's programs; return its output, also that of a failure whose message matches ``harmless``.

    Raise NoAnswer if it fails or does not end in time. A silence of a minute is reported.
    """
    began = time.monotonic()
    reply = call(program, *arguments)
    if reply.returncode == 0 or (harmless and re.search(harmless, reply.stderr)):
        answered(program)
        return reply.stdout
    unanswered(program, began, reason(reply))
    raise NoAnswer(f"{program}: {reason(reply)}")


def pause(silent: float, least: float = 1.0) -> float:
    """Return the seconds until the next call; they grow with the seconds of silence.

    >>> [pause(silent) for silent in (0, 1, 10, 60, 600)]
    [1.0, 1.0, 5.0, 30.0, 60.0]
    """
    return max(least, min(silent / 2, float(LONGEST_PAUSE)))


def retry(function: Callable[[], Answer]) -> Answer:
    """Call a function until Slurm answers; raise NoAnswer if it does not within the patience."""
    began = time.monotonic()
    while True:
        try:
            return function()
        except NoAnswer as error:
            waited = time.monotonic() - began
            if waited >= patience():
                raise NoAnswer(f"{error}; Slurm has not answered for {waited:.0f} s") from error
            time.sleep(min(pause(waited), patience() - waited))


def report(text: str, details: Sequence[str] = ()) -> None:
    with suppress(OSError, ValueError):
        print("\n".join([f"hpcmm: {text}", *(f"    {line}" for line in details)]), file=sys.stderr, flush=True)
