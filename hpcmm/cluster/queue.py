"""States of jobs: from squeue if it lists them, otherwise from sacct. The token in its comment shows a job as ours."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hpcmm.cluster.commands import NoAnswer, NotInstalled, check_output
from hpcmm.cluster.records import Record

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
    found = {}
    for line in check_output("squeue", "--me", "--states=all", "--noheader", "--format=%i|%T|%r|%N|%k").splitlines():
        job, *rest = (field.strip() for field in line.split("|", maxsplit=4))
        if len(rest) == 4:
            *about, comment = rest
            found[job] = State(*about, token=_token(comment))
    return found


def of_record(record: Record, listed: Mapping[str, State]) -> dict[str, State]:
    """Return the jobs with the token of a record: Slurm may accept a submission after it was repeated."""
    return {job: state for job, state in listed.items() if state.token == record.token}


def accounted(left: Iterable[Record]) -> dict[str, State]:
    """Return the states of the jobs of records in Slurm's accounting, without jobs that it does not know.

    For jobs that squeue does not list: an empty answer of squeue does not mean that a job ended, as a faltering
    controller also returns one. Many sites do not store comments in the accounting.
    """
    found, records_of = {}, {record.job: record for record in left}
    if not records_of:
        return found
    options = ("--noheader", "--allocations", "--parsable2", "--format=JobID,State,Comment")
    try:
        jobs = f"--jobs={','.join(records_of)}"
        answer = check_output("sacct", *options, jobs, harmless="accounting storage is disabled")
    except (NoAnswer, NotInstalled):
        return found
    for job, *row in (line.split("|", maxsplit=2) for line in answer.splitlines()):
        record, comment = records_of.get(job), "".join(row[1:])
        # a state may have several words, as in "CANCELLED by 1000"
        if record and row and row[0].split() and (not comment or _token(comment) == record.token):
            found[job] = State(row[0].split()[0], token=_token(comment), listed=False)
    return found


def cancel(jobs: Iterable[str]) -> None:
    """Cancel jobs. A job that has already ended is not an error; whether a job ended follows from its state."""
    check_output("scancel", *jobs, harmless="Invalid job id|already complet")


def _token(comment: str) -> str:
    match = TOKEN.search(comment)
    return match[1] if match else ""
