"""The whole way from a config to the report, through Snakemake."""

import contextlib
import copy
import fcntl
import functools
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import yaml
from tasks import CONFIGS
from timings import page_of

from hpcmm import backends, store
from hpcmm.bench import status
from hpcmm.cli import init, run
from hpcmm.cluster import slurm
from hpcmm.operations import MATMUL

ROOT = Path(__file__).parents[1]
SNAKEMAKE = shutil.which("snakemake")

pytestmark = [
    pytest.mark.timeout(1500),  # each starts Snakemake several times
    pytest.mark.skipif(not SNAKEMAKE, reason="snakemake is not on PATH"),
]

CONFIG = CONFIGS["workflow"]

FOLDER = "it's my test"  # a name that a shell must have quoted
TIMINGS = "results/timings.h5"  # a target without the report, which takes longest to make


def run_snakemake(folder, config, *arguments):
    """Run Snakemake on a config in a folder; return the finished process."""
    file = folder / "experiment.yaml"
    file.write_text(yaml.safe_dump(config))
    command = [SNAKEMAKE, "--snakefile", ROOT / "Snakefile", "--directory", folder, "--configfile", file]
    command += ["--cores", "2", *arguments]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)


def start_run(folder, *arguments):
    """Start ``hpcmm run`` in a working folder."""
    command = [Path(SNAKEMAKE).with_name("python"), "-m", "hpcmm", "run", "--cores", "2", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=folder, start_new_session=True, **pipes)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Return the working folder in which ``hpcmm run`` has run CONFIG, and its output."""
    folder = tmp_path_factory.mktemp("finished") / FOLDER
    init.write(folder)
    (folder / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    process = start_run(folder)
    output = process.communicate(timeout=600)
    assert process.returncode == 0, output
    return folder, *output


@pytest.fixture
def snakemake(request, tmp_path):
    """Run Snakemake on a config in a folder of its own, ``run.folder``; returns the finished process.

    ``run.start_finished()`` copies the folder of a finished run of CONFIG there.
    """
    folder = tmp_path / FOLDER
    folder.mkdir()
    run = functools.partial(run_snakemake, folder)
    run.folder = folder

    def start_finished():
        shutil.copytree(request.getfixturevalue("finished")[0], folder, symlinks=True, dirs_exist_ok=True)

    run.start_finished = start_finished
    return run


@pytest.fixture
def hpcmm_run(snakemake):
    """Start ``hpcmm run`` on a config in a working folder, ``hpcmm_run.folder``, and return the process."""
    folder = snakemake.folder / "working"
    init.write(folder)

    def start(config, *arguments):
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
        return start_run(folder, *arguments)

    start.folder = folder
    return start


def changed(**sweep):
    return CONFIG | {"sweeps": CONFIG["sweeps"] | {"small": CONFIG["sweeps"]["small"] | sweep}}


def planned(output):
    """Jobs that a run has started, or that a dry run would start."""
    return set(re.findall(r"^\s*output: \.snakemake/hpcmm/done/(\S+)", output, re.MULTILINE))


@pytest.mark.slow
def test_from_config_to_report_and_only_what_changed_again(snakemake):
    snakemake.start_finished()
    results = snakemake.folder / "results"
    jobs = {"small/cpu-r1-1": "small/cpu-r1-1", "small/cpu-r2-1": "small/cpu-r2-1", "sum/cpu-r2-1": "small/cpu-r2-1"}
    for batch, job in jobs.items():
        assert re.search(f"{batch} .* PASS", (results / "logs" / f"{job}.log").read_text())
        assert not (results / "raw" / f"{batch}.journal").exists()
        assert not (snakemake.folder / ".snakemake" / "hpcmm" / "failed" / job).exists()

    columns = store.read(results / "timings.h5")
    measured = set(zip(*(columns["measurements"][c] for c in ("sweep", "variant", "ranks")), strict=True))
    small = {("small", variant, ranks) for variant in ("serial", "numpy") for ranks in (1, 2)}
    assert measured == small | {("sum", "serial", 2)}
    assert columns["measurements"]["passed"].all()
    assert set(columns["omitted"]["variant"]) == {"naive"}
    page = page_of(results / "report.html")
    assert "backends: cpu" in page, "the report says why naive is missing"
    assert (results / "tables" / "small.csv").exists() and (results / "tables" / "small.md").exists()

    (why,) = set(columns["unprofiled"]["reason"])
    assert why.startswith("not requested: run make profile")
    assert why not in page, "there is no GPU whose kernels a profile could show"

    (results / "raw" / "sum" / "cpu-r2-1.h5").unlink()
    restored = snakemake(CONFIG, TIMINGS)
    assert planned(restored.stdout) == {"small/cpu-r2-1"}, "a job without the file of a batch"
    assert restored.returncode == 0 and " PASS " not in restored.stdout, "the points are kept"
    assert (results / "raw" / "sum" / "cpu-r2-1.h5").exists()


def sizes_of(folder):
    """Return the sweeps of a timings file, each with the sizes of its points."""
    rows, found = store.read(folder / TIMINGS)["measurements"], {}
    for sweep, size in zip(rows["sweep"], rows["n"], strict=True):
        found.setdefault(sweep, set()).add(int(size))
    return found


@pytest.mark.slow
def test_what_is_shown_follows_from_contents_and_not_from_dates_or_records(snakemake, command, tmp_path):
    snakemake.start_finished()
    shutil.rmtree(snakemake.folder / ".snakemake")
    before = times(store.read(snakemake.folder / TIMINGS))
    edited = snakemake(changed(sizes=[7, 9], ranks=[1]))
    assert edited.returncode == 0 and set(re.findall(r"serial (\S+) .* PASS", edited.stdout)) == {"9x9x9"}
    assert sizes_of(snakemake.folder) == {"small": {7, 9}, "sum": {1000}}
    after = times(store.read(snakemake.folder / TIMINGS))
    assert {place[0] for place in before.keys() & after.keys()} == {"small", "sum"}
    assert all(after[place] == before[place] for place in before.keys() & after.keys()), "points are kept"
    page = (snakemake.folder / "results" / "report.html").read_text()
    assert "7 points" in page and command("status", folder=snakemake.folder).returncode == 0
    (snakemake.folder / "results" / "report.html").unlink()
    os.utime(snakemake.folder / TIMINGS, (2**31, 2**31))  # the clock was set back before the page is written
    assert snakemake(changed(sizes=[7, 9], ranks=[1])).returncode == 0, "hpcmm status agrees"
    assert command("status", folder=snakemake.folder).returncode == 0

    shutil.copytree(snakemake.folder, tmp_path / "copy", copy_function=shutil.copy)  # with other dates
    for path in (tmp_path / "copy" / "results").glob("*.h*"):
        os.utime(path, (2**31, 2**31))  # by a clock that is ahead
    fewer = CONFIG | {"sweeps": {"small": changed(sizes=[7, 32], ranks=[1])["sweeps"]["small"]}}
    again = run_snakemake(tmp_path / "copy", fewer, TIMINGS, "--rerun-triggers", "mtime")
    assert again.returncode == 0 and planned(again.stdout) == {"small/cpu-r1-1"}
    assert sizes_of(tmp_path / "copy") == {"small": {7, 32}}
    assert command("status", folder=tmp_path / "copy").returncode == 1, "the page shows other points"


@pytest.mark.slow
def test_a_report_of_snakemake_has_the_page(snakemake):
    snakemake.start_finished()
    page = (snakemake.folder / "results" / "report.html").read_text()
    packed = snakemake(CONFIG, "--report", "report.zip")
    assert packed.returncode == 0, packed.stdout
    with zipfile.ZipFile(snakemake.folder / "report.zip") as file:
        texts = [file.read(name).decode() for name in file.namelist() if name.endswith("/report.html")]
    assert [text for text in texts if "Benchmark report" in text] == [page]


def times(columns):
    """Of each point of serial, the kernel times."""
    rows, samples = columns["measurements"], columns["samples"]
    found = {}
    for i in np.flatnonzero(rows["variant"] == "serial"):
        place = tuple(rows[name][i] for name in ("sweep", "contender", "m", "n", "ranks", "dtype"))
        found[place] = tuple(samples["kernel"][(samples["measurement"] == i) & (samples["call"] == 0)])
    return found


def test_a_wrong_config_is_refused_before_anything_runs(snakemake):
    run = snakemake(changed(dtypes=["int16"]))
    assert run.returncode != 0
    allowed = ", ".join(MATMUL.dtypes)
    said = f"experiment.yaml: sweeps.small.dtypes: 'int16' is not allowed; allowed: {allowed}; did you mean 'int8'?"
    assert re.search(f"^hpcmm: error: .*{re.escape(said)}$", run.stdout, re.MULTILINE)
    assert not (snakemake.folder / "results").exists()


@pytest.mark.slow
@pytest.mark.skipif(not backends.missing("cuda"), reason="this machine has a GPU")
def test_questions_need_no_cores_and_nested_numbers_of_the_command_line_are_numbers(snakemake):
    sweeps = "sweeps={mine: {operation: sum, variants: [serial], sizes: [10], dtypes: [int32]}}"
    (snakemake.folder / "experiment.yaml").write_text(yaml.safe_dump(CONFIG))
    command = [SNAKEMAKE, "--snakefile", ROOT / "Snakefile", "--configfile", "experiment.yaml"]
    command += ["--config", sweeps, "--dag"]
    done = subprocess.run(command, cwd=snakemake.folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "digraph" in done.stdout, done.stderr


def test_run_shows_the_plan_its_progress_and_the_answer_without_messages_of_snakemake(finished):
    folder, output, errors = finished
    others = ("hpcmm: waiting for the measurement of ", "hpcmm: removed files of killed ranks")
    ahead, *progress = [line for line in errors.splitlines() if not line.startswith(others)]
    times = r"about \d+ s \(at most \d+ (s|min)\), one job after another"
    assert re.fullmatch(f"hpcmm: 11 points in 2 jobs to measure, {times}", ahead) and progress
    assert all(re.fullmatch(r"hpcmm: \d+ of 11 points, \w+, .* left to measure", line) for line in progress)
    *fastest, noise, counts, report = output.splitlines()
    assert 1 <= len(fastest) <= 3 and fastest[0].startswith("float32 at ") and noise.startswith("Noise unknown")
    assert counts.startswith("11 points: 11 PASS. 2 variants of sweeps not measured: ")
    assert report == f"report: {folder / 'results' / 'report.html'}"
    log = (folder / "results" / "logs" / "small" / "cpu-r2-1.log").read_text()
    assert "rank 1 on " in log and "planned: at most" in log, "the log has what the terminal has not"

    again, errors = start_run(folder).communicate(timeout=600)
    assert again.splitlines() == ["Nothing to measure: 11 of 11 points are current", *output.splitlines()]
    assert errors == ""


@pytest.mark.slow
def test_a_failed_job_is_one_sentence_and_is_named_in_the_report_of_the_others_and_tried_again(
    hpcmm_run, command, capfd
):
    config, results = changed(sizes=[7], ranks=[1]), hpcmm_run.folder / "results"
    (results / "raw" / "sum").mkdir(parents=True)
    with (results / "raw" / "sum" / "cpu-r2-1.journal").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # as if another process measured the batch
        process = hpcmm_run(config, "--retries", "1")
        output, errors = process.communicate(timeout=600)
    assert process.returncode == 1
    why = "sum/cpu-r2-1: results/raw/sum/cpu-r2-1.journal: another process is measuring this batch"
    assert errors.splitlines().count(f"hpcmm: error: {why}") == 2, "one for each attempt"
    for noise in ("Abort(", "RuleException", "CalledProcessError", "$HPCMM_JOBS", "Error in rule", "Complete log"):
        assert noise not in output + errors
    assert "hpcmm: error: sum/cpu-r2-1: 3 of 3 points not measured: " in errors
    assert "5 points: 2 PASS, 3 not measured: " in output and "\nreport: " in output, "the others go on"
    status = command("status", folder=hpcmm_run.folder)
    line = "results: 2 of 5 points measured, 3 to measure, 1 of 2 batches done, "
    assert status.returncode == 1 and status.stdout.startswith(line)
    columns = store.read(results / "timings.h5")
    assert set(columns["measurements"]["sweep"]) == {"small"}
    rows = zip(*(columns["omitted"][name] for name in ("sweep", "variant", "ranks", "reason")), strict=True)
    assert ("sum", "serial", 2, f"failed: {why}") in rows
    assert f"failed: {why}" in page_of(results / "report.html")
    (results / "report.html").write_text("of another file")
    run.conclude(results, 0, succeeded=False, measured=True)
    assert "report: " not in capfd.readouterr().out, "as if the page could not be written"

    again = run_snakemake(hpcmm_run.folder, config, TIMINGS)
    assert planned(again.stdout) == {"sum/cpu-r2-1"}, "the others are kept"
    columns = store.read(results / "timings.h5")
    assert set(columns["measurements"]["sweep"]) == {"small", "sum"}
    assert not [reason for reason in columns["omitted"]["reason"] if reason.startswith("failed")]


KILLED = """
import os, runpy, signal
from hpcmm.cluster import slurm
begin, end, kill = slurm.begin, slurm.end, lambda *_: os.kill(os.getpid(), signal.SIGKILL)
slurm.{hook} = {calls}
runpy.run_module("snakemake", run_name="__main__")
"""


@pytest.mark.slow
def test_a_workflow_killed_while_snakemake_holds_its_locks_needs_no_unlock(snakemake):
    """Before the first line of ours in the run that is locked, and after the last one."""
    config = CONFIG | {"sweeps": {"sum": CONFIG["sweeps"]["sum"]}}
    (snakemake.folder / "experiment.yaml").write_text(yaml.safe_dump(config))
    arguments = ["--snakefile", ROOT / "Snakefile", "--configfile", "experiment.yaml", "--cores", "2", TIMINGS]
    python = Path(SNAKEMAKE).with_name("python")
    for hook, calls in (("begin", "kill"), ("end", "lambda: (end(), kill())")):
        program = [python, "-c", KILLED.format(hook=hook, calls=calls), *arguments]
        killed = subprocess.run(program, cwd=snakemake.folder, capture_output=True, text=True, timeout=600)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert list((snakemake.folder / ".snakemake" / "locks").iterdir())
    again = snakemake(config, TIMINGS)
    assert again.returncode == 0, again.stdout
    assert not (snakemake.folder / slurm.RUN).exists()


@pytest.mark.slow
def test_sbatch_gets_nothing_of_the_job_around_and_its_refusal_reaches_user_and_report(hpcmm_run, monkeypatch):
    """An interactive job has variables that sbatch would take as requests; word for word, also to the report."""
    programs, why = hpcmm_run.folder / "programs", "sbatch: error: Batch job submission failed: Invalid wckey"
    programs.mkdir()
    for name in ("sbatch", "squeue", "sacct", "sinfo", "scancel"):
        body = 'env >"${0%/*}/environment"; ' + f"echo '{why}' >&2; exit 1" if name == "sbatch" else "exit 0"
        (programs / name).write_text(f"#!/bin/bash\n{body}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(programs), os.environ["PATH"]]))
    for name in ("SLURM_JOB_ID", "SLURM_NTASKS", "SLURM_MEM_PER_NODE", "SLURM_CPU_BIND", "SBATCH_MEM_BIND"):
        monkeypatch.setenv(name, "7")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/slurm.conf")
    sweeps = {"sum": CONFIG["sweeps"]["sum"] | {"ranks": [1]}}
    process = hpcmm_run(CONFIG | {"sweeps": sweeps}, "--cluster", "sbatch", "--jobs", "1")
    output, errors = process.communicate(timeout=600)
    assert f"not measured: {why}\n" in output + errors, output + errors
    assert set(store.read(hpcmm_run.folder / TIMINGS)["omitted"]["reason"]) == {f"failed: sum/cpu-r1-1: {why}"}
    assert why in page_of(hpcmm_run.folder / "results" / "report.html")
    environment = (programs / "environment").read_text()
    assert re.findall("^(?:SLURM|SBATCH).*", environment, re.MULTILINE) == ["SLURM_CONF=/etc/slurm/slurm.conf"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_run_and_reports_unfinished_jobs(hpcmm_run, number):
    config = copy.deepcopy(CONFIG)
    config["measuring"] |= {"max_seconds": 2, "min_repetitions": 1000, "max_repetitions": 100000}
    config["sweeps"]["sum"]["sizes"] = [10_000_000]
    process = hpcmm_run(config)
    try:
        while " of 11 points, " not in process.stderr.readline():
            assert process.poll() is None, process.stdout.read()
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # as a terminal does
        else:
            process.terminate()
            waits = next(line for line in process.stderr if "SIGTERM" in line)
            assert "waits for the running ones: s" in waits, "it names them"
            assert waits.endswith(f"to stop them at once: kill {process.pid} once more\n")
            process.terminate()
        _, errors = process.communicate(timeout=300)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == (130 if number == signal.SIGINT else 1) and "Traceback" not in errors
    assert ("the same command measures the others" in errors) is (number == signal.SIGINT)
    assert "hpcmm: some points were not measured; the others are kept" in errors
    first, *others = status.text(hpcmm_run.folder / "results").splitlines()
    assert re.search("no job is running; the rest takes about .* \\(at most ", first)
    failed = [line for line in others if line.startswith("    not measured: ")]
    assert all(line.endswith(": the job was ended from outside") for line in failed), failed


def test_an_operation_has_one_profiling_job_that_never_overlaps_a_measurement(snakemake):
    sweeps = {"sweeps": {name: sweep | {"variants": ["naive"]} for name, sweep in CONFIG["sweeps"].items()}}
    sweeps["sweeps"]["sum"] |= {"variants": ["cub"], "ranks": [1]}
    config = CONFIG | sweeps | {"backends": "cuda", "profile": True}
    run = snakemake(config, "--dry-run", "--printshellcmds", "--cluster", "sbatch", "--jobs", "1")
    assert run.returncode == 0, run.stdout
    assert {job for job in planned(run.stdout) if job.startswith("profiles/")} == {"profiles/matmul", "profiles/sum"}
    commands = re.findall(r"^.* -m hpcmm\.jobs\.(?:measure|profile) .*$", run.stdout, re.MULTILINE)
    assert len(commands) == 4
    assert all("$HPCMM_ALONE " in command for command in commands), commands


@pytest.mark.slow
def test_a_python_path_with_special_characters_is_refused_on_a_cluster(tmp_path):
    """Elsewhere it may have them: test_wheel.py runs in such an environment."""
    config = tmp_path / "experiment.yaml"
    config.write_text(yaml.safe_dump(CONFIG))
    program = "import sys; from snakemake.cli import main; sys.executable = '/an env/bin/python'; main(sys.argv[1:])"
    command = [sys.executable, "-c", program, "--snakefile", ROOT / "Snakefile", "--configfile", config, "--dry-run"]
    command += ["--executor", "cluster-generic", "--cluster-generic-submit-cmd", "sbatch", "--jobs", "1"]
    refused = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert refused.returncode == 1
    assert "/an env/bin/python: Snakemake starts cluster jobs by this path of Python without quotes" in refused.stderr
