"""Start and end of a workflow that may run on Slurm, and the environment of its jobs."""

import atexit
import contextlib
import os
import re
import shutil
import socket
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from hpcmm.cluster import commands, leftovers, queue, records
from hpcmm.cluster.commands import NotInstalled, report, retry
from hpcmm.cluster.queue import State
from hpcmm.cluster.records import Record
from hpcmm.cluster.watch import CHECKS_UNTIL_OVER, SECONDS_BETWEEN_CHECKS, Watch
from hpcmm.model import HpcmmError

RUN = Path(".snakemake/hpcmm/run")  # host, PID and start time of the workflow that runs in this folder
SECONDS_TO_CANCEL = 120  # until cancelled jobs have left the queue

watch = Watch()


def claim() -> None:
    """Clean up after a killed workflow, and claim the folder until this process exits.

    This comes before the lock of Snakemake: the next workflow recognizes the locks of a killed one at any moment.
    """
    clear_after_kill()
    if is_dry_run():
        return
    RUN.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError), RUN.open("x") as file:  # of a workflow that runs; Snakemake reports it
        file.write(this_process())
    atexit.register(release, Path.cwd())


def release(folder: Path) -> None:
    with contextlib.suppress(FileNotFoundError), contextlib.chdir(folder):
        if RUN.read_text() == this_process() and not records.read():
            RUN.unlink()


def this_process() -> str:
    return f"{socket.gethostname()} {os.getpid()} {psutil.Process().create_time()}\n"


def is_dry_run() -> bool:
    return any(re.fullmatch("--dry-?run|-[a-z]*n[a-z]*", argument) for argument in sys.argv)


def clear_after_kill() -> None:
    """Clean up after a workflow that was killed on this machine, before Snakemake inspects the folder.

    Its locks are removed, and its marks of incomplete outputs: an output is renamed into place only when complete.
    Its jobs are cancelled, because they would be submitted again.
    """
    try:
        host, process, started = RUN.read_text().split()
    except (FileNotFoundError, ValueError):
        return
    if host != socket.gethostname():
        return
    with contextlib.suppress(psutil.NoSuchProcess):
        workflow = psutil.Process(int(process))
        if str(workflow.create_time()) == started and workflow.status() != psutil.STATUS_ZOMBIE:
            return
    for folder in ("locks", "incomplete"):
        shutil.rmtree(Path(".snakemake", folder), ignore_errors=True)
    if not is_dry_run():
        cancel_leftovers()
        RUN.unlink(missing_ok=True)


def begin(on_cluster: bool, workflow: Any) -> None:
    """Begin a workflow in this folder: clean up after one that was killed, and start to watch jobs."""
    if type(getattr(workflow, "executor_settings", None)).__module__.startswith("snakemake_executor_plugin_slurm"):
        raise HpcmmError("--executor slurm is not supported, as jobs that Slurm loses would hang; use --cluster sbatch")
    clear_memory()
    cancel_leftovers()
    if on_cluster:
        watch.start()
    RUN.write_text(this_process())  # another process may have claimed the folder, but not locked it


def end() -> None:
    """End a workflow: report the end of its last jobs, which Slurm may know later than Snakemake."""
    if left := watch.settle():
        report(f"still in the queue: {', '.join(left)}; the next start in this folder cancels them")


def clear_memory() -> None:
    if removed := leftovers.remove():
        report(removed)


def enter_job() -> None:
    clear_memory()
    environment = os.environ
    # srun would apply these to every step, also to the step that starts mpiexec on each node
    for name in ("GPUS", "GPUS_PER_NODE", "GPUS_PER_TASK", "GPUS_PER_SOCKET", "NTASKS_PER_GPU", "NTASKS_PER_NODE"):
        environment.pop("SLURM_" + name, None)
    environment["SLURM_KILL_BAD_EXIT"] = "1"  # srun ends all ranks when one fails
    if "SLURM_CPUS_PER_TASK" in environment:  # srun ignores this variable since 22.05
        environment.setdefault("SRUN_CPUS_PER_TASK", environment["SLURM_CPUS_PER_TASK"])
    if environment.get("SLURM_JOB_NUM_NODES") == "1":  # MPICH's mpiexec needs no srun on its own node
        environment.setdefault("HYDRA_LAUNCHER", "fork")


def cancel_leftovers() -> None:
    """Cancel the jobs of a workflow that was killed in this folder; their finished points are kept."""
    left = records.read()
    if not left:
        return
    try:
        cancel_all(left)
    except (commands.NoAnswer, NotInstalled) as error:
        names = ", ".join(record.job or record.name for record in left)
        raise HpcmmError(f"{error}; jobs of an earlier run may still be in the queue: {names}") from error
    for record in left:
        records.remove(record)


def cancel_all(left: Sequence[Record]) -> None:
    """Cancel the jobs of records and wait until they have left the queue.

    The comment of a job shows that it is ours, also if sbatch was killed before it returned the number. A faltering
    controller may list no job at all, so squeue is asked again for jobs that accounting does not know as ended.
    """

    def ours() -> tuple[dict[str, State], list[str]]:
        listed = retry(queue.states)
        found = {record: queue.of_record(record, listed) for record in left}
        unlisted = [record for record in left if record.job and not found[record]]
        over = {job for job, state in queue.accounted(unlisted).items() if state.final}
        jobs = {job: state for each in found.values() for job, state in each.items()}
        return jobs, [record.job for record in unlisted if record.job not in over]

    found, unknown = ours()
    for _ in range(CHECKS_UNTIL_OVER - 1):
        if not unknown:
            break
        time.sleep(commands.pause(SECONDS_BETWEEN_CHECKS))
        found, unknown = ours()
    if unknown:
        report(f"squeue does not list jobs of a run that was killed, so they were not cancelled: {', '.join(unknown)}")
    if alive := [job for job, state in found.items() if not state.final]:
        report(f"cancelled jobs of a run that was killed: {', '.join(alive)}")
    end = time.monotonic() + SECONDS_TO_CANCEL
    while alive:
        retry(partial(queue.cancel, alive))
        time.sleep(1)
        found, _ = ours()
        alive = [job for job, state in found.items() if not state.final]
        if alive and time.monotonic() > end:
            raise HpcmmError(f"jobs of an earlier run do not leave the queue: {', '.join(alive)}; run scancel")
