"""States of jobs: from squeue if it lists them, otherwise from sacct."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from hpcmm.cluster.commands import NoAnswer, NotInstalled, check_output

COMPLETED = "COMPLETED"
FAILED = ("BOOT_FAIL", "CANCELLED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT")
TOKEN = re.compile("hpcmm:([0-9a-f]{16})")  # in the comment of a job: the name of its record


@dataclass(frozen=True)
class State:
    """The state of a job in Slurm.

    ``listed`` is False if squeue does not list the job. ``name`` then comes from accounting; it is empty if accounting
    does not know the job either.
    """

    name: str
    reason: str = ""
    nodes: str = ""
    token: str = ""
    listed: bool = True

    @property
    def final(self) -> bool:
        return self.name == COMPLETED or self.name in FAILED

    def __str__(self) -> str:
        reason = f" ({self.reason})" if self.reason not in ("", "None") else ""
        return self.name + reason + (f" on {self.nodes}" if self.nodes else "")


def states() -> dict[str, State]:
    """Return the state of each job of this user that squeue lists.

    Raises
    ------
    NoAnswer
        If squeue does not answer.
    """
    answer = check_output("squeue", "--me", "--states=all", "--noheader", "--format=%i|%T|%r|%N|%k")
    found = {}
    for line in answer.splitlines():
        job, *rest = (each.strip() for each in line.split("|", maxsplit=4))
        if len(rest) == 4:
            *about, comment = rest
            token = TOKEN.search(comment)
            found[job] = State(*about, token=token[1] if token else "")
    return found


def look_up(jobs: Iterable[str], listed: dict[str, State]) -> dict[str, State]:
    """Return the state of each job, from accounting where squeue does not list it.

    An empty answer of squeue does not mean that a job ended: a faltering controller also returns one.
    """
    missing = [job for job in jobs if job not in listed]
    accounts = accounted(missing) if missing else {}
    return {job: listed.get(job) or State(accounts.get(job, ""), listed=False) for job in jobs}


def accounted(jobs: Iterable[str]) -> dict[str, str]:
    """Return the states of jobs in Slurm's accounting, without jobs that it does not know."""
    options = ("--noheader", "--allocations", "--parsable2", "--format=JobID,State", f"--jobs={','.join(jobs)}")
    try:
        answer = check_output("sacct", *options, harmless="accounting storage is disabled")
    except (NoAnswer, NotInstalled):
        return {}
    rows = (line.split("|") for line in answer.splitlines())
    # a state may have several words, as in "CANCELLED by 1000"
    return {row[0]: row[1].split()[0] for row in rows if len(row) == 2 and row[1].split()}


def cancel(jobs: Iterable[str]) -> None:
    """Cancel jobs. A job that has already ended is not an error; whether a job ended follows from its state.

    Raises
    ------
    NoAnswer
        If scancel does not answer.
    """
    check_output("scancel", *jobs, harmless="Invalid job id|already complet")
