"""The commands of ``python -m hpcmm``, started as a person starts them."""

import argparse
import dataclasses
import errno
import io
import itertools
import json
import math
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import time
import types
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import psutil
import pytest
import timings
import yaml
from hypothesis import given
from hypothesis import strategies as st
from mpi4py import MPI
from tasks import CONFIGS, machine
from timings import measurement, took

from hpcmm import analysis, backends, report, store
from hpcmm.bench import pace
from hpcmm.bench import status as tool_status
from hpcmm.bench.journal import Journal
from hpcmm.cli import main as cli_main
from hpcmm.cli import run as cli_run
from hpcmm.cli.arguments import COMMANDS
from hpcmm.cli.checks import check, mpi, programs
from hpcmm.cli.checks.check import SECONDS, Check
from hpcmm.cli.checks.mpi import SIZE_VARIABLES, check_ranks
from hpcmm.cli.doctor import as_text, combine
from hpcmm.cluster import slurm
from hpcmm.experiment import plan
from hpcmm.experiment.config import merge_into, read_config
from hpcmm.experiment.durations import EXPECTED_STARTUP_SECONDS, STARTUP_SECONDS, estimate, expected_share
from hpcmm.model import HpcmmError
from hpcmm.model.measurement import Point
from hpcmm.system import files
from hpcmm.system.reader import ConfigError

ROOT = Path(__file__).parents[1]
PROGRAMS = Path(__file__).parent / "mpi_programs"


def hpcmm(*arguments, folder: Path | None = None, by=(), **environment: str) -> subprocess.CompletedProcess:
    command, environment = [*by, sys.executable, "-m", "hpcmm", *map(str, arguments)], os.environ | environment
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def refused(done: subprocess.CompletedProcess) -> str:
    assert done.returncode == 1
    assert not done.stdout and "Traceback" not in done.stderr
    (line,) = done.stderr.splitlines()
    return line.removeprefix("hpcmm: error: ")


def test_help_names_every_command(command):
    done = command("--help")
    assert done.returncode == 0 and done.stdout.startswith("usage: python -m hpcmm ")
    assert sorted(re.findall(r"^    ([a-z]+)(?:  |$)", done.stdout, re.MULTILINE)) == sorted(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(command, name):
    done = command(name, "--help")
    text = " ".join(done.stdout.split())
    assert done.returncode == 0 and re.match(rf"usage: .* {name} ", text)
    assert re.search(r" Exit status: 0: .*; 1: .*; 2: wrong arguments(; 3: .*)?\.$", text)
    assert ("; 3: " in text) is (name in ("bench", "compare", "check", "grade"))


ANSWERS = yaml.safe_load(Path(__file__).with_name("answers.yaml").read_text())


@pytest.mark.parametrize("case", ANSWERS, ids=itemgetter("hpcmm"))
def test_a_command_gives_its_answer_or_says_what_is_wrong(command, forgotten, tmp_path, case):
    arguments, status = shlex.split(case["hpcmm"]), case.get("status", 0)
    done = command(*arguments, folder=ROOT / "examples" / "kernels" if arguments[0] == "bench" else tmp_path)
    assert done.returncode == status and bool(done.stdout) == (status == 0)
    assert case["says"] in " ".join((done.stderr if status else done.stdout).split())
    assert not any(tmp_path.iterdir()), "nothing is written"


@pytest.mark.parametrize("arguments", [(), ("measure",), ("plan", "--colour"), ("merge", "a.h5"), ("compare",)])
def test_wrong_arguments_give_status_2_and_one_line_and_none_the_help(command, arguments):
    done = command(*arguments)
    assert done.returncode == 2 and not done.stdout
    assert re.fullmatch(r"python -m hpcmm.*: error: .*--help has all\n" if arguments else "(?s)usage: .*", done.stderr)
    assert ("Check everything that measuring needs" in " ".join(done.stderr.split())) is (arguments == ())


# --- plan --------------------------------------------------------------------------------------------------------

CONFIG = CONFIGS["main"]


@pytest.fixture
def config(tmp_path) -> Path:
    path = tmp_path / "experiment.yaml"
    path.write_text(yaml.safe_dump(CONFIG))
    return path


def table(output: str) -> list[list[str]]:
    """Rows of the plan's table; the last is that of all jobs together."""
    lines = output.splitlines()
    return [re.split(r"\s{2,}", line.strip()) for line in lines[2 : lines.index("")]]


def test_a_plan_shows_points_ranks_gpus_jobs_and_times(command, config, tmp_path):
    done = command("plan", "--cluster", "--configfile", config, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    planned = plan.make(CONFIG)
    rows = table(done.stdout)
    assert [row[:5] for row in rows[:-1]] == [["size", "cuda", "1", "1", "4"], ["size", "cuda", "2", "2", "4"]]
    for row, batch in zip(rows, planned.to_measure, strict=False):
        assert row[5] == estimate(expected(batch), batch.seconds)
    bounds = [batch.seconds for batch in planned.to_measure]
    times = list(map(expected, planned.to_measure))
    assert rows[-1] == ["all", "8", estimate(sum(times), sum(bounds))]
    assert f"\n2 jobs; the longest takes {estimate(max(times), max(bounds))}.\n" in done.stdout
    assert "Expected times follow from the usual shares of the upper bounds." in done.stdout
    hours = sum(batch.ranks * batch.seconds for batch in planned.to_measure) / 3600
    assert f"{hours:.1f} GPU hours at most" in done.stdout
    assert "size, ranks 1, 2: serial: the config has backends: cuda" in done.stdout


def expected(batch) -> float:
    """Seconds of a job where none has finished yet."""
    return EXPECTED_STARTUP_SECONDS + expected_share(batch.device) * sum(batch.predicted)


def test_expected_times_are_learned_from_finished_jobs(command, config, tmp_path):
    planned = plan.make(CONFIG)
    one, two = planned.to_measure
    bound = sum(one.predicted)
    results = tmp_path / "results"
    results.mkdir()
    pace.record(results, pace.Record("before", one.operation, one.device, 100.0, 50.0, 9.0))
    pace.record(results, pace.Record("before", one.operation, one.device, 100.0, 30.0, 4.0))  # run again
    pace.record(results, pace.Record("other", one.operation, "another device", 100.0, 90.0, 9.0))
    with (results / pace.FILE).open("a") as file:
        file.write('[]\n{"batch": 1}\n' + "[" * 100_000 + "\n")  # nothing that a job writes
        line = dataclasses.asdict(pace.Record("before", one.operation, one.device, 100.0, 99.0))
        file.writelines(json.dumps(line | {"steps": steps}) + "\n" for steps in (1, {"timing": "1"}, {"timing": -1}))
    assert [record.seconds for record in pace.learned(results)] == [50.0, 30.0, 90.0]
    found = pace.Pace(pace.learned(results))
    start = 4.0 + pace.LAUNCH_SECONDS
    assert found.seconds(one) == pytest.approx(start + math.sqrt(0.3 * expected_share(one.device)) * bound)
    assert found.seconds(dataclasses.replace(two, operation="sum")) == found.seconds(two), "the device decides"
    text = command("plan", "--cluster", "--configfile", config, folder=tmp_path).stdout
    assert estimate(found.seconds(one), one.seconds) in text and "the finished jobs in results." in text
    slow = pace.Pace([pace.Record("before", one.operation, one.device, 1.0, 50.0, 900.0)])
    assert slow.seconds(one) == one.seconds, "never above the upper bound"


def test_a_plan_takes_overrides_as_snakemake_does(command, config, tmp_path):
    override = ["measuring={max_seconds: 5, warmups: 1}", "measuring.warmups=0"]
    options = ["--config-file", config, "--config", "scale=full", "backends=cpu", *override]
    done = command("plan", *options, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    measuring = CONFIG["measuring"] | {"max_seconds": 5, "warmups": 0}
    planned = plan.make(CONFIG | {"scale": "full", "backends": "cpu", "measuring": measuring}, machine(gpus=0))
    (of_one, of_two, all_of_them) = table(done.stdout)
    assert of_one[:2] == of_two[:2] == ["size", "cpu"]
    bounds = [job.seconds for job in planned.jobs]
    assert all_of_them[1:] == ["400", estimate(sum(map(expected, planned.to_measure)), sum(bounds))]


def test_for_a_cluster_the_gpus_of_this_machine_do_not_matter(config):
    without = hpcmm("plan", "--configfile", config, "--config", "backends=auto", "--cluster", CUDA_VISIBLE_DEVICES="")
    rows = {tuple(row[:3]) for row in table(without.stdout)[:-1]}
    assert rows == set(itertools.product(["size"], ["cpu", "cuda"], ["1", "2"]))
    assert "Not measured:" not in without.stdout


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("scale=huge", "experiment.yaml: scale: 'huge' is not allowed; allowed: quick, full"),
        ("scale", "--config scale: not an override; allowed: KEY=VALUE"),
        ("job_minutes=0", "experiment.yaml: job_minutes: 0 is not allowed; allowed: more than 0"),
        ("sweeps={", "--config sweeps={: "),
        ("sweeps={size: {sizes: [1:30]}}", "1:30 is a number in base 60"),
        ("sweeps={size: {sizes: [10000000]}}", "at most 720 h a point"),
    ],
)
def test_a_plan_refuses_a_wrong_override(command, config, override, named):
    done = command("plan", "--configfile", config, "--config", override)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert done.stderr.startswith("hpcmm: error: ") and named in done.stderr


def test_a_plan_and_a_run_name_the_config_that_they_cannot_read(command, tmp_path):
    assert "none.yaml" in refused(command("plan", "--configfile", tmp_path / "none.yaml"))
    (tmp_path / "list.yaml").write_text("[1, 2]")
    said = refused(command("plan", "--configfile", tmp_path / "list.yaml"))
    assert "list.yaml: [1, 2] is not allowed; allowed: keys with values" in said
    for path, why in ((tmp_path, "Is a directory"), (sys.executable, "not a text file in UTF-8")):
        for name in ("plan", "run"):
            assert refused(command(name, "--configfile", path, folder=ROOT)) == f"{path}: {why}"


@pytest.mark.slow
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_closed_pipe_gives_no_traceback(config, unbuffered):
    """Whether that shows in the first line, or where Python writes all that it kept, at its end."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "hpcmm", "plan", "--cluster", "--configfile", config]
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=300, env=environment)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


names = st.sampled_from("abc")
inner = st.dictionaries(names, st.integers() | st.dictionaries(names, st.integers(), min_size=1), min_size=1)
configs = st.dictionaries(names, st.integers() | inner)


@given(config=configs, changes=configs)
def test_overrides_replace_values_and_leave_the_rest(config, changes):
    def leaves(mapping, path=()):
        for key, value in mapping.items():
            if isinstance(value, dict):
                yield from leaves(value, (*path, key))
            else:
                yield (*path, key), value

    wanted = dict(leaves(changes))
    rest = dict(leaves(config))
    for path, other in itertools.product(list(rest), wanted):
        if path[: len(other)] == other[: len(path)]:  # one lies within the other
            rest.pop(path, None)
    merge_into(config, changes)
    assert dict(leaves(config)) == rest | wanted


# --- merge and report --------------------------------------------------------------------------------------------

POINT = Point("matmul", "openmp", (8, 8, 8), "float32", 1, {"alpha": 1.5, "beta": 0.5})


def run_of(path: Path, host: str) -> Path:
    return timings.write(path, {"size": [took(POINT, [1e-3] * 7)]}, {"host": host})


def test_merge_keeps_runs_apart_and_takes_each_once(command, tmp_path):
    a, b = run_of(tmp_path / "a.h5", "left"), run_of(tmp_path / "b.h5", "right")
    done = command("merge", a, b, a, "-o", tmp_path / "all.h5")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{tmp_path / 'all.h5'}: 2 points of 2 runs; duplicates dropped: 1\n"
    groups = store.read(tmp_path / "all.h5")
    assert [json.loads(text)["host"] for text in groups["runs"]["provenance"]] == ["left", "right"]
    assert list(groups["measurements"]["run"]) == [0, 1]
    np.testing.assert_array_equal(np.bincount(groups["samples"]["measurement"]), [7, 7])
    summary = analysis.summary(groups, analysis.measurements(groups))
    assert summary.points + summary.superseded == 2, "the report counts points alike"


def test_merge_overwrites_no_file(command, tmp_path):
    a = run_of(tmp_path / "a.h5", "left")
    before = a.read_bytes()
    assert "a.h5: exists already" in refused(command("merge", a, a, "-o", a))
    assert a.read_bytes() == before


def test_merge_refuses_damaged_files_and_other_files(command, tmp_path):
    a = run_of(tmp_path / "a.h5", "left")
    (tmp_path / "cut.h5").write_bytes(a.read_bytes()[:-50])
    (tmp_path / "text.h5").write_text("no HDF5 at all")
    for name in ("cut.h5", "text.h5", "none.h5"):
        assert name in refused(command("merge", a, tmp_path / name, "-o", tmp_path / "all.h5"))
    assert not (tmp_path / "all.h5").exists()


# --- streams, locales and limits -----------------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path) -> Path:
    return run_of(tmp_path / "größe.h5", "left")


ASCII = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}


@pytest.mark.slow
def test_an_ascii_locale_gets_escapes_instead_of_an_error(small, tmp_path):
    """The name of the file is not Unicode either."""
    odd = small.rename(tmp_path / os.fsdecode("größe".encode() + b"\xff.h5"))
    done = hpcmm("report", odd, "--results", tmp_path / "out", **ASCII)
    assert (done.returncode, done.stderr) == (0, "")
    assert "größe\ufffd.h5" in (tmp_path / "out" / "report.html").read_text("utf-8")
    assert r"/gr\xf6\xdfer.h5: no such file" in refused(hpcmm("report", tmp_path / "größer.h5", **ASCII))


def test_control_characters_of_a_name_do_not_reach_the_terminal(command, tmp_path):
    assert refused(command("report", tmp_path / "none\x1b[31m.h5")) == f"{tmp_path}/none[31m.h5: no such file"


CASES = {"occupancy": ["--tile", "16"], "report": ["größe.h5"], "merge": ["größe.h5", "-o", "merged.h5"]}


def in_shell(folder: Path, command: str, limit: str = "", streams: str = "") -> subprocess.CompletedProcess:
    """Run a command in a shell that sets a limit before, with streams that the shell redirects."""
    line = f'ulimit -{limit or "c 0"}; exec "$0" -m hpcmm "$@" {streams}'
    arguments = ["bash", "-c", line, sys.executable, command, *CASES.get(command, ())]
    return subprocess.run(arguments, capture_output=True, text=True, cwd=folder, timeout=300)


def test_closed_streams_are_no_error(small, tmp_path):
    """Files of the command must not get their numbers either: what other programs print would go into them."""
    done = in_shell(tmp_path, "merge", streams=">&- 2>&- <&-")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert len(store.read(tmp_path / "merged.h5")["measurements"]["run"]) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("command", "unbuffered"), [("occupancy", ""), ("merge", "1")])
def test_unwritable_output_is_one_line(small, tmp_path, monkeypatch, command, unbuffered):
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    assert refused(in_shell(tmp_path, command, streams=">/dev/full")) == "standard output: No space left on device"


@pytest.mark.parametrize(("command", "megabytes"), [("merge", 60), ("report", 150)])
def test_little_address_space_is_refused(small, tmp_path, command, megabytes):
    said = refused(in_shell(tmp_path, command, f"v {1024 * megabytes}"))
    assert f"{megabytes} MiB of address space are too few" in said


@pytest.mark.parametrize(
    ("limit", "why", "least"),
    [("f 100", "files of at most 0.098 MiB are too small", "f 32768"), ("n 12", "12 open files are too few", "n 64")],
)
def test_a_limit_below_which_mpi_cannot_start_is_named(small, tmp_path, limit, why, least):
    """The limit of files is in units of 512 bytes in some shells, and of 1,024 in others."""
    assert refused(in_shell(tmp_path, "plan", limit)) == f"{why}; raise the limit: ulimit -{least}"


@pytest.mark.slow
def test_a_limited_address_space_gives_a_result_or_one_line(small, tmp_path):
    done = in_shell(tmp_path, "report", f"v {1024 * 1000}")
    assert done.returncode in (0, 1), done.stderr
    assert len(done.stderr.splitlines()) == done.returncode and "Traceback" not in done.stderr


# --- folders that cannot be written --------------------------------------------------------------------------------

# root may write everywhere, but for this
MORTAL = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
needs_setpriv = pytest.mark.skipif(bool(MORTAL) and not shutil.which("setpriv"), reason="as root this needs setpriv")


@pytest.fixture
def closed(tmp_path):
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o555)
    yield folder
    folder.chmod(0o755)


@pytest.mark.slow
@needs_setpriv
def test_a_folder_without_permission_is_reported_with_its_path(small, closed):
    said = refused(hpcmm("report", small, "--results", closed, folder=closed, by=MORTAL))
    assert said == f"{closed}/tables: cannot be created: Permission denied"
    said = refused(hpcmm("merge", small, "-o", closed / "all.h5", folder=closed, by=MORTAL))
    assert said == f"{closed}/all.h5: cannot be written: Permission denied"


def test_a_full_disk_is_reported_with_the_path_of_the_file(small, tmp_path, limited_files):
    with pytest.raises(HpcmmError, match=r"/out/\S+: cannot be written: File too large$"), limited_files(10_240):
        report.build(small, tmp_path / "out")


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "make room"),
        (OSError(errno.ENOLCK, "No locks available"), "journals need file locks"),
        (PermissionError(errno.EACCES, "Permission denied"), "that you may write to"),
    ],
)
def test_doctor_advises_by_the_kind_of_error(tmp_path, monkeypatch, error, advice):
    monkeypatch.setattr(files.fcntl, "flock", Mock(side_effect=error))
    found = {check.name: check for check in programs.check_results(tmp_path)}["files"]
    assert found.state == "error" and error.strerror in found.found and advice in found.advice


# --- make clean ----------------------------------------------------------------------------------------------------


@pytest.fixture
def cleaned(tmp_path):
    """Run ``make clean`` in a folder with results, and with a file that says which process runs the workflow."""
    if not shutil.which("make"):
        pytest.skip("no make")
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "results" / "reference").mkdir(parents=True)
    (tmp_path / "results" / "raw").mkdir()
    (tmp_path / ".snakemake" / "hpcmm").mkdir(parents=True)

    def run(host: str | None, process: int = 0):
        if host:
            (tmp_path / slurm.RUN).write_text(f"{host} {process} 1.0\n")
        done = subprocess.run(["make", "clean"], cwd=tmp_path, capture_output=True, text=True, timeout=180)
        return done, sorted(path.name for path in (tmp_path / "results").iterdir())

    return run


@pytest.mark.parametrize("host", [socket.gethostname(), "elsewhere"])
def test_make_clean_refuses_while_a_run_uses_the_results(cleaned, host):
    done, left = cleaned(host, os.getpid())
    assert done.returncode != 0 and f"a run is using results/ (process {os.getpid()} on {host})" in done.stderr
    assert left == ["raw", "reference"]


def test_make_clean_removes_the_results_of_ended_runs(cleaned):
    gone = subprocess.Popen(["true"])
    gone.wait()
    done, left = cleaned(socket.gethostname(), gone.pid)
    assert done.returncode == 0, done.stderr
    assert left == ["reference"]
    assert cleaned(None)[0].returncode == 0


# --- status ------------------------------------------------------------------------------------------------------


@pytest.fixture
def results(tmp_path) -> Path:
    """The folder of results with a plan of two sweeps on the CPU."""
    sweep = CONFIG["sweeps"]["size"] | {"variants": ["openmp", "numpy"], "sizes": [8, 12, 16]}
    measuring = CONFIG["measuring"] | {"min_repetitions": 6, "max_repetitions": 6, "max_seconds": 0.05, "cache": "hot"}
    config = CONFIG | {"backends": "cpu", "measuring": measuring}
    config["sweeps"] = {"size": sweep | {"ranks": [1]}, "later": sweep | {"sizes": [7], "ranks": [2]}}
    plan.make(config, machine(gpus=0)).write(tmp_path / "results" / "plan.json")
    return tmp_path / "results"


@pytest.fixture
def status(command, tmp_path):
    """Return the lines of the status of the run in this folder: ``status()``."""

    def lines() -> list[str]:
        done = command("status", folder=tmp_path)
        assert done.returncode == 1 and not done.stderr, "no report shows the points"
        return done.stdout.splitlines()

    return lines


def test_status_follows_a_run_from_its_plan_to_its_end(status, results, mpi_job, mpi_output):
    total, first, second = status()
    assert total.startswith("results: 0 of 8 points measured, 8 to measure, 0 of 2 batches done, ")
    assert re.search(r" batches done, about \d+ s \(at most \d+ s\) left, one job after another$", total)
    assert re.fullmatch(r"size/cpu-r1-1 +0/6 +waiting, about \d+ s \(at most \d+ s\)", first)
    assert re.fullmatch(r"later/cpu-r2-1 +0/2 +waiting, about \d+ s \(at most \d+ s\)", second)
    planned = plan.read(results / "plan.json")
    line = tool_status.ahead(results, planned)
    times = r"about \d+ s \(at most \d+ s\), one job after another"
    assert re.fullmatch(f"hpcmm: 8 points in 2 jobs to measure, {times}", line)

    journal = results / "raw" / "size" / "cpu-r1-1.journal"
    with mpi_job(1, PROGRAMS / "rank_fails.py", "stuck", 2, "--results", results, "--batch", "size/cpu-r1-1") as job:
        while job.poll() is None and not (journal.exists() and b"12, 12, 12" in journal.read_bytes()):
            time.sleep(0.01)
        before = journal.read_bytes()
        _, first, _ = status()
    about = r"about .+ \(at most .+\)"
    assert re.fullmatch(f"size/cpu-r1-1 +2/6 +measuring openmp 12x12x12 float32, {about} left", first)
    assert journal.read_bytes() == before, "looking changes nothing"

    total, first, _ = status()  # the job was killed just now
    assert re.fullmatch(f"results: 2 of 8 .* 0 of 2 batches done, no job is running; the rest takes {about}, .*", total)
    assert re.search(r" 2/6  stopped \d+ s ago at openmp 12x12x12 float32; start the run again", first)
    old = time.time() - 3600
    os.utime(journal, (old, old))
    _, first, _ = status()
    assert first.endswith(" 2/6  stopped 60 min ago at openmp 12x12x12 float32; start the run again")

    for batch in planned.batches:
        mpi_output(batch.ranks, "-m", "hpcmm.jobs.measure", "--results", results, "--batch", batch.name)
    total, first, second, page = status()
    assert page == "report: results/report.html does not show these results; run again"
    assert total == "results: 8 of 8 points measured, 2 of 2 batches done"
    assert first.endswith(" 6/6  done") and second.endswith(" 2/2  done")
    assert tool_status.ahead(results, planned) == "hpcmm: nothing to measure: 8 of 8 points are current"
    records = pace.learned(results)
    assert [record.batch for record in records] == ["size/cpu-r1-1", "later/cpu-r2-1"]
    assert all(record.startup > 0 and record.seconds > 0 and record.predicted > 0 for record in records)
    assert all(record.timed <= record.seconds for record in records)


def test_batches_that_share_a_job_start_its_processes_once(command, tmp_path):
    """In the plan and in the status, also if some of its batches were measured before."""
    sweep = CONFIG["sweeps"]["size"] | {"variants": ["numpy"], "ranks": [1]}
    file = tmp_path / "experiment.yaml"
    config = CONFIG | {"backends": "cpu", "sweeps": dict.fromkeys(("one", "two", "three"), sweep)}
    file.write_text(json.dumps(config))
    rows = table(command("plan", "--configfile", file, folder=tmp_path).stdout)
    *bounds, whole = (int(re.search(r"at most (\d+) s", row[-1])[1]) for row in rows)
    assert whole == pytest.approx(sum(bounds), abs=2) and whole > STARTUP_SECONDS

    planned, results = plan.make(read_config(file), machine(gpus=0)), tmp_path / "results"
    (job,) = planned.jobs
    for kept in range(3):
        states, _ = tool_status.look_at_all(results, planned)
        left = sum(sum(batch.predicted) for batch in job.batches[kept:])
        assert sum(state.seconds for state in states) == pytest.approx(STARTUP_SECONDS + left)
        journal = journal_of(results, job.batches[kept])
        for point in job.batches[kept].points:
            journal.append(point, [took(point, 1.0)])
        journal.complete()
    states, _ = tool_status.look_at_all(results, planned)
    assert [state.seconds for state in states] == [0, 0, 0]


def test_a_run_whose_jobs_print_elsewhere_reports_its_progress_when_it_changes(results, monkeypatch):
    printed = io.StringIO()  # capsys loses text that a thread prints while capsys is read
    monkeypatch.setattr(sys, "stderr", printed)
    monkeypatch.setattr(cli_run, "SECONDS_BETWEEN_REPORTS", 0.01)
    over = threading.Event()
    thread = threading.Thread(target=cli_run.report, args=(results, over, None))
    thread.start()
    (results / "plan.json").touch()  # a run writes it when it starts
    try:
        while "hpcmm: 0 of 8 points" not in printed.getvalue():
            time.sleep(0.01)
        opened(results)
        while "hpcmm: 1 of 8 points" not in printed.getvalue():
            time.sleep(0.01)
    finally:
        over.set()
        thread.join()
    lines = printed.getvalue().splitlines()
    assert len(lines) == len(set(lines)) and all("one job after another" in line for line in lines)


def journal_of(results: Path, batch) -> Journal:
    return Journal(batch.file(results).with_suffix(".journal"), batch, {"utc": datetime.now(UTC).isoformat()})


def opened(results: Path) -> Path:
    """A journal of the first batch with one point finished and another one begun."""
    batch = plan.read(results / "plan.json").batch("size/cpu-r1-1")
    journal = journal_of(results, batch)
    journal.append(batch.points[0], [took(batch.points[0], 1.0)])
    journal.begin(batch.points[1])
    journal.close()
    return journal.path


@pytest.mark.parametrize(
    "rest", [["a.h5"], ["--config", "job_minutes=5", "--", "a.h5"], ["-j4", "a.h5", "--config", "job_minutes=5"]]
)
def test_no_option_of_a_run_takes_a_target(rest, tmp_path, monkeypatch):
    commands = []
    monkeypatch.chdir(tmp_path)
    Path("Snakefile").touch()
    Path("mine.yaml").write_text("sweeps: {}")
    monkeypatch.setattr(cli_run, "follow", lambda command, *_: commands.append(command) or 1)
    assert cli_main.main(["run", *rest[:-2], "--configfile", "mine.yaml", "--directory", "there", *rest[-2:]]) == 1
    ((_, _, _, *options),) = commands
    *ours, last = options[: -len(rest)]
    assert options[-len(rest) :] == rest and last == "--rerun-incomplete"
    assert {"--configfile", "mine.yaml", "--directory", "there"} <= set(ours)
    assert ("--cores" in ours) == ("-j4" not in rest)


@pytest.mark.parametrize("written", ["", "{", "[]", '{"fingerprint": ""}'])
@pytest.mark.parametrize("status", [0, 1])
def test_a_run_whose_plan_was_edited_or_deleted_meanwhile_has_an_error(written, status, tmp_path, monkeypatch):
    def follow(command, shown, results, elsewhere):
        shown.take("hpcmm: 1 point in 1 job to measure")
        if written:
            store.write_text(results / "plan.json", written)
        return status

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli_run, "follow", follow)
    Path("Snakefile").touch()
    arguments = argparse.Namespace(rest=[], configfile=[], directory=None, verbose=False)
    if status:
        assert cli_run.run(arguments) == status  # which Snakemake explained
    else:
        with pytest.raises(HpcmmError, match=r"plan\.json: "):
            cli_run.run(arguments)


def test_snakemake_ends_with_a_run_that_is_killed():
    snakemake = [sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(600)"]
    follow = f"from hpcmm.cli import run; run.follow({snakemake}, None, None, False)"
    with subprocess.Popen([sys.executable, "-c", follow], stdout=subprocess.PIPE, text=True) as run:
        child = psutil.Process(int(run.stdout.readline()))
        run.kill()
    child.wait(60)


@pytest.mark.parametrize("files", [["--config", "mine.yaml"], ["-n", "mine.yaml"], ["--config=mine.yaml"]])
def test_a_config_and_its_values_are_taken_where_users_write_them(files):
    rest, configs = cli_run.without_configs([*files, "-j4", "scale=full", "--profile", "p.yaml", "--", "results/a.h5"])
    assert configs == [Path("mine.yaml")]
    flags = [each for each in files if each == "-n"]
    assert rest == [*flags, "-j4", "--profile", "p.yaml", "--config", 'scale="full"', "--", "results/a.h5"]


def test_a_wrong_value_of_config_names_what_is_allowed():
    with pytest.raises(ConfigError, match=r"^--config scale:: not an override; allowed: KEY=VALUE; "):
        cli_run.without_configs(["--config", "scale:"])


def test_the_error_of_a_question_is_one_line(monkeypatch, capsys):
    said = "Building DAG of jobs...\nhpcmm: error: a is wrong\n    and b\nother\n"
    assert cli_run.ask([sys.executable, "-c", f"import sys; print({said!r}); sys.exit(1)"]) == 1
    assert capsys.readouterr().err == "hpcmm: error: a is wrong\n    and b\n"
    assert cli_run.ask([sys.executable, "-c", "print('digraph {}')"]) == 0
    assert capsys.readouterr().out == "digraph {}\n"


def test_a_full_temporary_folder_is_named(monkeypatch):
    room = cli_run.shutil.disk_usage("/")._replace(total=1 << 30, free=1 << 10)
    monkeypatch.setattr(cli_run.shutil, "disk_usage", lambda _: room)
    with pytest.raises(HpcmmError, match="the temporary folder has less than 16 MiB free; free some, or set TMPDIR"):
        cli_run.environment()


@pytest.mark.parametrize(
    ("words", "near"),
    [
        ("bench mine", "mine.cu"),
        ("bench mien.cu", "mine.cu"),
        ("show good.hdf5", "good.h5"),
        ("compare good.h5 god.h5", "good.h5"),
        ("plan --config-file tried.yml", "tried.yaml"),
        ("status --results resluts", "results"),
        ("bench other.c", ""),
    ],
)
def test_a_missing_file_is_named_with_one_of_a_similar_name(words, near, tmp_path, command):
    for name in ("mine.cu", "good.h5", "tried.yaml"):
        (tmp_path / name).touch()
    (tmp_path / "results").mkdir()
    timings.write(tmp_path / "good.h5", {"size": [measurement(Point("sum", "sequential", (8,), "int32", 1))]})
    done = command(*words.split(), folder=tmp_path)
    said = done.stderr
    assert done.returncode == 1
    assert said.endswith(f"did you mean '{near}'?\n") if near else "did you mean" not in said


def test_a_missing_file_in_a_folder_that_cannot_be_listed_is_an_error(tmp_path, monkeypatch, command):
    """A folder may be entered, and not be read."""
    monkeypatch.setattr(Path, "iterdir", lambda folder: (tmp_path / "none").stat())
    assert refused(command("show", "mine.h5", folder=tmp_path)) == "mine.h5: no such file"


@pytest.mark.parametrize("words", ["show", "show results/", "report", "report results"])
def test_commands_name_what_writes_the_file_that_they_read(tmp_path, command, words):
    assert "no such file; hpcmm run writes it" in refused(command(*words.split(), folder=tmp_path))


def test_a_second_run_in_a_folder_names_the_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    slurm.RUN.parent.mkdir(parents=True)
    slurm.RUN.write_text("node1 4711 1.5\n")
    said = cli_run.explained("Building DAG of jobs...\nLockException:\nError: Directory cannot be locked.\n")
    assert said.startswith("hpcmm: error: another run uses this folder: process 4711 on node1; ")


def test_a_traceback_and_a_wrong_target_of_snakemake_are_one_line_and_other_errors_are_kept():
    traceback = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    f()\nValueError: no\n\n'
    for of_logging in ("", "Call stack:\n  File \"b.py\", line 2, in g\n    f()\nMessage: 'x'\nArguments: ()\n"):
        said = cli_run.explained(traceback + of_logging)
        assert said == "hpcmm: error: Snakemake: ValueError: no; --verbose shows where"
    older = (
        "AttributeError in file \"/a/Snakefile\", line 65:\n'Plan' has no 'b'\n  File \"/a/Snakefile\", line 65, in x\n"
    )
    said = cli_run.explained(older)
    assert said.startswith("hpcmm: error: /a/Snakefile: AttributeError: 'Plan' has no 'b'; if another version of hpcmm")
    full = cli_run.explained(older.replace("AttributeError", "OSError").replace("'Plan' has no 'b'", "No space left"))
    assert full == "hpcmm: error: /a/Snakefile: OSError: No space left"
    missing = "Host: a\n\nMissingRuleException:\nNo rule to produce nothing\n"
    said = "hpcmm: error: the target nothing is not allowed; allowed: none for the whole run, results/timings.h5"
    assert cli_run.explained(missing).startswith(said)
    removed = "[a]\nWorkflowError in rule collect in file a, line 2:\nOSError: Missing files:\nb (missing locally)\n"
    said = "hpcmm: error: Snakemake: OSError: Missing files: b (missing locally)"
    assert cli_run.explained(removed) == said
    skewed = "Output a has older modification time (1) than input b (2). This could indicate a clock skew problem"
    said = cli_run.explained(f"WorkflowError:\n{skewed}\n")
    assert said.endswith("set back during the run; run the same command again")
    error = "CalledProcessError in line 1:\nit failed\n"
    assert cli_run.explained(error) == error.rstrip()


@pytest.mark.parametrize("folder", ["/proc", "/dev/null"])
def test_a_home_a_cache_and_a_temporary_folder_that_cannot_be_written_are_replaced(folder, tmp_path, monkeypatch):
    """Root may write everywhere by the permissions."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", f"{folder}/home")
    assert cli_run.environment()["XDG_CACHE_HOME"] == str(tmp_path / ".snakemake" / "cache")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "XDG_CACHE_HOME" not in cli_run.environment()
    monkeypatch.setenv("XDG_CACHE_HOME", folder)
    monkeypatch.setenv("TMPDIR", folder)
    monkeypatch.setattr("tempfile.tempdir", None)
    found = cli_run.environment()
    assert found["XDG_CACHE_HOME"] == str(tmp_path / ".snakemake" / "cache") and found["TMPDIR"] == "/tmp"


def test_status_checks_only_processes_of_this_machine(results, monkeypatch):
    gone = subprocess.Popen(["true"])
    gone.wait()
    monkeypatch.setattr(os, "getpid", lambda: gone.pid)
    path = opened(results)
    assert " stopped 0 s ago at numpy 8x8x8 float32; start the run again" in tool_status.text(results)
    path.unlink()
    monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
    opened(results)
    monkeypatch.undo()
    assert " measuring numpy 8x8x8 float32, " in tool_status.text(results)


def test_status_shows_no_negative_times_if_the_clock_was_set_back(results):
    path = opened(results)
    for seconds in (-3e7, -1, 3e7):  # the file system's clock, behind and ahead of this machine's
        at = time.time() + seconds
        os.utime(path, (at, at))
        text = tool_status.text(results)
        assert " 1 of 8 points measured" in text and not re.search(r"-\d+\.?\d* (s|min|h)\b", text)


def test_status_stops_at_an_unknown_line(results):
    path = opened(results)
    before = tool_status.text(results).splitlines()
    content = path.read_bytes()
    for text in (b"[]", b'{"a": 1}', b"[" * 100_000, b'{"provenance": {"utc": 3}, "process": 3, "kept": []}'):
        path.write_bytes(content + text + b"\n")
        seen = tool_status.text(results).splitlines()
        assert seen[0].split(", about")[0] == before[0].split(", about")[0] and len(seen) == len(before)


def test_status_of_many_jobs_lists_the_running_ones(status, tmp_path):
    sizes = {"start": 64, "stop": 640, "step": 8}
    sweep = CONFIG["sweeps"]["size"] | {"ranks": [1, 2, 4, 8], "sizes": sizes}
    planned = plan.make(CONFIG | {"backends": "cpu", "job_minutes": 1, "sweeps": {"size": sweep}}, machine(gpus=0))
    assert len(planned.to_measure) > 40
    planned.write(tmp_path / "results" / "plan.json")
    batch = planned.to_measure[3]
    journal_of(tmp_path / "results", batch).close()
    _, one, others, _ = status()
    assert one.startswith(f"{batch.name} ") and one.endswith(" starting")
    assert others == f"and 0 done, {len(planned.to_measure) - 1} waiting"


def test_status_of_a_batch_between_two_visits(status, results):
    """The job visits its other batches, in a process that may not be the one that visited this batch."""
    planned = plan.read(results / "plan.json")
    opened(results)
    (before, other), _ = tool_status.look_at_all(results, planned)
    assert before.running and before.visited == 1
    journal = journal_of(results, before.batch)
    for point in before.batch.points[1:]:
        journal.append(point, [took(point, 1.0)], 2)
    journal.end({})
    journal.close()
    (after, _), _ = tool_status.look_at_all(results, planned)
    assert not after.running and after.silent is None
    assert re.search(" 1/6  waiting for its next visit, about .* left$", status()[1])
    assert tool_status.Others(results, planned).than(other.batch).done == pytest.approx(1 + 5 / 3)


def test_an_unwritable_folder_is_reported_in_one_line(command, tmp_path):
    timings.write(tmp_path / "timings.h5", {"size": [took(Point("sum", "serial", (8,), "int32", 1), 1.0)]})
    (tmp_path / "taken").write_text("a file")
    said = refused(command("report", tmp_path / "timings.h5", "--results", tmp_path / "taken"))
    assert said == f"--results: {tmp_path / 'taken'} is a file; allowed: the folder of the results"
    (tmp_path / "results" / "report.html").mkdir(parents=True)
    said = refused(command("report", tmp_path / "timings.h5", "--results", tmp_path / "results"))
    assert said.endswith("results/report.html: cannot be written: Is a directory")


def test_an_unfinished_run_reports_the_point_in_which_a_job_ended(results):
    planned = plan.read(results / "plan.json")
    assert tool_status.unfinished(planned, results) == ""
    batch = planned.batch("later/cpu-r2-1")
    journal = journal_of(results, batch)
    journal.begin(batch.points[0])
    journal.fail(batch.points[0], 'MemoryError: no "room"', counts=True)
    assert '    not measured: openmp 7x7x7 float32: MemoryError: no "room"' in tool_status.text(results).splitlines()
    assert tool_status.unfinished(planned, results).splitlines()[1:] == ["    later/cpu-r2-1: 0 of 2 points"]
    journal.begin(batch.points[1])  # and a crash
    journal.close()
    head, line = tool_status.unfinished(planned, results).splitlines()
    assert "Run the same command again:" in head
    assert line == f"    later/cpu-r2-1: 0 of 2 points, ended in {batch.points[1].name}"


def test_status_without_a_run_is_an_error(command, tmp_path):
    assert "plan.json: no such file; a run writes it" in refused(command("status", folder=tmp_path))
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "plan.json").write_text('{"batches": [{"sweep": "size", "variant": "serial"}]}')
    assert "not a plan of this version" in refused(command("status", folder=tmp_path))


# --- doctor ------------------------------------------------------------------------------------------------------


def checks(done: subprocess.CompletedProcess) -> dict[str, dict]:
    found = json.loads(done.stdout)
    assert done.returncode == (found["errors"] > 0), done.stderr
    assert found["errors"] == sum(check["state"] == "error" for check in found["checks"])
    assert all(check["advice"] or check["state"] == "ok" for check in found["checks"])
    return {check["name"]: check for check in found["checks"]}


def test_doctor_checks_everything_that_measuring_needs(tmp_path):
    found = checks(hpcmm("doctor", "--json", folder=tmp_path))
    right = ["Python", "hpcmm", "C kernels", "MPI", "launcher", "files"]
    wanted = [*right, "CPU", "BLAS", "GPU", "Slurm", "C compiler", "C++ compiler", "Snakemake", "isolation", "memory"]
    wanted += ["/dev/shm", "disk"]
    assert [name for name in wanted if not any(each.startswith(name) for each in found)] == []
    for name in right:
        assert found[name]["state"] == "ok", found[name]
    assert "starts 2 ranks of one job, which exchange 1 MB" in found["launcher"]["found"]
    if backends.missing("cuda"):
        assert found["GPUs"]["state"] in ("ok", "error")  # an error where a driver is installed and shows none
    assert not list(tmp_path.iterdir()), "it leaves nothing behind"


def test_doctor_prints_a_line_a_check_and_its_advice():
    shown = as_text([Check("GPU", "ok", "none"), Check("disk", "warning", "full", "delete"), Check("MPI", "error", "")])
    *lines, count = shown.splitlines()
    assert lines == ["ok       GPU   none", "warning  disk  full", "               -> delete", "error    MPI   "]
    assert count == "1 error, 1 warning"


@pytest.mark.skipif(bool(backends.missing("cuda")), reason=backends.missing("cuda") or "there is a GPU")
def test_doctor_tries_the_gpus(tmp_path):
    found = checks(hpcmm("doctor", "--json", folder=tmp_path))
    assert found["GPU 0"]["state"] == "ok" and "GPU-" in found["GPU 0"]["found"]
    assert {"driver", "CUDA", "NCCL"} <= set(found)


@pytest.mark.slow
def test_doctor_of_several_ranks_prints_once(mpiexec, tmp_path):
    done = mpiexec(2, "-m", "hpcmm", "doctor", "--json", "--results", tmp_path)
    found = checks(done)
    assert json.loads(done.stdout)["ranks"] == 2
    assert found["launcher"]["found"] == "2 ranks of one job"
    assert found["ranks"]["found"].startswith("2 on ")
    assert found["message"]["found"] == "1 MB went around all 2 ranks"


def test_a_message_that_arrives_changed_is_an_error():
    comm = types.SimpleNamespace(rank=0, size=2, sendrecv=lambda sent, right, source: bytes(len(sent)))
    with pytest.raises(RuntimeError, match="1000000 bytes from rank 1 arrived changed"):
        mpi.exchange(comm)


def test_doctor_detects_singletons_of_another_mpi_launcher(monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    _, launcher = mpi.check_mpi(MPI.COMM_SELF)
    assert (launcher.name, launcher.state) == ("launcher", "error")
    assert "started 2 processes, and each is rank 0 of 1" in launcher.found
    assert "pip install --no-binary mpi4py" in launcher.advice


def test_doctor_warns_of_a_slurm_that_does_not_answer(tmp_path, monkeypatch):
    """Runs on this machine do not need it; the process of a Slurm job does."""
    for name, body in (("sbatch", "exit 1"), ("sinfo", "echo Unable to contact slurm controller >&2; exit 1")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    (alone,) = programs.check_slurm()
    assert alone.state == "warning" and "does not answer: Unable to contact slurm controller" in alone.found
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    (within,) = programs.check_slurm()
    assert within.state == "error" and within.found == alone.found


@pytest.mark.slow
def test_doctor_reports_faults_of_the_launcher(tmp_path, monkeypatch):
    """An mpiexec of another library starts processes that know nothing of each other."""
    launcher = tmp_path / "mpiexec"
    monkeypatch.setattr(mpi, "find_launcher", lambda: str(launcher))
    for name in SIZE_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for body, seconds, why in [
        ('shift 2; "$@"; "$@"', SECONDS, "each is rank 0 of 1"),
        ("echo no such host >&2; exit 3", SECONDS, "no such host"),
        ("exec sleep 1000", 0.5, "no answer within 0.5 s"),
        ("(echo no interface; echo ---------------------; seq 999) >&2; exit 3", SECONDS, "no interface 1 2"),
        ("(seq 999; echo OSError) >&2; exit 3", SECONDS, "999 OSError"),
        ("exit 3", SECONDS, "-n 2 failed: exit status 3"),
    ]:
        launcher.write_text(f"#!/bin/sh\n{body}\n")
        launcher.chmod(0o755)
        monkeypatch.setattr(check, "SECONDS", seconds)
        *_, found = mpi.check_mpi(MPI.COMM_SELF)
        assert (found.name, found.state) == ("launcher", "error") and why in found.found, body


def test_equal_nodes_are_printed_once():
    same, here, there = Check("Python", "ok", "3.12"), Check("disk", "ok", "1 GiB"), Check("disk", "warning", "0 GiB")
    of_disk = Check("disk", "ok", "a, c: 1 GiB"), Check("disk", "warning", "b: 0 GiB")
    assert combine([("a", [same, here]), ("b", [same, there]), ("c", [same, here])]) == [same, *of_disk]


def test_ranks_without_a_gpu_of_their_own_are_named():
    assert check_ranks([("a", 0, 0), ("a", 1, 0)]).state == "ok", "no GPU at all: CPU only"
    assert check_ranks([("a", 0, 2), ("a", 1, 2), ("b", 0, 2)]) == Check("ranks", "ok", "2 on a, 1 on b")
    found = check_ranks([("a", 0, 1), ("a", 1, 1)])
    assert found.state == "warning" and "rank 1 of a" in found.found
