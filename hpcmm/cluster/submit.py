"""Wrap sbatch for Snakemake: request the resources of the rule, and submit each job exactly once.

``snakemake --cluster sbatch`` passes a job script and nothing else. The Snakefile puts ``jobs/bin/sbatch``
first on the PATH, which adds the options, keeps a record of the job and repeats a submission that Slurm
did not answer.
"""

import argparse
import dataclasses
import json
import os
import re
import shlex
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from hpcmm.cluster import commands, queue, records
from hpcmm.cluster.commands import reason, report
from hpcmm.cluster.records import Record
from hpcmm.model import HpcmmError
from hpcmm.model.records import beside
from hpcmm.system.programs import TIMED_OUT

LOGS = Path(".snakemake/slurm_logs")
SECONDS_TO_ARRIVE = 5  # until a submission that timed out is in the queue

TABLES = beside(__file__)
OPTIONS, REPLACED_BY = TABLES["options"], TABLES["replaced_by"]
REQUESTS = tuple(option.partition("=")[0] + "=" for option in OPTIONS.values() if "=" in option)
PATTERNS = {name: re.compile(pattern, re.MULTILINE) for name, pattern in TABLES["patterns"].items()}


def main(argv: Sequence[str]) -> int:
    os.environ["HPCMM_JOBS"] = str(Path(argv[0]).resolve().parents[1])
    try:
        return submit(argv[1:])
    except commands.NotInstalled as error:
        print(f"sbatch: {error}", file=sys.stderr)
        return 127
    except HpcmmError as error:
        report(f"error: {error}")
        return 1
    except KeyboardInterrupt:  # the next start cancels the job if it was submitted
        return 130


def options(properties: Mapping[str, Any], given: Sequence[str]) -> list[str]:
    """Return the options of sbatch for a job, from the properties in its script; the user's own options win.

    >>> options({"rule": "measure", "threads": 2, "resources": {"tasks": 4, "gres": "gpu:4"}}, [])
    ['--job-name=measure', '--cpus-per-task=2', '--ntasks=4', '--gres=gpu:4']
    >>> options({"rule": "measure", "resources": {"tasks": 4, "gres": "gpu:4"}}, ["--gpus=4"])
    ['--job-name=measure', '--cpus-per-task=1', '--ntasks=4']
    """
    resources = properties.get("resources", {})
    chosen = [f"--job-name={job_name(properties)}", f"--cpus-per-task={properties.get('threads', 1)}"]
    for name, option in OPTIONS.items():
        replaced = any(argument.startswith(tuple(REPLACED_BY.get(name, ()))) for argument in given)
        if resources.get(name) and not replaced:
            chosen.append(option.format(resources[name]))
    return chosen


def job_name(properties: Mapping[str, Any]) -> str:
    rule = properties.get("rule") or properties.get("groupid") or "snakejob"
    return "-".join([rule, *map(str, properties.get("wildcards", {}).values())]).replace("/", "-")


def with_comment(arguments: Sequence[str], token: str) -> list[str]:
    """Return the arguments of sbatch with the token in the job's comment, after the user's comment.

    >>> with_comment(["--comment", "mine", "job.sh"], "0123456789abcdef")
    ['--comment=mine hpcmm:0123456789abcdef', 'job.sh']
    >>> with_comment(["job.sh"], "0123456789abcdef")
    ['--comment=hpcmm:0123456789abcdef', 'job.sh']
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--comment", default="")
    given, rest = parser.parse_known_args(arguments)
    return [f"--comment={given.comment} hpcmm:{token}".replace("= ", "="), *rest]


def submit(arguments: Sequence[str]) -> int:
    """Submit a job of Snakemake with the resources of its rule, and keep a record of it; return an exit status."""
    script = Path(arguments[-1]) if arguments and Path(arguments[-1]).is_file() else None
    properties = read_properties(script)
    if not properties:
        os.execv(commands.find("sbatch"), ["sbatch", *arguments])
    token = uuid.uuid4().hex[:16]
    LOGS.mkdir(parents=True, exist_ok=True)
    shebang, _, rest = script.read_text().partition("\n")
    python = os.environ.get("HPCMM_PYTHON", "python")
    rest = rest.replace(f"{python} -m snakemake ", f"{shlex.quote(python)} -m snakemake ")  # it quotes all other paths
    # without a marker if Slurm ends it, as that would report a failure of a job that Slurm requeues
    script.write_text(f"{shebang}\ntrap 'exit 143' TERM\n{rest}")
    marker = PATTERNS["marker"].search(rest)
    given = ["--parsable", f"--output={LOGS}/%x-%j.log", *options(properties, arguments[:-1]), *arguments]
    if any(re.match("-M|--clusters?(=|$)", argument) for argument in given) or os.environ.get("SBATCH_CLUSTERS"):
        raise HpcmmError("jobs on another cluster are not followed; submit from a login node of that cluster")
    record = record_of(token, given, properties, marker[2] if marker else "")
    kept = Path(".snakemake").is_dir()
    for log in record.logs[:1]:
        Path(log).unlink(missing_ok=True)  # of an earlier attempt
    try:
        if kept:
            begin(record)
        # if it fails, the next start cancels the job
        job, reply = submit_once(with_comment(given, token), record)
    except HpcmmError as error:
        records.explain(record, str(error))
        raise
    if not job:
        records.remove(record)
        records.explain(record, "; ".join(filter(None, map(str.strip, reply.stderr.splitlines()))) or reason(reply))
        print(reply.stderr, end="", file=sys.stderr, flush=True)
        return reply.returncode or 1
    if kept and not records.submitted(record, job):
        queue.cancel([job])
        return 1
    print(reply.stderr if reply.returncode == 0 else "", end="", file=sys.stderr, flush=True)
    try:
        print(job, flush=True)
    except BrokenPipeError:  # the workflow was killed, and the next one may have missed the record
        queue.cancel([job])
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def begin(record: Record) -> None:
    """Write the record of a submission, and remove its marker from the records of earlier attempts."""
    with records.locked():
        for earlier in records.read():
            if record.marker and earlier.marker == record.marker:
                records.write(dataclasses.replace(earlier, marker=""))
        if record.marker:
            Path(record.marker).unlink(missing_ok=True)
        records.write(record)


def submit_once(arguments: Sequence[str], record: Record) -> tuple[str, CompletedProcess]:
    """Submit a job exactly once, even if sbatch is called several times: the queue shows the token of the record.

    Return the job, empty if Slurm refused it, and the last reply of sbatch. Raise NoAnswer if Slurm does not answer
    within the patience.
    """
    began = time.monotonic()
    while True:
        called = time.monotonic()
        reply = commands.call("sbatch", *arguments)
        jobs = submitted_jobs(reply.stdout)
        if reply.returncode == 0 and jobs:
            commands.answered("sbatch")
            return jobs[-1], reply
        # the last of several messages counts: sbatch itself repeats some calls
        refusal = PATTERNS["refused"].search(reply.stderr)
        said = refusal[1] if refusal else reply.stderr
        transient = reply.returncode == TIMED_OUT or reply.returncode <= 0 or PATTERNS["transient"].search(said)
        if refusal and not transient:
            return "", reply
        commands.unanswered("sbatch", called, reason(reply))
        # a single answer without the job may be wrong, or too early
        job = find(record, late=bool(transient))
        if job:
            report(f"sbatch failed ({reason(reply)}), but Slurm has the job: {job}")
        if job or not transient:
            commands.answered("sbatch")
            return job, reply
        waited = time.monotonic() - began
        if waited >= commands.patience():
            raise commands.NoAnswer(f"sbatch: {reason(reply)}, for {waited:.0f} s")


def submitted_jobs(output: str) -> list[str]:
    """Return the jobs that sbatch names in its output; a site may add lines of its own before the last one.

    >>> submitted_jobs("2026-12-24 repairs\\n12\\n"), submitted_jobs("Submitted batch job 12\\n")
    (['12'], ['12'])
    """
    return ["".join(parts) for parts in PATTERNS["submitted"].findall(output)]


def find(record: Record, late: bool) -> str:
    """Return the job of a record; empty if squeue lists none. One that may arrive ``late`` is looked for twice."""
    for _ in range(2 if late else 1):
        if late:
            pause = commands.pause(commands.silent_for("sbatch"), least=SECONDS_TO_ARRIVE)
            time.sleep(min(pause, commands.patience()))
        if ours := queue.of_record(record, commands.retry(queue.states)):
            return next(iter(ours))
    return ""


def record_of(token: str, arguments: Sequence[str], properties: Mapping[str, Any], marker: str) -> Record:
    texts = dict(re.findall(r"--(output|job-name)[= ](\S+)", " ".join(arguments)))
    own = texts["output"].replace("%x", texts["job-name"])
    request = " ".join(argument for argument in arguments if argument.startswith(REQUESTS))
    return Record(token, "", job_name(properties), (*properties.get("log", []), own), marker, request)


def read_properties(script: Path | None) -> dict[str, Any]:
    try:
        lines = script.read_text().splitlines() if script else []
        found = next((line for line in lines if line.startswith("# properties = ")), None)
        return json.loads(found.removeprefix("# properties = ")) if found else {}
    except (OSError, ValueError):
        return {}
