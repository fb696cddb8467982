"""Slurm under Snakemake: what a job asks for, and what became of it.

Snakemake's ``--cluster sbatch`` hands over a job script and nothing else, and never looks again: a job
that Slurm ends from outside leaves it waiting for ever. So the Snakefile puts ``jobs/bin/sbatch`` first
on the PATH, which asks for what the rule says and keeps a record of each job, and watches those records.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from hpcmm.model import HpcmmError

RECORDS = Path(".snakemake/hpcmm/jobs")  # one file a job that is in the queue
RUN = Path(".snakemake/hpcmm/run")  # host, process and its start of the workflow that runs here
LOGS = Path(".snakemake/slurm_logs")
SECONDS_BETWEEN_LOOKS = 10
LOOKS_UNTIL_LOST = 3
# The end of a workflow waits so long for Slurm to have cleared up after a job, and to know that it is over.
SECONDS_TO_CLEAR_UP, SECONDS_TO_KNOW = 60, 5
SECONDS_TO_CANCEL = 120  # what a run that was killed left in the queue

# resource of a rule -> option of sbatch; Snakemake's slurm executor reads the same resources
OPTIONS = {
    "tasks": "--ntasks={}",
    "nodes": "--nodes={}",
    "gres": "--gres={}",
    "mem_mb": "--mem={}M",
    "runtime": "--time={}",
    "slurm_partition": "--partition={}",
    "slurm_account": "--account={}",
    "qos": "--qos={}",
    "constraint": "--constraint={}",
    "slurm_extra": "{}",
}
# Given by hand, these take the place of an option that sbatch would not let them override.
INSTEAD = {"gres": ("-G", "--gpus", "--gres"), "mem_mb": ("--mem",)}

OVER = ("BOOT_FAIL", "CANCELLED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT")
# Why a job may wait without anybody having to do something.
PATIENT = ("None", "Priority", "Resources", "BeginTime", "Cleaning", "Dependency")


def options(properties: Mapping[str, Any], given: Sequence[str]) -> list[str]:
    """Options of sbatch for a job, from the properties in its script; those given by hand win.

    >>> options({"rule": "measure", "threads": 2, "resources": {"tasks": 4, "gres": "gpu:4"}}, [])
    ['--job-name=measure', '--cpus-per-task=2', '--ntasks=4', '--gres=gpu:4']
    >>> options({"rule": "measure", "resources": {"tasks": 4, "gres": "gpu:4"}}, ["--gpus=4"])
    ['--job-name=measure', '--cpus-per-task=1', '--ntasks=4']
    """
    resources = properties.get("resources", {})
    chosen = [f"--job-name={job_name(properties)}", f"--cpus-per-task={properties.get('threads', 1)}"]
    for name, option in OPTIONS.items():
        replaced = any(each.startswith(INSTEAD.get(name, "\0")) for each in given)
        if resources.get(name) and not replaced:
            chosen.append(option.format(resources[name]))
    return chosen


def job_name(properties: Mapping[str, Any]) -> str:
    rule = properties.get("rule") or properties.get("groupid") or "snakejob"
    return "-".join([rule, *map(str, properties.get("wildcards", {}).values())]).replace("/", "-")


def submit(arguments: Sequence[str]) -> int:
    """Be sbatch for Snakemake: ask for what the job script's rule says, submit, and keep a record.

    A call that is not about a Snakemake job script only leaves its record, if it was made where a
    workflow runs.
    """
    program = shutil.which("sbatch", path=path_without(Path(sys.argv[0]).resolve().parent))
    if program is None:
        print("sbatch: Slurm's sbatch is not on the PATH", file=sys.stderr)
        return 127
    script = Path(arguments[-1]) if arguments and Path(arguments[-1]).is_file() else None
    properties = read_properties(script)
    chosen: list[str] = []
    marker = ""
    if properties:
        LOGS.mkdir(parents=True, exist_ok=True)
        chosen = ["--parsable", f"--output={LOGS}/%x-%j.log", *options(properties, arguments[:-1])]
        let_the_signal_end(script)
        found = re.search(r"touch '([^']*\.jobfailed)'", script.read_text())
        if found:  # Snakemake was given no status command
            marker = found[1]
            disarm(marker)
    done = subprocess.run([program, *chosen, *arguments], stdout=subprocess.PIPE, text=True)
    identifier = re.search(r"\d+", done.stdout)
    if done.returncode == 0 and identifier and Path(".snakemake").is_dir():
        keep_record(identifier[0], [*chosen, *arguments], properties, marker)
    try:
        print(done.stdout, end="", flush=True)
    except BrokenPipeError:  # the workflow was killed meanwhile, and the next one may not have seen the record
        if identifier:
            subprocess.run(["scancel", identifier[0]], check=False)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return done.returncode


def disarm(marker: str) -> None:
    """Let nobody take the end of earlier attempts, which have the same marker, for that of the one to come."""
    for job, record in records().items():
        if record["marker"] == marker:
            write_record(job, record | {"marker": ""})
    Path(marker).unlink(missing_ok=True)


def keep_record(job: str, arguments: Sequence[str], properties: Mapping[str, Any], marker: str) -> None:
    """Note a submitted job: its name, its logs, and the file by which Snakemake knows that it failed."""
    texts = dict(re.findall(r"--(output|comment|job-name)[= ](\S+)", " ".join(arguments)))
    name = job_name(properties) if properties else texts.get("comment", "")
    logs = [texts["output"].replace("%j", job).replace("%x", texts.get("job-name", ""))] if "output" in texts else []
    write_record(job, {"name": name, "logs": [*properties.get("log", []), *logs], "marker": marker})


def write_record(job: str, record: Mapping[str, Any]) -> None:
    RECORDS.mkdir(parents=True, exist_ok=True)
    temporary = RECORDS / f".{job}"
    temporary.write_text(json.dumps(record))
    temporary.replace(RECORDS / job)


def path_without(folder: Path) -> str:
    places = os.environ.get("PATH", "").split(os.pathsep)
    return os.pathsep.join(place for place in places if Path(place or ".").resolve() != folder)


def read_properties(script: Path | None) -> dict[str, Any]:
    """What Snakemake's job script says of its job; empty for any other script."""
    try:
        lines = script.read_text().splitlines() if script else []
        found = next((line for line in lines if line.startswith("# properties = ")), None)
        return json.loads(found.removeprefix("# properties = ")) if found else {}
    except (OSError, ValueError):
        return {}


def let_the_signal_end(script: Path) -> None:
    """Let a job script that Slurm ends die without a word.

    It would say that its job failed, also where Slurm puts the job back into the queue.
    """
    shebang, _, rest = script.read_text().partition("\n")
    script.write_text(f"{shebang}\ntrap 'exit 143' TERM\n{rest}")


@dataclass(frozen=True)
class State:
    """What Slurm says of a job."""

    state: str
    reason: str = ""
    nodes: str = ""


def states() -> dict[str, State] | None:
    """Ask Slurm for all jobs of this user that it still knows; None if it does not answer."""
    answer = ask("squeue", "--me", "--states=all", "--noheader", "--format=%i|%T|%r|%N")
    if answer is None:
        return None
    rows = (line.split("|") for line in answer.splitlines())
    return {job.strip(): State(*(each.strip() for each in rest)) for job, *rest in rows if len(rest) == 3}


def accounted(job: str) -> str:
    """State of a job in Slurm's accounting, for one that squeue has forgotten; empty where there is none."""
    answer = ask("sacct", "--noheader", "--allocations", "--parsable2", "--format=State", f"--jobs={job}")
    return next(iter((answer or "").split()), "")


def ask(*command: str) -> str | None:
    """What a program of Slurm says; None if it does not answer."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


class Watch:
    """Looks after the jobs of this workflow: says what became of each, and tells Snakemake of the dead.

    Snakemake waits for one of two files that the job script makes at its end. Where Slurm ended the job,
    the second one is made here.
    """

    def __init__(self):
        self.missing: dict[str, int] = {}  # looks in which Slurm did not know the job
        self.waiting: dict[str, str] = {}  # reason that was told
        self.lock = threading.Lock()

    def start(self) -> None:
        def forever():
            while True:
                time.sleep(SECONDS_BETWEEN_LOOKS)
                self.look()

        threading.Thread(target=forever, name="slurm", daemon=True).start()

    def look(self) -> list[str]:
        """Look once; return the states of the jobs of which the end is yet to come."""
        with self.lock:
            jobs = records()
            known = states() if jobs else None
            for job, record in jobs.items() if known is not None else ():
                self.judge(job, record, known.get(job))
            return [known[job].state if known and job in known else "unknown" for job in records()]

    def judge(self, job: str, record: Mapping[str, Any], found: State | None) -> None:
        """Do what the state of a job asks for: wait, tell why it waits, or tell that it is over."""
        if found is None:
            self.missing[job] = self.missing.get(job, 0) + 1
            if self.missing[job] < LOOKS_UNTIL_LOST:
                return
            found = State(accounted(job) or "unknown to Slurm")
        else:
            self.missing.pop(job, None)
        if found.state == "PENDING":
            self.tell_why_it_waits(job, record, found)
        elif found.state == "COMPLETED":
            (RECORDS / job).unlink(missing_ok=True)
        elif found.state in OVER or job in self.missing:
            tell(f"job {job} {record['name']} is over: {describe(found)}", record["logs"])
            marker = records()[job]["marker"]  # as it is now: the job may have been submitted again
            (RECORDS / job).unlink(missing_ok=True)
            if marker and Path(marker).parent.is_dir():
                Path(marker).touch()

    def tell_why_it_waits(self, job: str, record: Mapping[str, Any], found: State) -> None:
        if found.reason not in PATIENT and self.waiting.get(job) != found.reason:
            self.waiting[job] = found.reason
            tell(f"job {job} {record['name']} waits: {found.reason}; scancel {job} gives it up")


def describe(found: State) -> str:
    reason = f" ({found.reason})" if found.reason and found.reason != "None" else ""
    return f"{found.state}{reason}" + (f" on {found.nodes}" if found.nodes else "")


def tell(text: str, logs: Sequence[str] = ()) -> None:
    """Say it on stderr, with the job's logs and the line in each that says why."""
    lines = [f"hpcmm: {text}"]
    if logs:
        lines.append(f"    its logs: {', '.join(logs)}")
    lines += [f"    {line}" for line in dict.fromkeys(last_words(logs))]
    print("\n".join(lines), file=sys.stderr, flush=True)


def last_words(logs: Sequence[str]) -> list[str]:
    """The first line of each log that tells of an error: ours, Python's, the launcher's or Slurm's."""
    telling = re.compile(
        r"hpcmm: error:|\w*(Error|Interrupt)\b|\S*bash: line|ERROR:|YOUR APPLICATION TERMINATED|"
        r"srun: error|slurmstepd\S*: error"
    )
    found = []
    for log in logs:
        try:
            lines = Path(log).read_text(errors="replace").splitlines()
        except OSError:
            continue
        found += [line.strip() for line in lines if telling.match(line)][:1]
    return found


def records() -> dict[str, dict[str, Any]]:
    """Jobs of which no end was seen yet."""
    found = {}
    for path in sorted(RECORDS.glob("[0-9]*")):
        try:
            found[path.name] = json.loads(path.read_text())
        except FileNotFoundError:  # judged meanwhile
            continue
    return found


def clear_after_kill() -> None:
    """Clear up where a workflow was killed on this machine, before Snakemake looks at what there is.

    Its locks go; nor is an output incomplete, as Snakemake would have it: each takes its place whole. Its
    jobs are cancelled, as they would be submitted again.
    """
    try:
        host, process, started = RUN.read_text().split()
    except (FileNotFoundError, ValueError):
        return
    if host != socket.gethostname():
        return
    with contextlib.suppress(psutil.NoSuchProcess):
        if str(psutil.Process(int(process)).create_time()) == started:
            return
    for folder in ("locks", "incomplete"):
        shutil.rmtree(Path(".snakemake", folder), ignore_errors=True)
    if not any(re.fullmatch("--dry-?run|-[a-z]*n[a-z]*", argument) for argument in sys.argv):
        cancel_leftovers()
        RUN.unlink(missing_ok=True)


def begin(on_cluster: bool, workflow: Any) -> None:
    """Begin a workflow in this folder: clear up after one that was killed, and watch the jobs to come."""
    cancel_leftovers()
    if on_cluster:
        settings = getattr(workflow, "executor_settings", None)
        if hasattr(settings, "status_command"):
            # Snakemake's slurm executor: it does not understand sacct's "CANCELLED by 0" and would wait for ever,
            # and it asks squeue only if Slurm remembers jobs for three times the seconds between two questions
            settings.status_command = "squeue"
            settings.init_seconds_before_status_checks = SECONDS_BETWEEN_LOOKS
        watch.start()
    RUN.parent.mkdir(parents=True, exist_ok=True)
    RUN.write_text(f"{socket.gethostname()} {os.getpid()} {psutil.Process().create_time()}\n")


def end() -> None:
    """End a workflow: say what became of the last jobs, as Slurm may know it only a while after Snakemake.

    After Ctrl-C some may be left.
    """
    begin = time.monotonic()
    while left := watch.look():
        if time.monotonic() > begin + (SECONDS_TO_CLEAR_UP if "COMPLETING" in left else SECONDS_TO_KNOW):
            break
        time.sleep(1)
    if not left:
        RUN.unlink(missing_ok=True)


def enter_job() -> None:
    """Set what launchers read from the environment of a job.

    Snakemake's slurm executor hides most of what Slurm says from the process that it starts, so the
    process above, which comes by here first, keeps it.
    """
    environment = os.environ
    job = environment.get("SLURM_JOB_ID", "")
    kept = json.loads(environment.get("HPCMM_SLURM", "{}"))
    if job and kept.get("SLURM_JOB_ID") == job:
        environment.update(kept)
    else:
        environment["HPCMM_SLURM"] = json.dumps({k: v for k, v in environment.items() if k.startswith("SLURM_")})
    # srun would take these for what a step asks for, also that one which starts mpiexec on each node
    for name in ("GPUS", "GPUS_PER_NODE", "GPUS_PER_TASK", "GPUS_PER_SOCKET", "NTASKS_PER_GPU", "NTASKS_PER_NODE"):
        environment.pop("SLURM_" + name, None)
    environment["SLURM_KILL_BAD_EXIT"] = "1"  # srun: one rank's end is the end of all
    if "SLURM_CPUS_PER_TASK" in environment:  # srun takes no notice of this one since 22.05
        environment.setdefault("SRUN_CPUS_PER_TASK", environment["SLURM_CPUS_PER_TASK"])
    if environment.get("SLURM_JOB_NUM_NODES") == "1":  # MPICH's mpiexec needs no srun on its own node
        environment.setdefault("HYDRA_LAUNCHER", "fork")


def cancel_leftovers() -> None:
    """Cancel what a workflow that was killed here left in the queue; its finished points are kept."""
    left = records()
    known = states() if left else {}
    if known is None:
        raise HpcmmError("squeue does not answer, and jobs of an earlier run may still be in the queue")
    alive = unfinished(left, known)
    if alive:
        print(f"hpcmm: cancelled, as left by a run that was killed: {', '.join(alive)}", file=sys.stderr, flush=True)
        subprocess.run(["scancel", *alive], check=False)
    end = time.monotonic() + SECONDS_TO_CANCEL
    while alive:
        time.sleep(1)
        known = states()
        if known is not None:
            alive = unfinished(alive, known)
        if alive and time.monotonic() > end:
            raise HpcmmError(f"jobs of an earlier run do not leave the queue: {', '.join(alive)}; scancel them")
    for job in left:
        (RECORDS / job).unlink(missing_ok=True)


def unfinished(jobs: Iterable[str], known: Mapping[str, State]) -> list[str]:
    return [job for job in jobs if job in known and known[job].state not in (*OVER, "COMPLETED")]


watch = Watch()
