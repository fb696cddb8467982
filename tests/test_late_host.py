"""Repetitions that the GPU began before the host had queued them, and times as short as the events around them."""

import dataclasses
import math
import time

import pytest
from mpi4py import MPI
from timings import derived, product, took

from hpcmm import analysis
from hpcmm.analysis import tidy
from hpcmm.backends.cpu.device import CpuBackend
from hpcmm.bench.measure import Problem, measure_point
from hpcmm.model import TEXTBOOK
from hpcmm.model.measurement import Measuring
from hpcmm.operations import task_of
from hpcmm.parallel.distribution import LATE_RUNS, MOST_SPINS
from hpcmm.report import chapters, markup

POINT = product("serial", (9, 7, 8), "float64")


class Late(CpuBackend):
    """A backend whose host is late in the first ``times`` runs; run i takes i seconds."""

    def __init__(self, times: int):
        super().__init__(1)
        self.times, self.leads, self.late = times, [], False

    def seconds_alone(self, run, cold, arrays, lead=1):
        super().seconds_alone(run, cold, arrays, lead)
        self.leads.append(lead)
        self.late = len(self.leads) <= self.times
        return float(len(self.leads))


def test_late_runs_are_counted_for_the_contender_whose_kernel_was_late():
    point = dataclasses.replace(POINT, variant="openmp")
    limits = Measuring(1, 6, 6, 10.0, 0.05, "cold", 1)
    problem = Problem(MPI.COMM_SELF, Late(3), point, seed=1)
    with_warmup, beside = (each.late_runs for each in measure_point(problem, point, limits))
    assert (with_warmup, beside) == (0, 0), "the untimed runs before were late"
    backend = Late(0)
    late = iter([False] * 4 + [True, True, False] + [False] * 20)  # two warm-ups, each contender once, then the second
    run = backend.seconds_alone

    def seconds_alone(*arguments):
        seconds = run(*arguments)
        backend.late = next(late)
        return seconds

    backend.seconds_alone = seconds_alone
    problem = Problem(MPI.COMM_SELF, backend, point, seed=1)
    assert [each.late_runs for each in measure_point(problem, point, limits)] == [0, 2]


@pytest.mark.parametrize("late", [0, 1, 3, 9])
def test_a_late_host_does_the_repetition_again_with_a_longer_lead(late):
    backend = Late(late)
    problem = Problem(MPI.COMM_SELF, backend, POINT, seed=1)
    spread = problem.distributions([TEXTBOOK])[TEXTBOOK]
    run = spread.prepare(task_of(POINT))
    spread.call(run)
    spread.save_inputs()
    runs = min(late + 1, LATE_RUNS)
    assert spread.kernel(run, cold=True) == runs  # the time of the last one
    assert backend.leads == [1, 2, 4, 8, 16, 32][:runs]
    assert spread.late_runs == min(late, LATE_RUNS)
    spread.fetch()
    assert problem.judge(task_of(POINT))(spread.result["C"]).passed  # each started from the same inputs


def test_a_run_whose_host_was_late_keeps_its_lead():
    backend = Late(2)
    spread = Problem(MPI.COMM_SELF, backend, POINT, seed=1).distributions([TEXTBOOK])[TEXTBOOK]
    slow, other = spread.prepare(task_of(POINT)), spread.prepare(task_of(dataclasses.replace(POINT, variant="openmp")))
    spread.call(slow)
    spread.save_inputs()
    for run in (slow, slow, other, slow):
        spread.kernel(run, cold=True)
    assert backend.leads == [1, 2, 4, 4, 1, 4]
    again = spread.prepare(task_of(POINT))
    spread.kernel(again, cold=True)
    assert backend.leads[-1] == 1, "of the next point"
    backend.times = math.inf
    for _ in range(2):
        spread.kernel(again, cold=True)
    assert max(backend.leads) == MOST_SPINS == backend.leads[-1]


def test_a_cpu_is_never_late():
    backend = CpuBackend(1)
    backend.seconds_alone(lambda: None, False, {})
    assert backend.late is False


def test_a_late_host_is_noticed_cuda(gpu):
    gpu.seconds_alone(lambda: None, False, {})
    assert not gpu.late
    gpu.seconds_alone(lambda: time.sleep(0.01), False, {})
    assert gpu.late
    assert 0 < gpu.describe()["gpu"]["empty_event_pair_seconds"] < 1e-4


def test_times_that_are_short_beside_an_empty_pair_of_events_are_marked():
    seconds = {"naive": 9.9e-6, "coalesced": 10.1e-6, "serial": 5e-6}
    rows = [took(product(variant, dtype="float64"), each) for variant, each in seconds.items()]
    frame = derived(*rows, gpus=[{"name": "H200", "empty_event_pair_seconds": 1e-6}, {"name": "H200"}])
    own = frame.set_index("variant")
    assert own["short"].to_dict() == {"naive": True, "coalesced": False, "serial": False}
    assert own["event_seconds"]["naive"] == 1e-6 and math.isnan(own["event_seconds"]["serial"])
    (series,) = analysis.series(frame)
    table = chapters.ladder.ladder_table(series)
    text = markup.plain(table)
    assert "9.90 µs †" in text and text.count("†") == 1
    assert table.caption.endswith(f"; † below {tidy.SHORT} times an empty pair of CUDA events")
    assert "†" in markup.plain(chapters.sizes.size_table(series))
    without = derived(*rows)
    assert not without["short"].any()
    assert "†" not in chapters.sizes.size_table(next(analysis.series(without))).caption
