"""The commands of ``python -m hpcmm``, started as a person starts them."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import timings
import yaml
from hypothesis import given
from hypothesis import strategies as st
from timings import kernel_samples, measurement

from hpcmm import backends, journal, plan, store
from hpcmm import status as tool_status
from hpcmm.config import merge_into
from hpcmm.doctor import SECONDS, SIZES, Check, check_ranks, combine
from hpcmm.durations import duration
from hpcmm.journal import Journal
from hpcmm.model import Point

ROOT = Path(__file__).parents[1]
PROGRAMS = Path(__file__).parent / "mpi_programs"
COMMANDS = ("plan", "status", "report", "merge", "doctor")
ALONE = {name: value for name, value in os.environ.items() if name not in SIZES}


def hpcmm(*arguments, folder: Path | None = None, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "hpcmm", *map(str, arguments)],
        cwd=folder,
        env=ALONE | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


def refused(done: subprocess.CompletedProcess) -> str:
    assert done.returncode == 1
    assert not done.stdout and "Traceback" not in done.stderr
    (line,) = done.stderr.splitlines()
    return line.removeprefix("hpcmm: error: ")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_says_what_it_does(command):
    done = hpcmm(command, "--help")
    assert done.returncode == 0 and f"usage: python -m hpcmm {command}" in done.stdout
    assert command in hpcmm("--help").stdout


@pytest.mark.parametrize("arguments", [(), ("measure",), ("plan", "--colour"), ("merge", "a.h5"), ("report",)])
def test_wrong_arguments_end_with_2_and_the_usage(arguments):
    done = hpcmm(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: python -m hpcmm") and not done.stdout


# --- plan --------------------------------------------------------------------------------------------------------

CONFIG = {
    "scale": "quick",
    "backends": "cuda",
    "measuring": {
        "warmups": 1,
        "min_repetitions": 3,
        "max_repetitions": 6,
        "max_seconds": {"quick": 0.5, "full": 2},
        "relative_interval": 0.05,
        "cache": "cold",
        "seed": 1,
    },
    "sweeps": {
        "size": {
            "operation": "matmul",
            "variants": ["serial", "naive", "cublas"],
            "sizes": {"quick": [64, 128], "full": {"start": 16, "stop": 3200, "step": 16}},
            "dtypes": ["float32"],
            "ranks": [1, 2],
        },
    },
}


@pytest.fixture
def config(tmp_path) -> Path:
    path = tmp_path / "experiment.yaml"
    path.write_text(yaml.safe_dump(CONFIG))
    return path


def table(output: str) -> list[list[str]]:
    """Rows of the plan's table; the last is that of all jobs together."""
    lines = output.splitlines()
    return [re.split(r"\s{2,}", line.strip()) for line in lines[2 : lines.index("")]]


def test_a_plan_shows_jobs_points_ranks_gpus_and_times(config):
    done = hpcmm("plan", "--configfile", config)
    assert done.returncode == 0, done.stderr
    planned = plan.make(CONFIG, "", 0)
    rows = table(done.stdout)
    assert [row[:6] for row in rows[:-1]] == [
        ["size", "cuda", "1", "1", "1", "4"],
        ["size", "cuda", "2", "2", "1", "4"],
    ]
    for row, batch in zip(rows, planned.to_measure, strict=False):
        assert row[6] == row[7] == duration(batch.seconds)
    total = sum(batch.seconds for batch in planned.to_measure)
    assert rows[-1] == [
        "all",
        "2",
        "8",
        duration(max(b.seconds for b in planned.to_measure)),
        duration(total),
    ]
    hours = sum(batch.ranks * batch.seconds for batch in planned.to_measure) / 3600
    assert f"{hours:.1f} GPU hours at most" in done.stdout
    assert "size, ranks 1, 2: serial: the config asks for backends: cuda" in done.stdout


def test_a_plan_takes_overrides_as_snakemake_does(config):
    override = "measuring={max_seconds: 5, warmups: 0}"
    done = hpcmm("plan", "--config-file", config, "--config", "scale=full", "backends=cpu", override)
    assert done.returncode == 0, done.stderr
    measuring = CONFIG["measuring"] | {"max_seconds": 5, "warmups": 0}
    planned = plan.make(CONFIG | {"scale": "full", "backends": "cpu", "measuring": measuring}, "", 0)
    (of_one, of_two, all_of_them) = table(done.stdout)
    assert of_one[:2] == of_two[:2] == ["size", "cpu"]
    assert all_of_them[1:3] == [str(len(planned.to_measure)), "400"]
    assert all_of_them[4] == duration(sum(batch.seconds for batch in planned.to_measure))


def test_ten_thousand_points_over_many_ranks_are_planned_in_jobs(config):
    sizes = {"full": {"start": 16, "stop": 3200, "step": 8}}
    changes = {
        "scale": "full",
        "sweeps": {"size": {"sizes": sizes, "ranks": [1, 2, 4, 8, 16, 32, 64], "tiles": [8, 16, 32]}},
    }
    done = hpcmm("plan", "--configfile", config, "--config", *(f"{k}={json.dumps(v)}" for k, v in changes.items()))
    assert done.returncode == 0, done.stderr
    rows = table(done.stdout)
    assert [row[2] for row in rows[:-1]] == ["1", "2", "4", "8", "16", "32", "64"]
    assert int(rows[-1][2]) == 7 * 399 * (3 + 1) > 10_000


def test_for_a_cluster_the_gpus_of_this_machine_do_not_matter(config):
    without = hpcmm("plan", "--configfile", config, "--config", "backends=auto", "--cluster", CUDA_VISIBLE_DEVICES="")
    assert {tuple(row[:3]) for row in table(without.stdout)[:-1]} == {
        ("size", device, ranks) for device in ("cpu", "cuda") for ranks in ("1", "2")
    }
    assert "Left out" not in without.stdout


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("scale=huge", "config: scale: 'huge'; allowed: quick, full"),
        ("scale", "--config scale: allowed: KEY=VALUE"),
        ("job_minutes=0", "config: job_minutes: 0; allowed: more than 0"),
        ("sweeps={", "--config sweeps={: "),
    ],
)
def test_a_plan_refuses_a_wrong_override(config, override, named):
    done = hpcmm("plan", "--configfile", config, "--config", override)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert done.stderr.startswith("hpcmm: error: ") and named in done.stderr


def test_a_plan_names_the_config_that_it_cannot_read(tmp_path):
    assert "none.yaml" in refused(hpcmm("plan", "--configfile", tmp_path / "none.yaml"))
    (tmp_path / "list.yaml").write_text("[1, 2]")
    assert "list.yaml: [1, 2]; allowed: keys with values" in refused(
        hpcmm("plan", "--configfile", tmp_path / "list.yaml")
    )


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_leaves_early_gets_no_traceback(config, unbuffered):
    """Whether that shows in the first line, or where Python writes all that it kept, at its end."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "hpcmm", "plan", "--configfile", config]
    environment = ALONE | {"PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=120, env=environment)
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
    rest = [
        (path, value)
        for path, value in leaves(config)
        if not any(path[: len(other)] == other[: len(path)] for other in wanted)  # one lies within the other
    ]
    merge_into(config, changes)
    assert dict(leaves(config)) == dict(rest) | wanted


# --- merge and report --------------------------------------------------------------------------------------------

POINT = Point("matmul", "openmp", (8, 8, 8), "float32", 1, {"alpha": 1.5, "beta": 0.5})


def run_of(path: Path, host: str) -> Path:
    rows = [timings.measurement(POINT, samples=timings.kernel_samples([1e-3] * 7))]
    return timings.write(path, {"size": rows}, {"host": host})


def test_merge_keeps_runs_apart_and_takes_each_once(tmp_path):
    a, b = run_of(tmp_path / "a.h5", "left"), run_of(tmp_path / "b.h5", "right")
    done = hpcmm("merge", a, b, a, "-o", tmp_path / "all.h5")
    assert done.returncode == 0, done.stderr
    assert "2 measurements of 2 runs; 1 were there twice" in done.stdout
    groups = store.read(tmp_path / "all.h5")
    assert [json.loads(text)["host"] for text in groups["runs"]["provenance"]] == ["left", "right"]
    assert list(groups["measurements"]["run"]) == [0, 1]
    np.testing.assert_array_equal(np.bincount(groups["samples"]["measurement"]), [7, 7])


def test_merge_writes_over_nothing(tmp_path):
    a = run_of(tmp_path / "a.h5", "left")
    before = a.read_bytes()
    assert "a.h5: exists already" in refused(hpcmm("merge", a, a, "-o", a))
    assert a.read_bytes() == before


def test_merge_refuses_what_is_not_ours_or_damaged(tmp_path):
    a = run_of(tmp_path / "a.h5", "left")
    (tmp_path / "cut.h5").write_bytes(a.read_bytes()[:-50])
    (tmp_path / "text.h5").write_text("no HDF5 at all")
    for name in ("cut.h5", "text.h5", "none.h5"):
        assert name in refused(hpcmm("merge", a, tmp_path / name, "-o", tmp_path / "all.h5"))
    assert not (tmp_path / "all.h5").exists()


# --- status ------------------------------------------------------------------------------------------------------


@pytest.fixture
def running(tmp_path):
    """Start a job of a plan of two sweeps on the CPU: ``with running(mpi_job) as process``."""
    sweep = CONFIG["sweeps"]["size"] | {"variants": ["openmp", "numpy"], "sizes": [8, 12, 16]}
    measuring = CONFIG["measuring"] | {"min_repetitions": 6, "max_repetitions": 6, "max_seconds": 0.05}
    config = CONFIG | {"backends": "cpu", "measuring": measuring}
    config["sweeps"] = {"size": sweep | {"ranks": [1]}, "later": sweep | {"sizes": [7], "ranks": [2]}}
    plan.make(config, "", 0).write(tmp_path / "results" / "plan.json")

    def start(mpi, batch="size/cpu-r1-1", ranks=1, program=(ROOT / "jobs" / "measure.py",)):
        output = tmp_path / "results" / "raw" / f"{batch}.h5"
        arguments = ["--plan", tmp_path / "results" / "plan.json", "--batch", batch, "--output", output]
        return mpi(ranks, *program, *arguments)

    return start


def status(folder: Path) -> list[str]:
    done = hpcmm("status", folder=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_status_follows_a_run_from_its_plan_to_its_end(running, mpi_job, mpiexec, tmp_path):
    total, first, second = status(tmp_path)
    assert total.startswith("results: 0 of 8 points measured, 0 of 2 jobs done, ")
    assert total.endswith("left at most, one job after another")
    assert re.fullmatch(r"size/cpu-r1-1 +0/6 +waiting, \d+ .* at most", first)
    assert re.fullmatch(r"later/cpu-r2-1 +0/2 +waiting, \d+ .* at most", second)

    journal = tmp_path / "results" / "raw" / "size" / "cpu-r1-1.journal"
    with running(mpi_job, program=(PROGRAMS / "rank_fails.py", "stuck", 2)) as job:
        while job.poll() is None and not (journal.exists() and b"12, 12, 12" in journal.read_bytes()):
            time.sleep(0.01)
        before = journal.read_bytes()
        _, first, _ = status(tmp_path)
    assert re.fullmatch(r"size/cpu-r1-1 +2/6 +measuring openmp 12x12x12 float32, about .+ left", first)
    assert journal.read_bytes() == before, "looking changes nothing"

    old = time.time() - 3600
    os.utime(journal, (old, old))
    _, first, _ = status(tmp_path)
    assert first.endswith(" 2/6  stopped 60 min ago at openmp 12x12x12 float32; start the run again")

    assert running(mpiexec).returncode == 0
    assert running(mpiexec, "later/cpu-r2-1", 2).returncode == 0
    total, first, second = status(tmp_path)
    assert total == "results: 8 of 8 points measured, 2 of 2 jobs done"
    assert first.endswith(" 6/6  done") and second.endswith(" 2/2  done")


def test_status_of_many_jobs_names_those_that_are_on(tmp_path):
    sizes = {"start": 64, "stop": 640, "step": 8}
    sweep = CONFIG["sweeps"]["size"] | {"ranks": [1, 2, 4, 8], "sizes": sizes}
    planned = plan.make(CONFIG | {"backends": "cpu", "job_minutes": 1, "sweeps": {"size": sweep}}, "", 0)
    assert len(planned.to_measure) > 40
    planned.write(tmp_path / "results" / "plan.json")
    batch = planned.to_measure[3]
    path = tmp_path / "results" / "raw" / f"{batch.name}.journal"
    Journal(path, batch, {"utc": "2026-01-01T00:00:00+00:00"}).close()
    _, one, others, _ = status(tmp_path)
    assert one.startswith(f"{batch.name} ") and one.endswith(" starting")
    assert others == f"and 0 done, {len(planned.to_measure) - 1} waiting"


def test_status_counts_what_a_new_job_has_from_an_earlier_one(running, mpiexec, tmp_path):
    assert running(mpiexec, "later/cpu-r2-1", 2).returncode == 0
    output = tmp_path / "results" / "raw" / "later" / "cpu-r2-1.h5"
    output.unlink()
    planned = plan.read(tmp_path / "results" / "plan.json")
    batch = planned.batch("later/cpu-r2-1")
    other = plan.make({**planned.config, "job_minutes": 999, "scale": "quick"}, "", 0).batch("later/cpu-r2-1")
    assert batch == other
    journal = Journal(output.with_suffix(".journal"), batch, {"utc": "2026-01-01T00:00:00+00:00"})
    journal.close()
    line = next(line for line in status(tmp_path) if line.startswith("later/"))
    assert "2/2" in line


def test_status_names_the_points_that_failed(running, mpiexec, tmp_path):
    batch = plan.read(tmp_path / "results" / "plan.json").batch("later/cpu-r2-1")
    path = tmp_path / "results" / "raw" / "later" / "cpu-r2-1.journal"
    journal = Journal(path, batch, {"utc": "2026-01-01T00:00:00+00:00"})
    journal.begin(batch.points[0])
    journal.fail(batch.points[0], 'MemoryError: no "room"', counts=True)
    journal.close()
    lines = status(tmp_path)
    assert '    not measured: openmp 7x7x7 float32: MemoryError: no "room"' in lines


def test_a_folder_that_cannot_be_written_is_told_plainly(tmp_path):
    rows = [measurement(Point("sum", "serial", (8,), "int32", 1), samples=kernel_samples([1.0]))]
    timings.write(tmp_path / "timings.h5", {"size": rows})
    (tmp_path / "taken").write_text("a file")
    said = refused(hpcmm("report", tmp_path / "timings.h5", "--results", tmp_path / "taken"))
    assert "taken" in said and said.endswith(": Not a directory")
    (tmp_path / "results" / "report.html").mkdir(parents=True)
    said = refused(hpcmm("report", tmp_path / "timings.h5", "--results", tmp_path / "results"))
    assert said.endswith("results/report.html: Is a directory")


def test_what_a_run_left_undone_names_the_point_in_which_a_job_ended(running, tmp_path):
    results = tmp_path / "results"
    planned = plan.read(results / "plan.json")
    assert tool_status.unfinished(planned, results) == ""
    batch = planned.batch("later/cpu-r2-1")
    path = results / "raw" / "later" / "cpu-r2-1.journal"
    journal = Journal(path, batch, {"utc": "2026-01-01T00:00:00+00:00"})
    journal.begin(batch.points[0])
    journal.fail(batch.points[0], "MemoryError", counts=True)
    assert tool_status.unfinished(planned, results).splitlines()[1:] == ["    later/cpu-r2-1: 0 of 2 points"]
    journal.begin(batch.points[1])  # and a crash
    journal.close()
    head, line = tool_status.unfinished(planned, results).splitlines()
    assert "the same command again does the rest" in head
    assert line == f"    later/cpu-r2-1: 0 of 2 points, ended in {batch.points[1].name}"


def test_status_without_a_run_says_so(tmp_path):
    assert "plan.json: no such file; a run writes it" in refused(hpcmm("status", folder=tmp_path))
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "plan.json").write_text('{"batches": [{"sweep": "size", "variant": "serial"}]}')
    assert "not a plan of this version" in refused(hpcmm("status", folder=tmp_path))


# --- doctor ------------------------------------------------------------------------------------------------------


def checks(done: subprocess.CompletedProcess) -> dict[str, dict]:
    found = json.loads(done.stdout)
    assert done.returncode == (found["errors"] > 0), done.stderr
    assert found["errors"] == sum(check["state"] == "error" for check in found["checks"])
    assert all(check["advice"] or check["state"] == "ok" for check in found["checks"])
    return {check["name"]: check for check in found["checks"]}


def test_doctor_looks_at_all_that_measuring_needs(tmp_path):
    found = checks(hpcmm("doctor", "--json", folder=tmp_path))
    wanted = ["Python", "hpcmm", "C kernels", "CPU", "BLAS", "MPI", "launcher", "GPU", "Slurm", "C compiler"]
    wanted += ["Snakemake", "memory", "/dev/shm", "disk", "files"]
    assert [name for name in wanted if not any(each.startswith(name) for each in found)] == []
    for name in ("Python", "hpcmm", "C kernels", "MPI", "launcher", "files"):
        assert found[name]["state"] == "ok", found[name]
    assert "starts 2 ranks of one job" in found["launcher"]["found"]
    assert not list(tmp_path.iterdir()), "it leaves nothing behind"


def test_doctor_prints_a_line_a_check_and_its_advice(tmp_path):
    done = hpcmm("doctor", folder=tmp_path)
    lines = done.stdout.splitlines()
    assert re.fullmatch(r"\d+ errors, \d+ warnings", lines[-1])
    assert lines[-1].startswith("0 errors") is (done.returncode == 0)
    assert all(re.match(r"(ok|warning|error) +\S| +-> \S", line) for line in lines[:-1])


@pytest.mark.skipif(not backends.cuda_missing(), reason="this machine has a GPU")
def test_doctor_without_a_gpu_is_content(tmp_path):
    found = checks(hpcmm("doctor", "--json", folder=tmp_path))
    assert found["GPUs"]["state"] in ("ok", "error")  # an error where a driver is installed and shows none
    assert "CUDA-aware MPI" not in found


@pytest.mark.skipif(bool(backends.cuda_missing()), reason=backends.cuda_missing() or "there is a GPU")
def test_doctor_tries_the_gpus(tmp_path):
    found = checks(hpcmm("doctor", "--json", folder=tmp_path))
    assert found["GPU 0"]["state"] == "ok" and "GPU-" in found["GPU 0"]["found"]
    assert {"driver", "CUDA", "NCCL", "CUDA-aware MPI"} <= set(found)


def test_doctor_of_several_ranks_is_told_once(mpiexec, tmp_path):
    done = mpiexec(2, "-m", "hpcmm", "doctor", "--json", "--results", tmp_path)
    found = checks(done)
    assert json.loads(done.stdout)["ranks"] == 2
    assert found["launcher"]["found"] == "2 ranks of one job"
    assert found["ranks"]["found"].startswith("2 on ")


@pytest.mark.parametrize("variable", ["OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS"])
def test_doctor_knows_singletons_of_a_launcher_that_does_not_fit(tmp_path, variable):
    found = checks(hpcmm("doctor", "--json", folder=tmp_path, **{variable: "2"}))
    assert found["launcher"]["state"] == "error"
    assert "started 2 processes, and each is rank 0 of 1" in found["launcher"]["found"]
    assert "pip install --no-binary mpi4py" in found["launcher"]["advice"]


WITH_LAUNCHER = """
import sys
from hpcmm import __main__, doctor

def find_launcher():
    doctor.SECONDS = float(sys.argv[2])
    return sys.argv[1]

doctor.find_launcher = find_launcher
sys.exit(__main__.main(["doctor", "--json"]))
"""


def test_doctor_tells_what_is_wrong_with_the_launcher(tmp_path):
    """An mpiexec of another library starts processes that know nothing of each other."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, body, seconds, why in [
        ("singletons", 'shift 2; "$@"; "$@"', SECONDS, "each is rank 0 of 1"),
        ("fails", "echo no such host >&2; exit 3", SECONDS, "no such host"),
        ("hangs", "exec sleep 1000", 0.5, "no answer within 0.5 s"),
    ]:
        launcher = folder / "mpiexec"
        launcher.write_text(f"#!/bin/sh\n{body}\n")
        launcher.chmod(0o755)
        command = [sys.executable, "-c", WITH_LAUNCHER, launcher, str(seconds)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=ALONE, timeout=120)
        found = checks(done)["launcher"]
        assert found["state"] == "error" and why in found["found"], name


def test_doctor_finds_a_folder_that_it_cannot_write_to(tmp_path, monkeypatch):
    def no_locks(file, how):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(journal.fcntl, "flock", no_locks)
    from hpcmm import doctor

    found = {check.name: check for check in doctor.check_results(tmp_path)}
    assert found["files"].state == "error" and "No locks available" in found["files"].found
    assert "another file system" in found["files"].advice


def test_nodes_that_agree_are_told_of_once():
    same, here, there = Check("Python", "ok", "3.12"), Check("disk", "ok", "1 GiB"), Check("disk", "warning", "0 GiB")
    assert combine([("a", [same, here]), ("b", [same, there]), ("c", [same, here])]) == [
        same,
        Check("disk", "ok", "a, c: 1 GiB"),
        Check("disk", "warning", "b: 0 GiB"),
    ]


def test_ranks_without_a_gpu_of_their_own_are_named():
    assert check_ranks([("a", 0, 0), ("a", 1, 0)]).state == "ok", "no GPU at all: CPU only"
    assert check_ranks([("a", 0, 2), ("a", 1, 2), ("b", 0, 2)]) == Check("ranks", "ok", "2 on a, 1 on b")
    found = check_ranks([("a", 0, 1), ("a", 1, 1)])
    assert found.state == "warning" and "rank 1 of a" in found.found
