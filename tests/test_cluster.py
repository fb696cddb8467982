"""A scheduler that falters: programs of Slurm that hang, fail, lie or print nonsense.

The programs are scripts in the place of Slurm's: a queue in a file, and faults before or after what they do.
``tests/test_slurm.py`` does the same to a real Slurm.
"""

import atexit
import contextlib
import functools
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from hpcmm.cli.checks import programs
from hpcmm.cluster import commands, leftovers, queue, records, site, slurm, submit, watch
from hpcmm.cluster.records import Record
from hpcmm.model import HpcmmError
from hpcmm.system import surroundings

ROOT = Path(__file__).parents[1]
# Each program records its calls and runs the scripts NAME.before and NAME.after, which a test writes.
PROGRAM = """#!/bin/bash
cd {folder}
echo "$*" >>{name}.calls
if [ -e {name}.before ]; then . ./{name}.before; fi
{body}
if [ -e {name}.after ]; then . ./{name}.after; fi
"""
BODIES = {
    # queue: number|state|reason|nodes|comment
    "squeue": "cat queue",
    "sacct": "cat accounts",
    "sbatch": """comment=; for each; do case $each in --comment=*) comment=${each#--comment=};; esac; done
number=$((100 + $(grep -c . queue))); echo "$number|PENDING|None||$comment" >>queue; echo $number""",
    "sinfo": "echo 4000+",
    "scancel": 'for each; do sed -i "s/^$each|[A-Z]*|/$each|CANCELLED|/" queue; done',
}
TIMED_OUT = 'echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2; exit 1'


class Faltering:
    """The programs of a Slurm in ``folder``, and their faults."""

    def __init__(self, folder: Path, monkeypatch):
        self.folder = folder
        self.patience = functools.partial(monkeypatch.setenv, "HPCMM_SLURM_PATIENCE")
        self.patience("20")
        for name, body in BODIES.items():
            self.program(name, body)
        for name in ("queue", "accounts"):  # queue(*lines) and accounts(*lines)
            setattr(self, name, functools.partial(self.write, name))
            self.write(name)

    def program(self, name: str, body: str) -> None:
        path = self.folder / name
        path.write_text(PROGRAM.format(folder=shlex.quote(str(self.folder)), name=name, body=body))
        path.chmod(0o755)

    def write(self, name: str, *lines: str) -> None:
        (self.folder / name).write_text("".join(f"{line}\n" for line in lines))

    def before(self, name: str, script: str) -> None:
        self.write(f"{name}.before", script)

    def after(self, name: str, script: str) -> None:
        self.write(f"{name}.after", script)

    def calls(self, name: str) -> list[str]:
        path = self.folder / f"{name}.calls"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def jobs(self) -> list[list[str]]:
        return [line.split("|") for line in (self.folder / "queue").read_text().splitlines()]


@pytest.fixture
def faltering(tmp_path, monkeypatch):
    """A folder of a workflow and a Slurm that is asked without long pauses."""
    folder = tmp_path / "programs"
    folder.mkdir()
    (tmp_path / ".snakemake").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", os.pathsep.join([str(folder), os.environ["PATH"]]))
    monkeypatch.delenv("HPCMM_JOBS", raising=False)
    monkeypatch.setattr(commands, "SECONDS_PER_CALL", 10)
    monkeypatch.setattr(commands, "pause", lambda silent, least=0.0: 0.05)
    monkeypatch.setattr(commands, "since", {})
    monkeypatch.setattr(commands, "reported", set())
    started = []
    start = watch.Watch.start
    monkeypatch.setattr(watch.Watch, "start", lambda self: started.append(self) or start(self))
    yield Faltering(folder, monkeypatch)
    for watching in started:  # a thread that is in a check would otherwise finish it on the records of the next test
        watching.stopped = True
        watching.wake.set()
        watching.thread.join()


@pytest.fixture
def impatient(monkeypatch):
    """A program that hangs is soon given up."""
    monkeypatch.setattr(commands, "SECONDS_PER_CALL", 0.5)


def token_of(job: str) -> str:
    """The token in the record of a job and in its comment."""
    return f"{int(job):016x}"


def listed(job: str, state: str, reason: str = "None", nodes: str = "n1") -> str:
    """A line of squeue for a job of ours."""
    return f"{job}|{state}|{reason}|{nodes}|hpcmm:{token_of(job)}"


def recorded(job: str, name: str = "measure", marker: str = "", token: str = "") -> Record:
    record = Record(token or token_of(job), job, name, marker=marker)
    records.write(record)
    return record


def check(watching: watch.Watch, times: int = 1) -> None:
    for _ in range(times):
        watching.check()


# --- calls that are not answered ---------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder in which this process is Snakemake."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["snakemake"])
    monkeypatch.setattr(atexit, "register", lambda *_: None)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("state", ["alive", "dead", "zombie"])
def test_the_locks_of_a_dead_workflow_are_removed(tmp_path, state):
    """A zombie is dead: its parent has not waited for it."""
    locks = tmp_path / ".snakemake" / "locks"
    locks.mkdir(parents=True)
    with subprocess.Popen(["sleep", "100"]) as workflow:
        process = psutil.Process(workflow.pid)
        slurm.RUN.parent.mkdir(parents=True)
        slurm.RUN.write_text(f"{socket.gethostname()} {workflow.pid} {process.create_time()}\n")
        if state != "alive":
            workflow.kill()
        if state == "dead":
            workflow.wait()
        while state == "zombie" and process.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)
        slurm.clear_after_kill()
        workflow.kill()
    assert locks.exists() == (state == "alive")


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("argument", ["--cores", "--dry-run"])
def test_a_workflow_claims_its_folder_but_a_dry_run_does_not(argument):
    sys.argv.append(argument)
    slurm.claim()
    assert slurm.RUN.exists() == (argument == "--cores")


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("other", [True, False])
def test_a_folder_is_released_only_by_the_process_that_claimed_it(tmp_path, monkeypatch, other):
    claimed, parent = tmp_path / slurm.RUN, psutil.Process(os.getppid())
    claimed.parent.mkdir(parents=True)
    if other:
        claimed.write_text(f"{socket.gethostname()} {parent.pid} {parent.create_time()}\n")
    slurm.claim()
    monkeypatch.chdir("/")
    slurm.release(tmp_path)
    assert claimed.exists() == other and (not other or claimed.read_text().split()[1] == str(parent.pid))


def test_a_hung_program_is_ended_with_its_children(faltering, impatient):
    faltering.before("squeue", "sleep 4321")
    with pytest.raises(commands.NoAnswer, match="squeue: timed out"):
        queue.states()
    assert until(lambda: not [x for x in psutil.process_iter(["cmdline"]) if "4321" in (x.info["cmdline"] or [])])


def test_a_child_that_keeps_the_output_open_does_not_delay(faltering, impatient):
    faltering.before("squeue", "setsid sleep 600 & echo $! >child; exit 1")
    with pytest.raises(commands.NoAnswer):
        queue.states()
    psutil.Process(int((faltering.folder / "child").read_text())).kill()  # it has not ended


def test_an_unanswered_query_is_reported_once_and_so_is_the_next_answer(faltering, monkeypatch, capfd):
    """No job fails meanwhile, however long."""
    monkeypatch.setattr(commands, "SECONDS_UNTIL_REPORTED", 0)
    faltering.patience("0")
    record = recorded("12", marker=str(faltering.folder / "1.jobfailed"))
    faltering.queue(listed("12", "RUNNING"))
    faltering.before("squeue", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1")
    watching = watch.Watch()
    for _ in range(3):
        with pytest.raises(commands.NoAnswer):
            watching.check()
    assert records.read() == [record]
    faltering.before("squeue", "")
    check(watching, 2)
    assert not Path(record.marker).exists()
    silent, again = re.sub(r"\d+ s", "N s", capfd.readouterr().err).splitlines()
    why = "slurm_load_jobs error: Unable to contact slurm controller"
    then = "jobs go on, and those that ended are noticed once it answers"
    assert silent == f"hpcmm: squeue has not answered for N s ({why}); {then}"
    assert again == "hpcmm: squeue answers again after N s"


def test_settings_of_the_user_hide_no_job(faltering, monkeypatch):
    monkeypatch.setenv("SQUEUE_PARTITION", "other")
    faltering.queue(listed("12", "RUNNING"))
    faltering.before("squeue", '[ -z "$SQUEUE_PARTITION" ] || exit 0')
    assert "12" in queue.states()


# --- the end of a job --------------------------------------------------------------------------------------------


@pytest.fixture
def marked(faltering):
    """A job that Slurm runs, and the file by which Snakemake knows that it failed."""
    marker = faltering.folder / "1.jobfailed"
    recorded("12", marker=str(marker))
    faltering.queue(listed("12", "RUNNING"))
    faltering.accounts("12|RUNNING")
    return marker


SACCT = ["echo '12|RUNNING'; exit", "exit", "echo '12|PENDING'; exit", "sleep 60", "exit 1"]


@pytest.mark.parametrize("answer", [*SACCT, "echo 'Slurm accounting storage is disabled' >&2; exit 1"])
def test_a_job_missing_from_squeue_has_not_ended(faltering, impatient, marked, capfd, answer):
    """Nor if sacct does not answer."""
    faltering.before("sacct", answer)
    watching = watch.Watch()
    for _ in range(6):
        with contextlib.suppress(commands.NoAnswer):  # of squeue, on a busy machine
            watching.check()
        faltering.queue()
    assert not marked.exists()
    assert len(records.read()) == 1
    assert "is over" not in capfd.readouterr().err


@pytest.mark.parametrize("comment", ["", f"|hpcmm:{token_of('12')}"])
def test_a_job_has_ended_after_three_answers_of_sacct(faltering, marked, capfd, comment):
    faltering.queue()
    faltering.accounts("12|FAILED|another's")
    watching = watch.Watch()
    check(watching, 5)
    assert not marked.exists()
    faltering.accounts(f"12|CANCELLED by 1000{comment}")
    check(watching, watch.CHECKS_UNTIL_OVER - 1)
    assert not marked.exists()
    check(watching)
    assert marked.exists()
    assert "job 12 measure is over: CANCELLED" in capfd.readouterr().err
    assert records.read() == []


@pytest.mark.parametrize(
    ("state", "reason", "by_slurm"),
    [
        ("PENDING", "launch failed requeued held", True),
        ("PENDING", "launch_failed_requeued_held", True),
        ("PENDING", "JobHoldMaxRequeue", True),
        ("REQUEUE_HOLD", "job requeued in held state", True),
        ("SPECIAL_EXIT", "job requeued in held state", True),
        ("PENDING", "JobHeldAdmin", False),
        ("PENDING", "JobHeldUser", False),
        ("PENDING", "QOSMaxCpuPerUserLimit", False),
    ],
)
def test_a_held_job_is_named_and_given_up_if_slurm_holds_it(faltering, marked, capfd, state, reason, by_slurm):
    faltering.patience("600")
    watching = watch.Watch()
    faltering.queue(listed("12", state, reason))
    check(watching, 3)
    errors = capfd.readouterr().err
    assert errors.count(f": {reason}; ") == 1, errors
    assert ("scontrol release 12" in errors) == ("eld" in reason or "Hold" in reason)
    assert not marked.exists()
    faltering.patience("0.1")
    time.sleep(0.1)
    check(watching)
    assert marked.exists() == by_slurm
    assert faltering.calls("scancel") == (["12"] if by_slurm else [])
    over = rf"job 12 measure is over: held by Slurm for \d+ s \({reason}\)"
    assert bool(re.search(over, capfd.readouterr().err)) == by_slurm


def test_a_held_job_that_is_released_goes_on(faltering, marked):
    watching = watch.Watch()
    for state, reason in (("PENDING", "launch failed requeued held"), ("RUNNING", "None")) * 2:
        faltering.queue(listed("12", state, reason))
        check(watching)
        faltering.patience("0.5")
        time.sleep(0.5)
    assert not marked.exists()


def test_a_job_unknown_to_slurm_is_cancelled_and_given_up_when_the_patience_is_over(faltering, marked, capfd):
    faltering.patience("600")
    watching = watch.Watch()
    check(watching)
    faltering.queue()
    faltering.accounts()
    check(watching, 2)
    assert not marked.exists()
    faltering.patience("0.5")
    time.sleep(0.5)
    check(watching)
    assert marked.exists()
    assert faltering.calls("scancel") == ["12"]
    assert "job 12 measure is over: unknown to Slurm for" in capfd.readouterr().err


def test_undecodable_output_is_no_error(faltering, marked, capfd):
    faltering.before("squeue", r"printf '\xff\xfe|\x80\n'")
    faltering.queue("13|RUNNING|None|n1|caf\udce9".encode("utf-8", "surrogateescape").decode("latin-1"))
    watching = watch.Watch()
    check(watching)
    faltering.queue(listed("12", "FAILED", "NonZeroExitCode"))
    check(watching)
    assert marked.exists()
    assert "job 12 measure is over: FAILED (NonZeroExitCode) on n1" in capfd.readouterr().err


def test_the_thread_survives_everything_and_reports_it(faltering, marked, monkeypatch, capfd):
    monkeypatch.setattr(watch, "SECONDS_BETWEEN_CHECKS", 0)
    states, calls = queue.states, []

    def broken():
        calls.append(1)
        if len(calls) < 4:
            raise RuntimeError("of an unexpected kind")
        return states()

    monkeypatch.setattr(queue, "states", broken)
    watching = watch.Watch()
    watching.start()
    faltering.queue(listed("12", "FAILED", "NonZeroExitCode"))
    assert until(marked.exists)
    assert watching.settle() == []
    errors = capfd.readouterr().err
    failed = "this check of the jobs failed, the next one follows: RuntimeError: of an unexpected kind"
    assert errors.count(failed) == 1


def until(condition, seconds: float = 60) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


def test_other_jobs_are_checked_if_one_check_fails(faltering, marked, monkeypatch, capfd):
    recorded("13", "other")
    faltering.queue(listed("12", "FAILED"), listed("13", "FAILED"))
    finish = watch.Watch.finish

    def first_fails(self, record, state):
        if record.job == "12":
            raise OSError(28, "No space left on device")
        finish(self, record, state)

    monkeypatch.setattr(watch.Watch, "finish", first_fails)
    check(watch.Watch())
    errors = capfd.readouterr().err
    assert "job 13 other is over: FAILED on n1" in errors
    assert "OSError: [Errno 28] No space left on device" in errors


def test_a_marker_is_made_even_if_stderr_is_closed(faltering, marked, monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)
    faltering.queue(listed("12", "FAILED"))
    with monkeypatch.context() as patch, contextlib.suppress(BrokenPipeError), os.fdopen(writer, "w") as file:
        patch.setattr(sys, "stderr", file)
        check(watch.Watch())
    assert marked.exists()


def test_at_the_end_slurm_has_time_to_clear_up_after_the_last_job(faltering, marked, monkeypatch, capfd):
    monkeypatch.setattr(watch, "SECONDS_BETWEEN_CHECKS", 1000)
    monkeypatch.setattr(watch, "SECONDS_TO_KNOW", 60)
    monkeypatch.setattr(slurm, "watch", watch.Watch())
    states = "case $(grep -c . squeue.calls) in 1) s=RUNNING;; 9) s=FAILED;; *) s=COMPLETING;; esac"
    faltering.before("squeue", f'{states}\necho "{listed("12", "$s")}"; exit')
    slurm.watch.start()
    slurm.end()
    assert "job 12 measure is over: FAILED" in capfd.readouterr().err
    assert len(faltering.calls("squeue")) >= 9


def test_the_end_does_not_wait_for_an_unresponsive_slurm(faltering, impatient, marked, monkeypatch, capfd):
    monkeypatch.setattr(watch, "SECONDS_TO_KNOW", 1)
    monkeypatch.setattr(slurm, "watch", watch.Watch())
    faltering.before("squeue", "sleep 60")
    slurm.watch.start()
    slurm.end()
    assert "still in the queue: 12; the next start in this folder cancels them" in capfd.readouterr().err
    assert not marked.exists()


# --- jobs of others ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("comment", "over"),
    [("another's", False), ("", False), ("hpcmm:ffffffffffffffff", False), (f"mine hpcmm:{token_of('12')}", True)],
    ids=["another's", "without a comment", "of another folder", "ours"],
)
def test_only_a_job_with_our_comment_ends_a_record_or_is_cancelled(faltering, comment, over):
    record = recorded("12", marker=str(faltering.folder / "1.jobfailed"))
    faltering.queue(f"12|FAILED|None|n1|{comment}")
    watching = watch.Watch()
    check(watching, 3)
    assert Path(record.marker).exists() == over
    assert (records.read() == []) == over
    assert watching.states.get("12") == ("FAILED" if over else None)
    faltering.queue(f"12|RUNNING|None|n1|{comment}")
    slurm.cancel_leftovers()
    assert [each[1] for each in faltering.jobs] == ["RUNNING"], "not cancelled"


@pytest.mark.parametrize(
    ("text", "when"), [("2026", "before"), ("7 nodes are down", "after"), ("Submitted batch job 7", "before")]
)
def test_lines_of_a_site_are_no_jobs(faltering, text, when):
    getattr(faltering, when)("sbatch", f"echo '{text}'")
    done = sbatch()
    assert (done.returncode, done.stdout) == (0, "100\n"), done.stderr
    assert records.read()[0].job == "100"
    assert len(faltering.calls("sbatch")) == 1


@pytest.mark.parametrize("given", [["-M", "north"], ["--clusters=north"], ["--cluster", "north"]])
def test_a_job_on_another_cluster_is_refused(faltering, given):
    done = sbatch(*given, "job.sh")
    assert done.returncode == 1 and "jobs on another cluster are not followed" in done.stderr
    assert faltering.jobs == [] and sbatch(SBATCH_CLUSTERS="north").returncode == 1


# --- refusals ----------------------------------------------------------------------------------------------------

ERROR = "sbatch: error: "
BUSY = "Slurm temporarily unable to accept job, sleeping and retrying"


# Slurm keeps MaxJobCount jobs of all users; before it refuses, sbatch itself repeats the call
REFUSED = "Batch job submission failed: Resource temporarily unavailable"
NO_ROOM = f"echo '{ERROR}{BUSY}' >&2; echo '{ERROR}{REFUSED}' >&2; exit 1"


@pytest.mark.parametrize(
    ("nodes", "gres", "known"),
    [
        ("echo '(null)'", "gpu", False),
        ("echo fpga:2; echo '(null)'", "gpu:h200", False),
        ("echo 'mps:100,gpu:h200:4(S:0-1)'; echo '(null)'", "gpu:h200", True),
        ("echo '(null)'", site.NONE, True),
        ("exit 1", "gpu", True),
        (":", "gpu", True),
    ],
)
def test_a_cluster_without_gpus_is_planned_without_them(faltering, nodes, gres, known):
    faltering.program("sinfo", nodes)
    machine = site.Site(gpu=gres).machine()
    why = "no node of the cluster has the GRES gpu (gpu: in profiles/slurm/site.yaml)"
    assert machine.missing.get("cuda", "") == ("" if known else why)
    assert not machine.missing.get("cpu")


def test_a_job_that_slurm_ends_before_it_starts_is_explained_in_its_log(faltering, capfd):
    faltering.program("sinfo", "echo 'main*: 4 with 2 CPUs, 22500 MB, gpu:4'")
    assert sbatch("--mem=22323M", "job.sh").returncode == 0
    (record,) = records.read()
    faltering.queue(f"100|FAILED|BadConstraints||hpcmm:{record.token}")
    check(watch.Watch())
    expected = "FAILED (BadConstraints); it requested --ntasks=2 --mem=22323M; nodes by partition: main*: 4 with 2 CPUs"
    assert expected in capfd.readouterr().err
    assert expected in watch.first_errors(["a.log"])[0]


# --- records -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xff", b"[]", b'{"job": 12}', b'{"job": "", "name": "", "marker": "", "logs": [1]}']
)
def test_a_damaged_record_is_replaced_and_its_job_is_cancelled(faltering, content, capfd):
    token = "0123456789abcdef"
    records.FOLDER.mkdir(parents=True)
    (records.FOLDER / token).write_bytes(content)
    faltering.queue(f"12|RUNNING|None|n1|mine hpcmm:{token}", "13|RUNNING|None|n1|another's")
    slurm.cancel_leftovers()
    errors = capfd.readouterr().err
    assert f"{records.FOLDER / token} is not a record of a job (" in errors
    assert faltering.calls("scancel") == ["12"]
    slurm.cancel_leftovers()
    assert capfd.readouterr().err == ""


def test_a_workflow_continues_with_a_damaged_record(faltering, marked):
    (records.FOLDER / "00").write_text("")
    faltering.queue(listed("12", "FAILED"))
    check(watch.Watch())
    assert marked.exists()


def test_jobs_of_a_killed_run_are_cancelled_even_if_squeue_lists_nothing_at_first(faltering, marked, capfd):
    faltering.before("squeue", "[ $(grep -c . squeue.calls) -ge 3 ] || exit 0")
    slurm.cancel_leftovers()
    assert faltering.calls("scancel")[0] == "12"
    assert "cancelled jobs of a run that was killed: 12" in capfd.readouterr().err


def test_a_job_that_squeue_never_lists_is_reported_and_not_cancelled(faltering, marked, capfd):
    """Its number alone does not show that it is ours."""
    faltering.queue()
    slurm.cancel_leftovers()
    assert faltering.calls("scancel") == []
    said = "squeue does not list jobs of a run that was killed, so they were not cancelled: 12"
    assert said in capfd.readouterr().err


def test_a_start_waits_for_squeue_and_scancel(faltering, marked):
    for program in ("squeue", "scancel"):
        faltering.before(program, f"[ $(( $(grep -c . {program}.calls) % 2 )) = 0 ] || exit 1")
    slurm.cancel_leftovers()
    assert faltering.jobs[0][1] == "CANCELLED"
    assert records.read() == []


@pytest.mark.parametrize("why", ["squeue: exit status 1", "Slurm's squeue is not on the PATH"])
def test_a_start_without_slurm_or_its_answer_is_one_error_and_keeps_the_records(faltering, marked, monkeypatch, why):
    """Without Slurm at once."""
    faltering.before("squeue", "exit 1")
    faltering.patience("0.3")
    if "PATH" in why:
        faltering.patience("600")
        monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(HpcmmError, match=f"{why}; .*jobs of an earlier run may still be .*: 12"):
        slurm.cancel_leftovers()
    assert len(records.read()) == 1


# --- submissions -------------------------------------------------------------------------------------------------

SCRIPT = """#!/bin/sh
# properties = {"rule": "measure", "wildcards": {"batch": "a/b"}, "resources": {"tasks": 2}, "log": ["a.log"]}
work && touch '/x/1.jobfinished' || (touch 'MARKER'; exit 1)
"""


def sbatch(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    """Call ``jobs/bin/sbatch`` as Snakemake does; a program that hangs is soon given up."""
    Path("job.sh").write_text(SCRIPT.replace("MARKER", str(Path("1.jobfailed").resolve())))
    limit = 1 if any("sleep" in path.read_text() for path in Path("programs").glob("sbatch.*")) else 20
    program = f"import sys; from hpcmm.cluster import commands, submit; commands.SECONDS_PER_CALL = {limit}\n"
    program += "submit.SECONDS_TO_ARRIVE = 0.1; sys.argv[0] = sys.argv.pop(1); sys.exit(submit.main(sys.argv))"
    command = [sys.executable, "-c", program, ROOT / "jobs/bin/sbatch", *(arguments or ["job.sh"])]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | environment, timeout=180)


def test_a_submission_keeps_a_record_and_prints_the_number(faltering):
    done = sbatch()
    assert (done.returncode, done.stdout, done.stderr) == (0, "100\n", "")
    (record,) = records.read()
    assert (record.job, record.name) == ("100", "measure-a-b")
    assert record.logs == ("a.log", ".snakemake/slurm_logs/measure-a-b-100.log")
    assert record.marker == str(Path("1.jobfailed").resolve())
    assert faltering.jobs[0][4] == f"hpcmm:{record.token}"
    assert "--ntasks=2" in faltering.calls("sbatch")[0]


def test_a_job_script_in_a_folder_with_special_characters_is_quoted(faltering):
    """Snakemake writes the path of Python as it is, and every other path in quotes."""
    python = "/it's my/python3"
    Path("odd.sh").write_text(
        '#!/bin/sh\n# properties = {"rule": "measure"}\n'
        f"cd '/x' && {python} -m snakemake --cores 1 && touch \"/it's my/1.jobfinished\" || "
        '(touch "/it\'s my/1.jobfailed"; exit 1)\n'
    )
    done = sbatch("odd.sh", HPCMM_PYTHON=python)
    assert done.returncode == 0, done.stderr
    assert records.read()[0].marker == "/it's my/1.jobfailed"
    assert shlex.split(Path("odd.sh").read_text().splitlines()[-1])[3:6] == [python, "-m", "snakemake"]


@pytest.mark.parametrize("fault", [TIMED_OUT, "exit 1", "sleep 60", "echo nonsense; exit 0", "kill -9 $$"])
def test_a_submission_that_failed_after_it_arrived_is_found_by_its_comment(faltering, fault):
    faltering.program("sbatch", BODIES["sbatch"].replace("echo $number", ""))
    faltering.after("sbatch", fault)
    done = sbatch()
    assert (done.returncode, done.stdout) == (0, "100\n"), done.stderr
    assert re.search("sbatch failed (.*), but Slurm has the job: 100", done.stderr)
    assert len(faltering.calls("sbatch")) == len(faltering.jobs) == 1
    assert records.read()[0].job == "100"


@pytest.mark.parametrize("fault", [TIMED_OUT, "sleep 60", "exit 0", "kill -9 $$", NO_ROOM])
def test_a_submission_that_did_not_arrive_is_repeated(faltering, fault):
    faltering.before("sbatch", f"[ $(grep -c . sbatch.calls) -ge 3 ] || {{ {fault}; }}")
    done = sbatch(HPCMM_SLURM_PATIENCE="30")
    assert (done.returncode, done.stdout) == (0, "100\n"), done.stderr
    assert len(faltering.calls("sbatch")) == 3
    assert len(faltering.jobs) == 1


@pytest.mark.parametrize(
    "silent", ["[ $(grep -c . squeue.calls) -ge 4 ] || exit 1", "[ $(grep -c . squeue.calls) -ge 2 ] || exit 0"]
)
def test_a_submission_is_not_repeated_before_squeue_answers_nor_after_one_empty_answer(faltering, silent):
    faltering.after("sbatch", TIMED_OUT)
    faltering.before("squeue", silent)
    done = sbatch(HPCMM_SLURM_PATIENCE="30")
    assert (done.returncode, done.stdout) == (0, "100\n"), done.stderr
    assert len(faltering.calls("sbatch")) == len(faltering.jobs) == 1


@pytest.mark.parametrize(
    "lines",
    [
        [f"{ERROR}Batch job submission failed: Invalid partition name specified"],
        [ERROR + BUSY, f"{ERROR}Batch job submission failed: Job violates accounting/QOS policy"],
        ["sbatch: unrecognized option '--whatever'"],
    ],
)
def test_a_refused_submission_is_an_error_at_once_also_in_the_log(faltering, lines):
    """The report and the messages of a run take it from there, word for word."""
    faltering.before("sbatch", "".join(f"echo {shlex.quote(line)} >&2; " for line in lines) + "exit 1")
    Path("a.log").write_text("RuntimeError: of an earlier attempt\n")
    done = sbatch()
    assert (done.returncode, done.stdout, done.stderr.splitlines()) == (1, "", lines)
    assert watch.first_errors(["a.log"]) == [f"hpcmm: error: {'; '.join(lines)}"]
    assert len(faltering.calls("sbatch")) == 1
    assert records.read() == []


def test_a_submission_without_an_answer_ends_at_the_time_limit(faltering):
    faltering.before("sbatch", TIMED_OUT)
    done = sbatch(HPCMM_SLURM_PATIENCE="1")
    assert done.returncode == 1
    assert "hpcmm: error: sbatch: sbatch: error: Batch job submission failed: Socket timed out" in done.stderr


def test_a_given_comment_is_kept(faltering):
    done = sbatch("--comment", "mine", "job.sh")
    assert (done.returncode, done.stdout) == (0, "100\n"), done.stderr
    assert re.fullmatch("mine hpcmm:[0-9a-f]{16}", faltering.jobs[0][4])


def test_other_calls_of_sbatch_go_to_slurm_unchanged(faltering):
    faltering.program("sbatch", 'echo "[$*]"; exit 3')
    done = sbatch("--version")
    assert (done.returncode, done.stdout) == (3, "[--version]\n")
    assert records.read() == []


def test_a_submission_that_another_start_gave_up_is_cancelled(faltering):
    faltering.before("sbatch", f"rm -f {shlex.quote(str(records.FOLDER.resolve()))}/*")
    assert sbatch().returncode == 1
    assert faltering.jobs[0][1] == "CANCELLED"


def test_a_job_of_a_killed_sbatch_is_cancelled_by_the_next_start(faltering, capfd):
    faltering.after("sbatch", "kill -9 $(cut -d ' ' -f 4 /proc/$PPID/stat)")  # above `timeout`
    assert sbatch().returncode == -signal.SIGKILL
    assert [record.job for record in records.read()] == [""]
    slurm.cancel_leftovers()
    assert "cancelled jobs of a run that was killed: 100" in capfd.readouterr().err
    assert faltering.jobs[0][1] == "CANCELLED"


def test_a_late_duplicate_of_a_repeated_submission_is_cancelled(faltering, capfd):
    record = recorded("12", token="0123456789abcdef")
    comment = f"hpcmm:{record.token}"
    faltering.queue(f"11|PENDING|None||{comment}", f"12|RUNNING|None|n1|{comment}", listed("13", "RUNNING"))
    check(watch.Watch(), 2)
    assert [job[1] for job in faltering.jobs] == ["CANCELLED", "RUNNING", "RUNNING"]
    assert "job 12 measure was submitted twice; its duplicate 11 was cancelled" in capfd.readouterr().err


def test_a_job_that_was_submitted_again_is_not_given_up_for_the_first(faltering, marked):
    """Snakemake uses the same file for both."""
    marked.touch()
    submit.begin(Record("ff", marker=str(marked)))
    assert not marked.exists()
    faltering.queue(listed("12", "FAILED"))
    check(watch.Watch())
    assert not marked.exists()


def test_the_slurm_executor_of_snakemake_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = type("ExecutorSettings", (), {"__module__": "snakemake_executor_plugin_slurm"})()
    with pytest.raises(HpcmmError, match="use --cluster sbatch"):
        slurm.begin(True, SimpleNamespace(executor_settings=settings))


# --- a local run in an allocation ---------------------------------------------------------------------------------


def test_a_local_run_in_an_allocation_starts_its_ranks_here(faltering, monkeypatch):
    """Otherwise mpiexec starts them by srun, on the nodes of `salloc -n 4 snakemake --cores 2`."""
    faltering.program("srun", "exit 1")
    allocation = {
        "SLURM_JOB_ID": "12", "SLURM_JOBID": "12", "SLURM_NTASKS": "4", "SLURM_NNODES": "2", "SLURM_JOB_NUM_NODES": "2",
        "SLURM_NODELIST": "nowhere[1-2]", "SLURM_JOB_NODELIST": "nowhere[1-2]", "SLURM_TASKS_PER_NODE": "2(x2)",
        "SLURMD_NODENAME": "nowhere1", "SLURM_CONF": "/etc/slurm/slurm.conf",
    }  # fmt: skip
    for name, value in allocation.items():
        monkeypatch.setenv(name, value)
    launcher = Path(sys.executable).parent / "mpiexec"
    if not launcher.exists():
        pytest.skip("no mpiexec beside this Python")
    ranks = "import os; from hpcmm.parallel import world; line = f'{world.world().size} {world.node()}\\n'; "
    ranks += "os.write(1, line.encode())"  # at once, as the lines of several ranks may run into each other
    environment = surroundings.measuring(os.environ)
    assert {name for name in environment if name.startswith("SLURM")} == {"SLURM_CONF"}
    command = [launcher, "-n", "2", sys.executable, "-c", ranks]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, env=environment)
    assert done.stdout.splitlines() == [f"2 {socket.gethostname()}"] * 2, done.stderr
    assert faltering.calls("srun") == []


# --- what killed ranks leave -------------------------------------------------------------------------------------

RANKS = """
import os, time
from mpi4py import MPI
MPI.COMM_WORLD.Barrier()
os.write(1, b"r")
time.sleep(600)
"""


def family(job: subprocess.Popen) -> list[psutil.Process]:
    """A launcher and its ranks, once these have started."""
    assert [job.stdout.read(1) for _ in range(2)] == ["r", "r"]
    return [*psutil.Process(job.pid).children(recursive=True), psutil.Process(job.pid)]


def files_of(processes: list[psutil.Process]) -> set[str]:
    opened = {each.path for process in processes for each in [*process.memory_maps(), *process.open_files()]}
    return {each for each in opened if re.match("/dev/shm/mpich_shm_|/tmp/hydra_", each)}


def test_leftovers_are_old_files_of_this_user(tmp_path, monkeypatch):
    file = tmp_path / "mpich_shm_1"
    file.touch()
    monkeypatch.setattr(leftovers, "PATTERNS", [str(file)])
    assert leftovers.find() == [], "a rank may be about to open it"
    os.utime(file, (0, time.time() - leftovers.SECONDS_TO_START))
    assert leftovers.find() == [file]
    if os.getuid() == 0:  # only root can be two users
        os.chown(file, 12345, 12345)
        assert leftovers.find() == []


def test_leftovers_of_killed_ranks_are_removed_and_files_in_use_are_not(tmp_path, mpi_job, monkeypatch):
    monkeypatch.setattr(leftovers, "SECONDS_TO_START", 0)
    program = tmp_path / "ranks.py"
    program.write_text(RANKS)
    with mpi_job(2, program) as first, mpi_job(2, program) as second:
        killed = family(first)
        left, used = files_of(killed), files_of(family(second))
        assert {str(Path(each).parent) for each in left} == {"/dev/shm", "/tmp"}
        monkeypatch.setattr(leftovers, "PATTERNS", sorted(left | used))  # no file of a job that is about to start
        assert not {str(path) for path in leftovers.find()} & (left | used)
        for process in killed:
            process.kill()
        psutil.wait_procs(killed[:-1])
        first.wait()
        list(programs.check_leftovers(clean=True))
        assert not any(Path(name).exists() for name in left)
        assert all(Path(name).exists() for name in used)
    leftovers.remove()


def test_removed_files_are_listed(tmp_path, monkeypatch):
    monkeypatch.setattr(leftovers, "SECONDS_TO_START", 0)
    files = [tmp_path / f"mpich_shm_{i}" for i in range(leftovers.MOST_NAMED + 2)]
    for file in files:
        file.touch()
    with files[0].open():
        monkeypatch.setattr(leftovers, "PATTERNS", [str(tmp_path / "mpich_shm_*")])
        (reported,) = programs.check_leftovers(clean=False)
        assert reported.state == "warning" and "hpcmm doctor --clean" in reported.advice
        assert all(file.exists() for file in files), "only --clean deletes them"
        (check,) = programs.check_leftovers(clean=True)
    assert check.state == "ok"
    assert check.found.startswith(f"removed files of killed ranks: {files[1]}, ") and check.found.endswith("and 1 more")
    assert [file for file in files if file.exists()] == files[:1], "the one that is open"
