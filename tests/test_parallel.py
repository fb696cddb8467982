"""Block rows, end-to-end calls over several ranks, and refused launches."""

import itertools
import os
import re
import time
from pathlib import Path
from unittest import mock

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpi4py import MPI

from hpcmm.operations.reduction import no_result
from hpcmm.parallel import world
from hpcmm.parallel.collectives import BlockRows, broadcast
from hpcmm.parallel.schedules import block_rows

PROGRAMS = Path(__file__).parent / "mpi_programs"


@given(rows=st.integers(0, 2**31), ranks=st.integers(1, 300))
def test_block_rows_cover_all_rows_once_in_order_and_evenly(rows, ranks):
    blocks = block_rows(rows, ranks)
    firsts, counts = zip(*blocks, strict=True)
    assert len(blocks) == ranks and [*firsts, rows] == [0, *itertools.accumulate(counts)]
    assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize(
    "device", [pytest.param("cpu", marks=pytest.mark.slow), pytest.param("cuda", marks=pytest.mark.gpu)]
)
def test_end_to_end_calls_on_one_to_five_ranks_are_right(mpi_output, device):
    count = {"cpu": 10, "cuda": 50}[device]
    assert f"{count} drawn cases: right" in mpi_output(5, PROGRAMS / "scatter.py", device, count, timeout=600)


@pytest.mark.parametrize(
    ("fault", "case"),
    [("gather", ""), ("restore", ""), ("minimum", r"\(\('minimum', 'serial', 'int32'\), \(")],
    ids=["a lost row", "a kernel alone on old results", "a rank that contributes nothing"],
)
def test_a_broken_phase_or_rank_of_an_end_to_end_call_is_found(mpiexec, fault, case):
    done = mpiexec(3, PROGRAMS / "scatter.py", "cpu", 100, fault, timeout=600)
    assert done.returncode != 0 and "right" not in done.stdout
    assert re.search(f"AssertionError: {case}.*passed=False", done.stderr), done.stderr


@pytest.mark.parametrize("dtype", ["int32", "float32", "float64"])
@pytest.mark.parametrize("combination", [min, max])
def test_the_fill_value_beats_every_result(combination, dtype):
    missing = no_result(dtype, {min: "minimum", max: "maximum"}[combination])
    assert missing == np.array(missing).astype(dtype)
    assert not any(combination(missing, value) == value for value in (-(2**31) + 1, -1, 0, 1, 2**31 - 2))


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


def test_counts_are_rows_however_many_elements_a_matrix_has():
    rows, columns = 70_000, 40_000  # 2.8e9 elements
    whole = np.broadcast_to(np.zeros((), np.float32), (rows, columns))  # that take no memory
    comm = mock.Mock(rank=0, size=3)
    blocks = BlockRows(comm, rows)
    part = np.broadcast_to(np.ones((), np.float32), (blocks.rows, columns))
    blocks.scatter(whole, part)
    blocks.gather(part, whole)
    broadcast(comm, whole)
    (sent, received), (returned, gathered) = comm.Scatterv.call_args.args[:2], comm.Gatherv.call_args.args[:2]
    (shared,) = comm.Bcast.call_args.args[:1]
    for _, counts, starts, _ in (sent, gathered):
        assert (counts, starts) == ([23334, 23333, 23333], [0, 23334, 46667])
    assert [each[1] for each in (received, returned, shared)] == [23334, 23334, 70_000]
    assert {each[-1].Get_size() for each in (sent, received, returned, gathered, shared)} == {columns * 4}


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


def test_ranks_take_the_gpus_of_their_node_in_turn(mpi_output):
    mpi_output(4, PROGRAMS / "binding.py")


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


def test_ranks_in_time_are_left_alone(mpi_output):
    printed = mpi_output(3, PROGRAMS / "late.py", "in_time", 2)
    assert printed.count("done") == 3
