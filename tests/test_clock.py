"""The SM clock while a kernel repeats, and the libraries for context, on a GPU."""

import dataclasses
import math

import numpy as np
import pytest
from mpi4py import MPI
from tasks import task

from hpcmm.backends.cpu.device import CpuBackend
from hpcmm.bench.measure import Problem, measure_point
from hpcmm.model.measurement import Measuring, Point
from hpcmm.operations.matmul import MATMUL

LIMITS = Measuring(1, 2, 4, 1.0, 1.0, "cold", seed=1)
POINT = Point("matmul", "openmp", (64, 64, 64), "float32", 1, MATMUL.scalars)


class Clocked(CpuBackend):
    """A CPU that shows a clock, and what it was asked."""

    def __init__(self, clocks):
        super().__init__(1)
        self.clocks, self.asked = list(clocks), []

    def clock(self, run, seconds):
        run()
        self.asked.append(seconds)
        return self.clocks.pop(0)


def measured(backend, point=POINT, limits=LIMITS, **more):
    problem = Problem(MPI.COMM_SELF, backend, point, seed=1)
    return measure_point(problem, point, limits, **more)


def test_each_contender_has_the_clock_of_its_own_kernel_once():
    backend = Clocked([1.5e9, 1.25e9])
    own, baseline = found = measured(backend)
    assert [each.clock for each in found] == [1.5e9, 1.25e9]
    for each, seconds in zip((own, baseline), backend.asked, strict=True):
        kernels = [sample.seconds["kernel"] for sample in each.samples if not sample.call]
        assert min(kernels) <= seconds <= max(kernels)
    verdicts = {(each.contender, each.algorithm): each.verdict for each in found}
    later = measured(backend, visit=1, verdicts=verdicts)  # has no further clock to give
    assert len(backend.asked) == 2 and all(math.isnan(each.clock) for each in later)


def test_a_point_that_is_only_verified_has_no_clock_and_no_library():
    (found,) = measured(Clocked([]), limits=dataclasses.replace(LIMITS, min_repetitions=1, max_repetitions=1))
    assert found.contender == POINT.variant and found.verdict.passed and math.isnan(found.clock)


def test_a_cpu_has_no_clock():
    assert math.isnan(measured(CpuBackend(1))[0].clock)


@pytest.mark.gpu
def test_the_clock_of_a_gpu_is_below_its_maximum_cuda(gpu):
    arrays = {name: gpu.empty((1024, 1024), "float32") for name in "ABC"}
    for array in arrays.values():
        array.fill(1)
    run = gpu.prepare(task(MATMUL, (1024,) * 3, variant="cublas"), arrays)
    seconds = gpu.seconds_alone(run, True, arrays)
    most = gpu.describe()["gpu"]["max_sm_clock"]
    assert 0.1 * most < gpu.clock(run, seconds) < 1.02 * most
    assert 0.1 * most < gpu.clock(lambda: None, seconds) < 1.02 * most


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("variant", "dtype"),
    [*(("cublaslt", dtype) for dtype in ("float32", "float64", "float16", "bfloat16")), ("cublas_tf32", "float32")],
)
def test_a_library_for_context_is_measured_beside_the_baseline_cuda(gpu, variant, dtype):
    point = Point("matmul", variant, (200, 300, 100), dtype, 1, MATMUL.scalars)
    own, baseline = measured(gpu, point)
    assert (own.contender, own.baseline, baseline.contender, baseline.baseline) == (variant, False, "cublas", True)
    assert own.verdict.passed and baseline.verdict.passed, own.verdict
    assert own.clock > 1e8 and baseline.clock > 1e8
    (chosen,), (default,) = ([visit.schedule for visit in each.visits] for each in (own, baseline))
    assert chosen.startswith("algorithm ") == (variant == "cublaslt") and not default
    assert (own.verdict.bound > baseline.verdict.bound) == (variant == "cublas_tf32")


@pytest.mark.gpu
def test_float8_is_measured_with_both_libraries_and_their_algorithms_cuda(gpu):
    if reason := MATMUL.why_not_run(MATMUL.variant("cublas"), "float8_e4m3", gpu.capability):
        pytest.skip(reason)
    own, baseline = measured(gpu, Point("matmul", "cublaslt", (200, 304, 96), "float8_e4m3", 1, MATMUL.scalars))
    assert (own.contender, own.baseline, baseline.contender, baseline.baseline) == ("cublaslt", False, "cublas", True)
    for each in (own, baseline):
        assert each.verdict.passed and each.verdict.error == each.verdict.bound == 0, each.verdict
        assert each.visits[0].schedule.startswith("algorithm ")
    assert ": proposal 1 of " in baseline.visits[0].schedule
    (alone,) = measured(gpu, Point("matmul", "cublas", (64, 64, 64), "float8_e4m3", 1, MATMUL.scalars))
    assert alone.contender == "cublas" and alone.verdict.passed


@pytest.mark.gpu
def test_trials_of_algorithms_leave_the_result_alone_cuda(gpu):
    rng = np.random.default_rng(1)
    arrays = {name: gpu.empty((96, 96), "float32") for name in "ABC"}
    before = rng.random((96, 96), np.float32)
    for array in arrays.values():
        gpu.copy(before, array)
    trying = task(MATMUL, (96,) * 3, variant="cublaslt")
    gpu.prepare(trying, arrays)
    after = np.empty_like(before)
    gpu.copy(arrays["C"], after)
    assert np.array_equal(before, after)
