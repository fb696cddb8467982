"""What Slurm knows of jobs: squeue for those that it still remembers, sacct for the others."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from hpcmm.cluster.commands import NoAnswer, NotInstalled, ask

COMPLETED = "COMPLETED"
FAILED = ("BOOT_FAIL", "CANCELLED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT")
TOKEN = re.compile("hpcmm:([0-9a-f]{16})")  # in the comment of a job, which names its record


@dataclass(frozen=True)
class State:
    """What Slurm says of a job.

    ``listed`` is False if squeue does not list the job; ``name`` is then from accounting, and empty if that
    does not know it either.
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
    answer = ask("squeue", "--me", "--states=all", "--noheader", "--format=%i|%T|%r|%N|%k")
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

    An empty answer of squeue says nothing of a job: a controller that falters gives one, too.
    """
    missing = [job for job in jobs if job not in listed]
    accounts = accounted(missing) if missing else {}
    return {job: listed.get(job) or State(accounts.get(job, ""), listed=False) for job in jobs}


def accounted(jobs: Iterable[str]) -> dict[str, str]:
    """Return the state of jobs in Slurm's accounting; jobs that it does not know are left out."""
    query = ("--noheader", "--allocations", "--parsable2", "--format=JobID,State", f"--jobs={','.join(jobs)}")
    try:
        answer = ask("sacct", *query, harmless="accounting storage is disabled")
    except (NoAnswer, NotInstalled):
        return {}
    rows = (line.split("|") for line in answer.splitlines())
    # the state may have more words, as in "CANCELLED by 1000"
    return {row[0]: row[1].split()[0] for row in rows if len(row) == 2 and row[1].split()}


def cancel(jobs: Iterable[str]) -> None:
    """Cancel jobs. Those that ended before are no error; whether a job ended, only its state says.

    Raises
    ------
    NoAnswer
        If scancel does not answer.
    """
    ask("scancel", *jobs, harmless="Invalid job id|already complet")
