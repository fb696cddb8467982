"""States of jobs: from squeue if it lists them, otherwise from sacct.

A job is named as ``sbatch --parsable`` prints it: Slurm's number, with ``;`` and the cluster if it is not the default
one. The job with a number may belong to somebody else: on another cluster, or if the number is from a line that a site
adds to the output of sbatch. The token in the comment of a job shows that it is a job of this workflow.
"""

from __future__ import annotations

import re
from collections import defaultdict
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


def states(clusters: Iterable[str] = ("",)) -> dict[str, State]:
    """Return the state of each job of this user that squeue lists on some clusters; "" is the default one."""
    found = {}
    for cluster in clusters:
        options = ("--me", "--states=all", "--noheader", "--format=%i|%T|%r|%N|%k", *_option(cluster))
        for line in check_output("squeue", *options).splitlines():
            if line.startswith("CLUSTER: "):  # above the jobs of each of several clusters
                cluster = line.split()[1]
            job, *rest = (field.strip() for field in line.split("|", maxsplit=4))
            if len(rest) == 4:
                *about, comment = rest
                found[f"{job};{cluster}" if cluster else job] = State(*about, token=_token(comment))
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
    for cluster, numbers in _by_cluster(records_of):
        options = ("--noheader", "--allocations", "--parsable2", "--format=JobID,State,Comment", *_option(cluster))
        try:
            jobs = f"--jobs={','.join(numbers)}"
            answer = check_output("sacct", *options, jobs, harmless="accounting storage is disabled")
        except (NoAnswer, NotInstalled):
            continue
        for row in (line.split("|", maxsplit=2) for line in answer.splitlines()):
            job = f"{row[0]};{cluster}" if cluster else row[0]
            record, comment = records_of.get(job), "".join(row[2:])
            # a state may have several words, as in "CANCELLED by 1000"
            if record and len(row) > 1 and row[1].split() and (not comment or _token(comment) == record.token):
                found[job] = State(row[1].split()[0], token=_token(comment), listed=False)
    return found


def cancel(jobs: Iterable[str]) -> None:
    """Cancel jobs. A job that has already ended is not an error; whether a job ended follows from its state."""
    for cluster, numbers in _by_cluster(jobs):
        check_output("scancel", *_option(cluster), *numbers, harmless="Invalid job id|already complet")


def command(program: str, job: str, *arguments: str) -> str:
    """Return a command about a job, for messages.

    >>> command("scancel", "12"), command("scontrol", "12;north", "release")
    ('scancel 12', 'scontrol --clusters=north release 12')
    """
    number, _, cluster = job.partition(";")
    return " ".join([program, *_option(cluster), *arguments, number])


def clusters_of(left: Iterable[Record]) -> list[str]:
    """Return the clusters on which the jobs of records are, or may be if sbatch did not return; "" is the default."""
    named = (record.job.partition(";")[2] if record.job else record.clusters for record in left)
    return sorted({"", *(cluster for each in named for cluster in each.split(","))})


def _by_cluster(jobs: Iterable[str]) -> Iterable[tuple[str, list[str]]]:
    found = defaultdict(list)
    for job in jobs:
        number, _, cluster = job.partition(";")
        found[cluster].append(number)
    return found.items()


def _option(cluster: str) -> list[str]:
    return [f"--clusters={cluster}"] if cluster else []


def _token(comment: str) -> str:
    match = TOKEN.search(comment)
    return match[1] if match else ""
