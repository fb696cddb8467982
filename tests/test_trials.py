"""Trials choose the fastest algorithm, in spite of noise and of a clock that falls."""

import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcmm import backends
from hpcmm.model import DeviceError, Task
from hpcmm.operations import OPERATIONS, choice, trials, turns

CLOSE = 1.005  # time over that of the fastest up to which a choice is right


class Simulated:
    """Candidates whose true times are known.

    The clock falls while the device gets warm. A run is in one of two states, and in 3 of 100 it is disturbed; the
    first run of each candidate loads its kernel.
    """

    def __init__(self, true, noise, states, fall, rng):
        self.true, self.noise, self.states, self.fall, self.rng = true, noise, states, fall, rng
        self.runs = [0] * len(true)
        self.spent = 0.0

    def __call__(self, number: int) -> float:
        clock = 1 + self.fall * (1 - np.exp(-sum(self.runs) / 15))
        time = self.true[number] * clock * np.exp(self.noise * self.rng.standard_normal())
        time *= (1 + self.states * (self.rng.random() < 0.5)) * (1 + 0.3 * (self.rng.random() < 0.03))
        time += 0.0 if self.runs[number] else 2e-3
        self.runs[number] += 1
        self.spent += time
        return time


def by_one_timing(seconds, count: int) -> int:
    """The choice by one timing of each candidate after the other: the median of four runs."""
    found = {}
    for number in range(count):
        seconds(number)
        found[number] = statistics.median(seconds(number) for _ in range(4))
    return min(found, key=found.get)


def draw(seed: int, seconds: float):
    """True times of 8 candidates, some of them almost as fast as the fastest."""
    rng = np.random.default_rng(seed)
    apart = rng.choice([0.002, 0.004, 0.007, 0.01, 0.02, 0.044, 0.1, 0.5], 7)
    return rng.permutation(seconds * np.exp([0, *apart])), rng


@pytest.mark.parametrize(
    ("seconds", "noise", "states", "fall"),
    [(2.3e-3, 0.005, 0.0, 0.04), (6e-6, 0.02, 0.03, 0.0), (5e-4, 0.01, 0.0, 0.04), (0.15, 0.0015, 0.0, 0.03)],
    ids=["the case of float64 at 4096", "short, with two states", "middle", "long"],
)
def test_the_choice_is_close_to_the_fastest_where_one_timing_fails(seconds, noise, states, fall):
    draws, wrong, wrong_by_one = 120, 0, 0
    for seed in range(draws):
        for choose in (turns.fastest, by_one_timing):
            true, rng = draw(seed, seconds)
            device = Simulated(true, noise, states, fall, rng)
            late = true[choose(device, len(true))] > CLOSE * true.min()
            if choose is turns.fastest:
                wrong += late
                round_of_all = 1.4 * sum(true) + 2e-3 * len(true)
                alone = turns.ROUNDS_ALONE * len(true) * turns.ALONE if seconds >= turns.LONG else 0.0
                assert device.spent <= max(turns.SECONDS, turns.FEWEST * round_of_all, alone) + 4 * round_of_all
            else:
                wrong_by_one += late
    assert wrong <= 0.01 * draws
    assert wrong_by_one >= 0.05 * draws


class Limited:
    """Three candidates. The first needs the most power, so the clock falls while it runs."""

    true, power, clock = (0.0190, 0.0200, 0.0205), (1.3, 1.0, 1.1), 1.0

    def __call__(self, number: int) -> float:
        time = self.true[number] / self.clock
        self.clock += (1 / self.power[number] - self.clock) * (1 - np.exp(-time / 0.03))
        return time


def test_long_builds_of_a_table_are_timed_at_the_clocks_of_their_own_power():
    class Backend:
        device = Limited()

        def prepare(self, task: int, arrays: dict):
            return lambda: task

        def seconds_alone(self, run, cold, arrays, spins) -> float:
            return self.device(run())

    found = trials.timed(Backend(), [choice.Build(str(number), number) for number in range(3)], {})
    assert found == pytest.approx({str(i): Limited.true[i] * Limited.power[i] for i in range(3)}, rel=0.05)
    assert min(found, key=found.get) == "1"


def test_a_candidate_that_lowers_the_clock_is_judged_at_its_own():
    """In turns of single runs the clock is that of the mean power, and the first candidate looks fastest."""
    device = Limited()
    for number in range(60):  # to the mean clock
        device(number % 3)
    assert min(range(3), key=device) == 0
    assert turns.fastest(device, 3) == 1


@given(st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=8), st.data())
def test_without_noise_the_fastest_candidate_that_runs_is_chosen(true, data):
    failing = data.draw(st.sets(st.integers(0, len(true) - 1), max_size=len(true) - 1))

    def seconds(number: int) -> float:
        if number in failing:
            raise DeviceError("does not run")
        return true[number]

    chosen = turns.fastest(seconds, len(true))
    assert true[chosen] == min(time for number, time in enumerate(true) if number not in failing)


def test_the_error_of_the_last_candidate_is_raised_if_none_runs():
    def seconds(number: int) -> float:
        raise DeviceError(f"status {number}")

    with pytest.raises(DeviceError, match="status 2"):
        turns.fastest(seconds, 3)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_operands_of_a_trial_have_the_types_of_the_product(dtype):
    """C of int8 is int32: an array of int8 would be too small for what a kernel stores."""
    backend, matmul = backends.open_backend("cpu", threads=1, local_rank=0, share_gpu=False), OPERATIONS["matmul"]
    task = Task(matmul, matmul.variant("numpy"), (3, 5, 7), dtype, {"alpha": 1.0, "beta": 0.0})
    arrays = trials.Operands(backend).of(task)
    for operand in matmul.operands:
        found = arrays[operand.name]
        assert (found.dtype, found.shape) == (task.storage(operand), task.shape_of(operand))


def test_a_long_product_has_five_runs_of_each_candidate():
    device = Simulated([1.0, 1.01, 1.02, 3.0], 0.0, 0.0, 0.0, np.random.default_rng(1))
    assert turns.fastest(device, 4) == 0
    assert device.runs == [5, 5, 5, 3]


@pytest.mark.gpu
@pytest.mark.parametrize("cold", [True, False])
def test_the_algorithm_with_the_least_times_is_bound_cuda(gpu, monkeypatch, cold):
    """Times are made up, so that each proposal must win once; trials are cold if the repetitions are."""
    from tasks import task

    from hpcmm.operations.matmul import MATMUL

    monkeypatch.setattr(gpu, "cold", cold)
    arrays = {name: gpu.empty((256, 256), "float32") for name in "ABC"}
    for array in arrays.values():
        array.fill(1)
    tried: list[int] = []

    def seconds_alone(run, cold, arrays, lead):
        assert cold is gpu.cold
        run()
        tried.append(id(run))
        return 1.0 if list(dict.fromkeys(tried)).index(id(run)) == wanted else 2.0

    monkeypatch.setattr(gpu, "seconds_alone", seconds_alone)
    for wanted in range(2):
        tried.clear()
        run = gpu.prepare(task(MATMUL, (256,) * 3, variant="cublaslt"), arrays)
        count = len(set(tried))
        if count <= wanted:
            pytest.skip(f"cuBLASLt proposes {count} algorithm(s) on this GPU")
        assert f": proposal {wanted + 1} of {count}" in run.choice
