"""Block rows, end-to-end calls over several ranks, and refused launches."""

import os
import re
import time
from pathlib import Path

import psutil
import pytest
from mpi4py import MPI

from hpcmm.parallel import world

PROGRAMS = Path(__file__).parent / "mpi_programs"


@pytest.mark.slow
def test_end_to_end_calls_on_one_to_five_ranks_are_right(mpiexec):
    done = mpiexec(5, PROGRAMS / "scatter.py", "cpu", 10, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "10 drawn cases: right" in done.stdout


@pytest.mark.gpu
def test_end_to_end_calls_on_gpus_are_right(gpu, mpiexec):
    done = mpiexec(5, PROGRAMS / "scatter.py", "cuda", 50, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "50 drawn cases: right" in done.stdout


@pytest.mark.parametrize("part", ["gather", "restore"])
def test_a_broken_phase_of_an_end_to_end_call_is_found(mpiexec, part):
    done = mpiexec(3, PROGRAMS / "scatter.py", "cpu", 100, part, timeout=600)
    assert done.returncode != 0
    assert "wrong at " in done.stderr and "right" not in done.stdout


def test_a_rank_that_contributes_nothing_is_found(mpiexec):
    done = mpiexec(3, PROGRAMS / "scatter.py", "cpu", 30, "minimum", timeout=600)
    assert done.returncode != 0
    assert "AssertionError: (('minimum', 'serial', 'int32'), (" in done.stderr and "right" not in done.stdout


def test_no_rank_outlives_the_job_that_started_it(mpi_job, tmp_path):
    program = tmp_path / "sleep.py"
    program.write_text(
        "import os, pathlib, sys, time\n"
        "from mpi4py import MPI\n"
        "pathlib.Path(sys.argv[1], str(os.getpid())).touch()\n"
        "time.sleep(600)\n"
    )
    pids = tmp_path / "pids"
    pids.mkdir()
    with mpi_job(3, program, pids) as job:
        while job.poll() is None and len(list(pids.iterdir())) < 3:
            time.sleep(0.05)
    ranks = [int(each.name) for each in pids.iterdir()]
    assert len(ranks) == 3
    assert not [pid for pid in ranks if psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie"]


def test_tasks_of_srun_that_do_not_see_each_other_are_an_error(monkeypatch):
    monkeypatch.setenv("SLURM_TASK_PID", str(os.getpid()))
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    with pytest.raises(world.LaunchError, match="srun started 2 tasks but MPI sees one rank"):
        world.world()
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "1")
    assert world.world().size == 1


@pytest.mark.parametrize(
    "environment",
    [
        {"SLURM_NTASKS": "4"},  # salloc -n 4 mpiexec -n 1 ...
        {"SLURM_NTASKS": "4x", "SLURM_CPUS_PER_TASK": "²"},
        {"SLURM_STEP_NUM_TASKS": "4", "SLURM_TASK_PID": "1"},  # in a shell that srun started
        {"SLURM_STEP_NUM_TASKS": "4x", "SLURM_TASK_PID": "own"},
    ],
)
def test_an_allocation_is_not_taken_for_a_launch(monkeypatch, environment):
    for name, value in environment.items():
        monkeypatch.setenv(name, value.replace("own", str(os.getpid())))
    assert world.world().size == 1
    assert world.threads_per_rank(MPI.COMM_SELF) >= 1


@pytest.mark.parametrize(
    ("name", "limit"), [("OMP_NUM_THREADS", "1"), ("OMP_NUM_THREADS", "1,4"), ("SLURM_CPUS_PER_TASK", "1")]
)
def test_each_limit_on_threads_holds(monkeypatch, name, limit):
    for each in ("OMP_NUM_THREADS", "SLURM_CPUS_PER_TASK"):
        monkeypatch.delenv(each, raising=False)
    monkeypatch.setenv(name, limit)
    assert world.threads_per_rank(MPI.COMM_SELF) == 1


def test_ranks_take_the_gpus_of_their_node_in_turn(mpiexec):
    done = mpiexec(4, PROGRAMS / "binding.py")
    assert done.returncode == 0, done.stderr


def test_a_rank_that_comes_too_late_is_found_and_ends_all(mpiexec):
    done = mpiexec(3, PROGRAMS / "late.py", "asleep", 1)
    assert done.returncode != 0 and "done" not in done.stdout
    for rank in range(3):
        assert f"rank {rank} of 3 on " in done.stderr
    assert done.stderr.count("stuck in the test for 1 s") == 3
    assert "in asleep" in done.stderr and "MPI.COMM_WORLD.Barrier()" in done.stderr


def test_a_rank_that_holds_the_lock_of_python_is_found_too(mpiexec):
    done = mpiexec(3, PROGRAMS / "late.py", "locked", 1)
    assert done.returncode != 0 and "done" not in done.stdout
    assert "rank 0 of 3 on " in done.stderr and "rank 1 of 3 on " not in done.stderr


@pytest.mark.parametrize(
    ("kind", "reports"), [("asleep_at_end", 2), ("stopped", 2), ("killed", 0), ("orphaned", 0), ("asleep_after", 0)]
)
def test_no_rank_stays_when_one_does_not_end(mpiexec, kind, reports):
    """The end of MPI waits for all ranks."""
    done = mpiexec(3, PROGRAMS / "late.py", kind, 1)
    assert done.returncode != 0
    assert done.stderr.count("stuck in the end of MPI for 2 s") == reports, done.stderr
    ranks = [int(each) for each in re.findall(r"process (\d+)", done.stdout)]
    assert len(ranks) == 3
    until = time.monotonic() + 60
    while any(map(psutil.pid_exists, ranks)) and time.monotonic() < until:
        time.sleep(0.1)
    assert not any(map(psutil.pid_exists, ranks))


def test_ranks_in_time_are_left_alone(mpiexec):
    done = mpiexec(3, PROGRAMS / "late.py", "in_time", 2)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("done") == 3
