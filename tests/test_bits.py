"""Repetitions whose result differs from the verified one in any bit."""

import numpy as np
import pytest
from checksums import splitmix64_sum
from mpi4py import MPI

from hpcmm.backends.cpu.device import CpuBackend
from hpcmm.bench import same_bits
from hpcmm.bench.measure import Problem
from hpcmm.bench.same_bits import Bits, why_uncompared
from hpcmm.model import TEXTBOOK, Task, Verdict
from hpcmm.model.measurement import Point
from hpcmm.operations import OPERATIONS, task_of
from hpcmm.operations.matmul import MATMUL

RIGHT = Verdict(True, 0.0, 1.0, "by hand")
POINTS = [
    Point("matmul", "packed", (33, 40, 21), "float32", 1, {"alpha": 1.5, "beta": 0.5}),
    Point("matmul", "openmp", (9, 7, 8), "float64", 1, {"alpha": 1.5, "beta": 0.5}),
    Point("sum", "openmp", (1000,), "float32", 1),
    Point("minimum", "serial", (1000,), "int32", 1),
    Point("vector_add", "openmp", (1000,), "float64", 1),
]


@pytest.mark.parametrize("dtype", ["uint8", "float16", "int32", "float32", "float64"])
@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (3,), (8,), (7, 9), (2**18 + 5,)])
def test_the_checksum_covers_all_bytes_of_an_array(dtype, shape):
    array = np.asarray(np.random.default_rng(0).integers(0, 256, shape)).astype(dtype)
    expected = splitmix64_sum(array)
    assert CpuBackend(2).checksum(array) == CpuBackend(1).checksum(array) == expected
    for place in {0, array.nbytes // 2, array.nbytes - 1} if array.size else ():
        changed = array.copy()
        changed.reshape(-1).view(np.uint8)[place] ^= 1
        assert CpuBackend(2).checksum(changed) == splitmix64_sum(changed) != expected


def test_the_gpu_has_the_checksums_of_the_cpu(gpu):
    for dtype in ("float16", "int32", "float32", "float64"):
        for shape in ((), (1,), (333, 77)):
            host = np.asarray(np.random.default_rng(0).integers(0, 255, shape)).astype(dtype)
            array = gpu.empty(shape, dtype)
            gpu.copy(host, array)
            assert gpu.checksum(array) == CpuBackend(1).checksum(host)


@pytest.mark.parametrize("point", POINTS, ids=lambda point: f"{point.operation}-{point.variant}")
def test_one_changed_bit_in_one_repetition_fails(point):
    problem = Problem(MPI.COMM_SELF, CpuBackend(2), point, seed=1)
    spread = problem.distributions([TEXTBOOK])[TEXTBOOK]
    right = spread.prepare(task_of(point))
    spread.call(right)
    verified = spread.checksum()
    spread.save_inputs()
    output = next(operand.name for operand in problem.operation.operands if operand.role != "in")

    def judged(wrong: int | None) -> Verdict:
        bits = Bits()
        bits.look(lambda: verified)
        for repetition in range(6):
            spread.kernel(right, cold=False)
            if repetition == wrong:
                spread.arrays[output].reshape(-1).view(np.uint8)[0] ^= 1
            bits.look(spread.checksum)
        assert bits.compared == 6
        return bits.judge(MPI.COMM_SELF, RIGHT)

    assert judged(None) == RIGHT
    found = judged(4)
    assert not found.passed
    assert found.where == "bits differ from the verified result in 1 of 6 repetitions: 4"


def test_a_verdict_names_a_few_repetitions_and_keeps_an_earlier_failure():
    bits = Bits()
    for checksum in (7, 7, *[8] * 9):
        bits.look(lambda checksum=checksum: checksum)
    verdict = bits.judge(MPI.COMM_SELF, RIGHT)
    assert verdict.where.endswith("in 9 of 10 repetitions: 1, 2, 3, 4, 5, ...")
    wrong = Verdict(False, 2.0, 1.0, "by hand", "0:0: 1 - 2 = -1")
    assert bits.judge(MPI.COMM_SELF, wrong) == wrong


def test_results_that_may_differ_are_not_compared():
    assert "does not promise" in why_uncompared(MATMUL.variant("numpy"), TEXTBOOK)
    assert "partial sums" in why_uncompared(MATMUL.variant("openmp"), "resident")
    assert not why_uncompared(MATMUL.variant("packed"), "resident"), "it does not divide sums"
    for operation in OPERATIONS.values():
        rungs = [variant for variant in operation.ladder if not variant.library]
        assert not any(why_uncompared(variant, TEXTBOOK) for variant in rungs)
    bits = Bits("any reason")
    bits.look(lambda: 1)
    bits.look(lambda: 2)
    assert bits.judge(MPI.COMM_SELF, RIGHT) == RIGHT


def test_no_builds_are_tried_to_compare_bits(monkeypatch):
    """For each number of rows, that would take longer than the comparison."""
    backend = CpuBackend(1)
    task = Task(MATMUL, MATMUL.variant("numpy"), (3, 5, 7), "float32", {"alpha": 1.0, "beta": 0.0})
    seen, prepare = [], backend.prepare
    monkeypatch.setattr(backend, "prepare", lambda *each: seen.append(backend.tries) or prepare(*each), raising=False)
    backend.tries = True
    same_bits.result_on(backend, task, MATMUL.draw(np.random.default_rng(1), task))()
    assert seen == [False] and backend.tries
