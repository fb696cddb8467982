"""Check the jobs of a workflow every ten seconds and report those that ended.

Snakemake does not notice a job that Slurm ends. With ``--cluster sbatch`` it waits for one of two files that the job
script creates at its end; for a job that Slurm ended, this module creates the file that means failure.
"""

import re
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path

from hpcmm.cluster import commands, queue, records
from hpcmm.cluster.commands import NoAnswer, NotInstalled, report
from hpcmm.cluster.queue import State
from hpcmm.cluster.records import Record
from hpcmm.model import HpcmmError
from hpcmm.system.logs import first_errors

SECONDS_BETWEEN_CHECKS = 10
CHECKS_UNTIL_OVER = 3  # number of checks in which accounting must report the end of a job that squeue does not list
# At its end, a workflow waits this long for a completing job, and for Slurm to know that a job is over.
SECONDS_TO_CLEAR_UP, SECONDS_TO_KNOW = 60, 5
# Reasons of waiting jobs that need no action of the user
USUAL_REASONS = ("None", "Priority", "Resources", "BeginTime", "Cleaning", "Dependency")
HELD = re.compile("held|hold", re.IGNORECASE)
# Slurm itself holds a job that it could not start; nobody may ever release it
UNKNOWN = State("", listed=False)
HELD_BY_SLURM = re.compile("requeued.*held|HoldMaxRequeue")


class Watch:
    def __init__(self):
        self.states: dict[str, str] = {}  # of all jobs of this run, running or ended
        self.unlisted: dict[str, float] = {}  # when squeue first did not list a job
        self.held: dict[str, float] = {}  # when Slurm was first seen to hold a job
        self.ends: dict[str, int] = {}  # successive checks in which accounting listed it as ended
        self.reported: set[tuple[str, str]] = set()  # job and subject of each report
        self.pause = SECONDS_BETWEEN_CHECKS
        self.wake, self.checked, self.stopped = threading.Event(), threading.Condition(), False
        self.thread: threading.Thread | None = None

    def start(self) -> None:
        self.thread = threading.Thread(target=self.run, name="slurm", daemon=True)
        self.thread.start()

    def run(self) -> None:
        """Check until the end of the workflow. No error ends this thread: failed jobs would go unnoticed."""
        while not self.stopped:
            self.wake.wait(commands.pause(commands.silent_for("squeue"), least=self.pause))
            self.wake.clear()
            try:
                self.check()
            except NoAnswer:  # already reported by ``commands``
                pass
            except Exception as error:
                self.report_exception(error)
            with self.checked:
                self.checked.notify_all()

    def report_exception(self, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        if ("", text) not in self.reported:
            self.reported.add(("", text))
            with suppress(Exception):
                details = [] if isinstance(error, HpcmmError) else traceback.format_exc().splitlines()
                report(f"this check of the jobs failed, the next one follows: {text}", details)

    def check(self) -> None:
        """Check all jobs once; if squeue does not answer, raise NoAnswer, and no job changes its state."""
        left = [record for record in records.read() if record.job]
        if not left:
            return
        listed = queue.states()
        ours = {record.token: queue.of_record(record, listed) for record in left}
        over = queue.accounted([record for record in left if record.job not in listed])
        for record in left:
            try:
                self.update(record, ours[record.token].get(record.job) or over.get(record.job, UNKNOWN))
            except NoAnswer:
                continue
            except Exception as error:  # the other jobs are still checked
                self.report_exception(error)
        for record in left:
            for job, state in ours[record.token].items():
                if job != record.job and record.job in ours[record.token] and not state.final:
                    queue.cancel([job])
                    self.report_once(record, job, f"was submitted twice; its duplicate {job} was cancelled")

    def update(self, record: Record, state: State) -> None:
        job = record.job
        if state.listed:
            self.unlisted.pop(job, None)
            self.ends.pop(job, None)
            self.states[job] = state.name
            if state.final:
                self.finish(record, state)
            elif state.name in ("RUNNING", "COMPLETING"):
                self.held.pop(job, None)
            else:
                self.wait(record, state)
            return
        since = self.unlisted.setdefault(job, time.monotonic())
        # for a moment, accounting also lists a requeued job as ended
        self.ends[job] = self.ends.get(job, 0) + 1 if state.final else 0
        if self.ends[job] >= CHECKS_UNTIL_OVER:
            self.finish(record, state)
        elif not state.final and time.monotonic() - since >= commands.patience():
            if job in self.states:  # squeue once listed it with the token of its record
                queue.cancel([job])
            self.finish(record, State(f"unknown to Slurm for {time.monotonic() - since:.0f} s", listed=False))
        elif not state.final and time.monotonic() - since >= CHECKS_UNTIL_OVER * SECONDS_BETWEEN_CHECKS:
            about = f"sacct reports {state.name}" if state.name else "sacct does not know it"
            self.report_once(record, "unlisted", f"is not listed by squeue, and {about}; it does not count as over")

    def finish(self, record: Record, state: State) -> None:
        """Remove the record of a job that is over; unless it completed, report it to the user and to Snakemake."""
        self.states[record.job] = queue.COMPLETED if state.name == queue.COMPLETED else "FAILED"
        if state.name != queue.COMPLETED:
            errors = first_errors(record.logs)
            if not errors and record.logs:
                errors = [why_over(record, state)]
                records.explain(record, errors[0])
            logs = [f"its logs: {', '.join(record.logs)}"] if record.logs else []
            report(f"job {record.job} {record.name} is over: {state}", [*logs, *errors])
        with records.locked():
            now = next((each for each in records.read() if each.token == record.token), None)
            records.remove(record)
            # read again: Snakemake may have submitted the job again, with the same marker
            if state.name != queue.COMPLETED and now and now.marker and Path(now.marker).parent.is_dir():
                Path(now.marker).touch()

    def wait(self, record: Record, state: State) -> None:
        job, reason = record.job, state.reason
        release, give_up = f"scontrol release {job}", f"to give it up: scancel {job}"
        if HELD_BY_SLURM.search(reason):
            seconds = time.monotonic() - self.held.setdefault(job, time.monotonic())
            if seconds >= commands.patience():
                queue.cancel([job])
                self.finish(record, State(f"held by Slurm for {seconds:.0f} s", reason))
                return
            limit = f"unless you {release}, it is cancelled after {commands.patience():.0f} s"
            self.report_once(record, reason, f"is held by Slurm: {reason}; {limit}")
        elif HELD.search(reason):
            self.report_once(record, reason, f"is held: {reason}; to go on: {release}; {give_up}")
        elif reason not in USUAL_REASONS:
            self.report_once(record, reason, f"waits: {reason}; {give_up}")

    def report_once(self, record: Record, subject: str, text: str) -> None:
        if (record.job, subject) not in self.reported:
            self.reported.add((record.job, subject))
            report(f"job {record.job} {record.name} {text}")

    def settle(self) -> list[str]:
        """Check until the end of each job is known or a time limit is over; return the jobs whose end is not known."""
        began = time.monotonic()
        self.pause = 1
        while left := [record.job or record.name for record in records.read()]:
            limit = SECONDS_TO_CLEAR_UP if "COMPLETING" in self.states.values() else SECONDS_TO_KNOW
            if self.thread is None or time.monotonic() - began > limit:
                break
            with self.checked:
                self.wake.set()
                self.checked.wait(1)
        self.stopped = True
        return left


def why_over(record: Record, state: State) -> str:
    request = f"; it requested {record.request}" if record.request else ""
    try:
        nodes = commands.check_output("sinfo", "--noheader", "--format=%P: %D with %c CPUs, %m MB, %G").split("\n")
    except (NoAnswer, NotInstalled):
        nodes = []
    has = f"; nodes by partition: {'; '.join(filter(None, nodes))}" if request and any(nodes) else ""
    return f"Slurm ended job {record.job} without an error of the job: {state}{request}{has}"
