"""Measuring: when it stops, what a wrong result does, and jobs that are killed or fail."""

import dataclasses
import functools
import itertools
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Container
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import psutil
import pytest
import timings
from batches import together
from mpi4py import MPI

from hpcmm import kernels, store
from hpcmm.backends.cpu.device import CpuBackend
from hpcmm.backends.cuda import presence
from hpcmm.bench.contender import Contender
from hpcmm.bench.interval import settled
from hpcmm.bench.job import Process, Progress, measure_batch, timed_seconds, unmeasured
from hpcmm.bench.job import line as line_of_progress
from hpcmm.bench.journal import CUT_OFF, kept_in, whole_lines
from hpcmm.bench.measure import Problem, measure_point
from hpcmm.bench.pace import Pace, Record
from hpcmm.bench.status import Elsewhere
from hpcmm.experiment import plan
from hpcmm.jobs.watched import run_for_profiler
from hpcmm.kernels import modules
from hpcmm.model import ALONE, TEXTBOOK, HpcmmError
from hpcmm.model.launch import Run
from hpcmm.model.measurement import Batch, Measuring, Point
from hpcmm.operations import OPERATIONS, task_of
from hpcmm.operations.matmul import MATMUL

MEASURE = ("-m", "hpcmm.jobs.measure")
RANK_FAILS = Path(__file__).parent / "mpi_programs" / "rank_fails.py"

QUICK = Measuring(
    warmups=2, min_repetitions=4, max_repetitions=4, max_seconds=60, relative_interval=0.01, cache="cold", seed=1,
    visits=1,
)  # fmt: skip

# --- when it stops -----------------------------------------------------------------------------------------------


def test_times_settle_when_the_interval_of_their_median_is_narrow():
    assert not settled([1.0] * 5, None, 0.01)
    assert settled([1.0] * 6, None, 0.01)
    assert settled([1.0, 1.0, 1.0, 1.0, 1.0, 1.02], None, 0.011)
    assert not settled([1.0, 1.0, 1.0, 1.0, 1.0, 1.03], None, 0.01)
    assert settled([9.0, *[1.0] * 30, 0.1], None, 0.01)  # a median bears outliers
    assert not settled([1.0, 2.0] * 20, None, 0.01)


def test_times_settle_when_the_interval_of_the_ratio_is_narrow():
    def spread(half_width):
        return [1.0 - half_width, *[1.0] * 4, 1.0 + half_width]

    assert settled(spread(0.0099), [1.0] * 6, 0.01)
    assert not settled(spread(0.0099), spread(0.0099), 0.01)
    assert settled(spread(0.007), spread(0.007), 0.01)  # the ratio is known to 0.0099
    assert settled(spread(0.007), spread(0.5), 0.01), "the other one is to go on"
    assert not settled(spread(0.5), spread(0.007), 0.01)
    assert not settled(spread(0.008), [1.0] * 5, 0.01)


def contender(times, spent: float) -> Contender:
    """A contender that has done some repetitions of the kernel alone, and none of the end-to-end call."""
    fake = Contender.__new__(Contender)
    fake.seconds = {True: [], False: list(times)}
    fake.spent = {True: 0.0, False: spent}
    fake.looking, fake.beside = 0.0, None
    return fake


@pytest.mark.parametrize(
    ("times", "spent", "done"),
    [
        ([], 0.0, False),
        ([], 9.0, False),  # one at least, however long the whole took
        ([1.0], 1.0, True),  # over the time limit, which goes before min_repetitions
        ([1.0] * 9, 0.5, False),  # settled, but too few
        ([1.0] * 10, 0.5, True),
        ([1.0, 2.0] * 5, 0.5, False),  # not settled
        ([1.0, 2.0] * 10, 0.5, True),  # as many as are allowed
    ],
)
def test_the_stopping_rule(times, spent, done):
    measuring = dataclasses.replace(QUICK, min_repetitions=10, max_repetitions=20, max_seconds=1.0)
    assert contender(times, spent).done(False, measuring) is done
    assert contender(times, spent).done(True, measuring) is False


def test_the_stopping_rule_looks_at_geometric_counts(monkeypatch):
    """Looking after each of 20,000 repetitions took longer than the repetitions, outside of any limit."""
    looks = []
    monkeypatch.setattr("hpcmm.bench.contender.settled", lambda times, *_: looks.append(len(times)))
    measuring = dataclasses.replace(QUICK, min_repetitions=10, max_repetitions=20_000)
    for repetitions in range(1, 20_001):
        times = range(repetitions)  # as good as a list of times: only its length is asked for
        fake = contender((), 0.0)
        fake.seconds[False] = times
        fake.done(False, measuring)
    assert looks[0] == 10 and len(looks) < 100
    assert all(later - look <= max(1, look / 10) for look, later in itertools.pairwise(looks))


def test_the_time_of_looking_counts_toward_the_limit(monkeypatch):
    now = 0.0

    def slow(*_):
        nonlocal now
        now += 1.0
        return False

    monkeypatch.setattr("hpcmm.bench.contender.settled", slow)
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    measuring = dataclasses.replace(QUICK, min_repetitions=1, max_repetitions=10**6, max_seconds=20.0)
    for each in measured(product(), measuring):
        assert 20 <= len(seconds_of(each, "kernel")) <= 40


def alone() -> Process:
    return Process(MPI.COMM_SELF, "cpu", False)


def batch_of(points) -> Batch:
    return dataclasses.replace(together(tuple(points)), sweep="size", device="cpu", ranks=1)


# --- one point ---------------------------------------------------------------------------------------------------

product = functools.partial(timings.product, variant="serial", n=(9, 7, 8), dtype="float64")
POINTS = {
    "matmul": product(),
    "sum": Point("sum", "serial", (1000,), "int32", 1),
    "minimum": Point("minimum", "serial", (1000,), "float32", 1),
    "maximum": Point("maximum", "serial", (1000,), "int32", 1),
    "vector_add": Point("vector_add", "serial", (1000,), "int32", 1),
}


def measured(point: Point, measuring: Measuring = QUICK):
    problem = Problem(MPI.COMM_SELF, CpuBackend(threads=1), point, measuring.seed)
    return measure_point(problem, point, measuring)


RUNS = 1 + QUICK.warmups + 2 * QUICK.max_repetitions  # of a contender of a point: the first, and of both kinds


@pytest.fixture
def damage(monkeypatch):
    """``damage(variant, spoil, runs)``: after these runs of that variant, ``spoil(arrays, arrays before)``.

    Runs are counted over all points and visits.
    """

    def install(name: str, spoil, runs: Container[int] = range(10**9)) -> None:
        right, numbers = CpuBackend.prepare, itertools.count()

        def prepare(self, task, arrays):
            run = right(self, task, arrays)
            if task.variant.name != name:
                return run

            def spoilt():
                before = {key: array.copy() for key, array in arrays.items()}
                run()
                if next(numbers) in runs:
                    spoil(arrays, before)

            return dataclasses.replace(run, once=spoilt)

        monkeypatch.setattr(CpuBackend, "prepare", prepare)

    return install


@pytest.mark.parametrize("point", POINTS.values(), ids=POINTS)
def test_a_right_variant_has_samples_of_all_phases_beside_its_baseline(point):
    variant, baseline = measured(point)
    assert (variant.contender, variant.baseline) == ("serial", False)
    assert (baseline.contender, baseline.baseline) == ("numpy", True)
    phases = {"scatter", "kernel", "gather", "total"} | ({"broadcast"} if point.operation == "matmul" else set())
    for each in (variant, baseline):
        assert each.verdict.passed
        for call, expected in ((True, phases), (False, {"kernel"})):
            samples = [sample for sample in each.samples if sample.call is call]
            assert [sample.repetition for sample in samples] == list(range(QUICK.max_repetitions))
            for sample in samples:
                assert set(sample.seconds) == expected
                assert all(seconds >= 0 for seconds in sample.seconds.values())
                assert sample.seconds.get("total", np.inf) >= sample.seconds["kernel"]
    assert variant.flops == baseline.flops > 0
    assert variant.bytes == baseline.bytes > 0


def test_resources_of_a_kernel_are_kept_even_if_its_result_is_wrong(monkeypatch, damage):
    asked = []

    def resources(self, task, arrays):
        asked.append((task.variant.name, task.shape, task.dtype, dict(task.scalars), set(arrays)))
        return {} if task.variant.baseline else {"registers": 40}

    monkeypatch.setattr(CpuBackend, "resources", resources)
    damage("serial", lambda arrays, before: arrays["C"].fill(0))
    point = product()
    variant, baseline = measured(point)
    assert not variant.verdict.passed
    assert (variant.resources, baseline.resources) == ({"registers": 40}, {})
    names = ("serial", "numpy")
    assert asked == [(name, point.shape, point.dtype, dict(point.scalars), {"A", "B", "C"}) for name in names]


def test_an_operation_without_a_library_has_no_baseline():
    for operation, shape in (("latency", (64, 100)), ("bandwidth", (64, 3))):
        variant = OPERATIONS[operation].ladder[0].name
        (own,) = measured(Point(operation, variant, shape, "int32", 1))
        assert own.verdict.passed and own.contender == variant and len(own.samples) == 8


def test_a_run_that_writes_outside_its_result_fails(monkeypatch):
    prepare = CpuBackend.prepare

    def complaining(self, task, arrays):
        return dataclasses.replace(prepare(self, task, arrays), complaint=lambda: "3 elements written behind C")

    monkeypatch.setattr(CpuBackend, "prepare", complaining)
    first, *_ = measured(product())
    assert not first.verdict.passed and first.verdict.where == "3 elements written behind C" and not first.samples


def nan_somewhere(arrays, before):
    arrays["C"][3, 5] = np.nan


def row_skipped(arrays, before):
    arrays["C"][4] = before["C"][4]


def term_lost(arrays, before):
    arrays["C"][2, 6] -= 1.5 * arrays["A"][2, 7] * arrays["B"][7, 6]


def rows_swapped(arrays, before):
    arrays["C"][[0, 1]] = arrays["C"][[1, 0]]  # an exclusive or of all elements stays the same


def last_bit(arrays, before):
    arrays["C"].view(np.uint8)[0, 0] ^= 1  # less than rounding


@pytest.mark.parametrize(
    ("spoil", "where"),
    [(nan_somewhere, "3:5: nan"), (row_skipped, "4:0: "), (term_lost, "2:6: "), (rows_swapped, "0:0: ")],
)
def test_a_wrong_variant_fails_with_its_place_and_gives_no_times(damage, spoil, where):
    at_last = spoil is rows_swapped
    damage("serial", spoil, [RUNS - 1] if at_last else range(RUNS))
    variant, baseline = measured(product())
    assert not variant.verdict.passed and not variant.samples
    assert variant.verdict.where.startswith(where)
    assert variant.verdict.where.endswith("(after timing)") is at_last
    assert baseline.verdict.passed


@pytest.fixture
def judged(monkeypatch):
    """The references of matmul that are computed, and the comparisons with them."""
    found = []

    def reference(task, arrays):
        found.append("reference")
        judge = MATMUL.reference(task, arrays)
        return lambda got: found.append("comparison") or judge(got)

    monkeypatch.setitem(OPERATIONS, "matmul", dataclasses.replace(MATMUL, reference=reference, reference_on=None))
    return found


def measured_in_turn(*names: str):
    """Measure variants at one problem."""
    problem = Problem(MPI.COMM_SELF, CpuBackend(threads=1), product(), QUICK.seed)
    return [measure_point(problem, product(variant=name), QUICK) for name in names]


LEAVES = """#include <fenv.h>
void round_up(void) { fesetround(FE_UPWARD); }
#ifdef __x86_64__
#include <immintrin.h>
void flush(void) { _mm_setcsr(_mm_getcsr() | 0x8040); }
#endif
"""
CPUS = os.sched_getaffinity(0)


@pytest.mark.parametrize("first", [0, RUNS - 1])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda arrays, _: arrays["A"].__setitem__((2, 1), 9), "wrote to its input A"),
        (lambda _, module: module.round_up(), "leaves another rounding mode"),
        (lambda _, module: getattr(module, "flush", pytest.skip)(), "leaves subnormal numbers flushed to zero"),
        (lambda *_: os.sched_setaffinity(0, {min(CPUS)}), "leaves its thread bound to other CPUs"),
    ],
)
def test_a_kernel_that_changes_its_inputs_or_its_process_fails_and_no_other_does(damage, tmp_path, first, change, said):
    (tmp_path / "leaves.c").write_text(LEAVES)
    module = modules.load("leaves", tmp_path / "leaves.c", {})
    damage("serial", lambda arrays, before: change(arrays, module), range(first, RUNS))
    (wrong, *_), (right, baseline) = measured_in_turn("serial", "openmp")
    assert wrong.verdict.where.startswith(said) and not wrong.samples
    assert right.verdict.passed and baseline.verdict.passed
    assert os.sched_getaffinity(0) == CPUS and CpuBackend(1).restored() == ""


@pytest.mark.parametrize("reverse", [False, True])
def test_each_arithmetic_is_judged_by_its_own_bound_whichever_is_judged_first(reverse):
    point = product(dtype="float32")
    problem = Problem(MPI.COMM_SELF, CpuBackend(threads=1), point, QUICK.seed)
    names = ["numpy", "tf32", "strassen_1", "strassen_2"]
    tasks = [task_of(dataclasses.replace(point, variant=name)) for name in (names[::-1] if reverse else names)]
    first = {task.variant.name: problem.judge(task) for task in tasks}
    wrong = problem.inputs["C"].copy()
    for task in tasks:
        alone = Problem(MPI.COMM_SELF, CpuBackend(threads=1), point, QUICK.seed).judge(task)
        assert first[task.variant.name](wrong.copy()).bound == alone(wrong.copy()).bound
    assert len({first[name](wrong.copy()).bound for name in names}) == len(names), "each has another one"


def test_a_result_with_the_bits_of_a_verified_one_is_not_verified_again(judged):
    measured_in_turn("serial")
    assert judged.count("comparison") == 2, "the variant and the baseline, each after its first call"
    measured_in_turn("serial", "openmp", "numpy", "unrolled")
    assert judged.count("comparison") == 2 + 5, "each variant at its own point, and the baseline beside the first one"


@pytest.mark.parametrize(("run", "where"), [(0, ""), (RUNS - 1, " (after timing)")])
def test_a_baseline_that_is_wrong_beside_a_later_variant_fails_there(damage, run, where):
    damage("numpy", term_lost, [RUNS + run])
    (_, first), (_, second), (_, third) = measured_in_turn("serial", "openmp", "unrolled")
    assert first.verdict.passed and first.samples
    assert second.verdict.where.startswith("2:6: ") and second.verdict.where.endswith(where) and not second.samples
    assert third.verdict == first.verdict and third.samples


def test_a_kernel_that_does_nothing_fails(monkeypatch):
    monkeypatch.setattr(CpuBackend, "prepare", lambda *_: Run(lambda: None))
    for point in POINTS.values():
        assert not any(each.verdict.passed or each.samples for each in measured(point))


@pytest.mark.parametrize("name", ["sum", "minimum", "maximum"])
def test_a_kernel_that_does_nothing_fails_after_a_right_one(damage, name):
    point = POINTS[name]
    problem = Problem(MPI.COMM_SELF, CpuBackend(threads=1), point, QUICK.seed)
    damage("openmp", lambda arrays, before: np.copyto(arrays["result"], before["result"]))
    first, _ = measure_point(problem, point, QUICK)
    second, _ = measure_point(problem, dataclasses.replace(point, variant="openmp"), QUICK)
    assert first.verdict.passed
    assert not second.verdict.passed and "after timing" not in second.verdict.where


@pytest.fixture
def measure(tmp_path):
    """Measure these points into ``out.h5``, as in a visit of a job; returns what could not be measured."""

    def run(points, measuring=QUICK, process=None, batch=None) -> list[str]:
        kept = kept_in(tmp_path / "out.h5", {"a": 1})
        return measure_batch(process or alone(), batch or batch_of(points), measuring, kept)

    return run


def test_a_failure_is_reported_and_stored_and_does_not_end_the_batch(measure, damage, tmp_path, capsys):
    damage("serial", row_skipped)
    with pytest.raises(IndexError):
        measured(product(n=(3, 3, 3)))  # it has no row 4
    assert measure([product(), product(n=(6, 2, 3))]) == []
    assert capsys.readouterr().out.count("FAIL: 4:0: ") == 2
    groups = store.read(tmp_path / "out.h5")
    assert list(groups["measurements"]["passed"]) == [0, 1, 0, 1]
    assert not len(groups["samples"]["rank"])
    provenance = json.loads(groups["runs"]["provenance"][0])
    assert provenance["config"] == {"a": 1}
    assert provenance["mpi"]["ranks"] == 1
    assert provenance["measuring"]["seed"] == 1


def test_a_clock_that_is_set_back_changes_no_duration(measure, capsys, monkeypatch):
    clock = itertools.count(time.time(), -1e7)
    monkeypatch.setattr(time, "time", lambda: next(clock))
    assert measure([product()]) == []
    found = re.search(r"done in (\S+) s: (\S+) s start-up, (\S+) s timed", capsys.readouterr().out)
    whole, startup, timed = map(float, found.groups())
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - psutil.Process().create_time() + psutil.boot_time()
    assert 0 <= timed <= whole and 0 < startup <= whole <= age + 2


def seconds_of(measurement, phase: str) -> list[float]:
    return [sample.seconds[phase] for sample in measurement.samples if sample.call is (phase == "total")]


@pytest.fixture
def takes(damage, monkeypatch):
    """``takes(variant, seconds)``: each of its runs takes so long, by a clock that only they move; returns them."""
    now = 0.0
    monkeypatch.setattr(time, "perf_counter", lambda: now)

    def install(name: str, seconds: float) -> list[int]:
        def spoil(*_):
            nonlocal now
            now += seconds
            runs.append(len(runs))

        runs: list[int] = []
        damage(name, spoil)
        return runs

    return install


def test_a_call_as_long_as_the_time_limit_is_the_only_repetition(takes):
    own, library = takes("serial", 1.25 * QUICK.max_seconds), takes("numpy", 0.0)
    variant, baseline = measured(product())
    assert (len(own), len(library)) == (1, RUNS)
    assert variant.verdict.passed and baseline.verdict.passed
    (kernel,), (total,) = seconds_of(variant, "kernel"), seconds_of(variant, "total")
    assert kernel == total == 1.25 * QUICK.max_seconds
    phases = {frozenset(sample.seconds) for sample in variant.samples}
    assert phases == {frozenset(["kernel"]), frozenset(["scatter", "total", "broadcast", "kernel", "gather"])}
    assert len(seconds_of(baseline, "kernel")) == len(seconds_of(baseline, "total")) == QUICK.max_repetitions


# --- visits ------------------------------------------------------------------------------------------------------

THREE = dataclasses.replace(QUICK, visits=3, min_repetitions=6, max_repetitions=6)
A_VISIT = 1 + THREE.warmups + 2 * 2  # runs of a contender in one


@pytest.fixture
def visit_all(measure, tmp_path):
    """Make visits as the processes of a job do, one after another; returns the groups of the file."""

    def run(*points, visits: int = 3):
        for _ in range(visits):
            assert not (tmp_path / "out.h5").exists()
            assert measure(points, THREE) == []
        return store.read(tmp_path / "out.h5")

    return run


def test_other_bits_are_verified_after_timing(judged, damage):
    """NumPy does not promise the same bits, so that other ones are right if their errors are below the bound."""
    damage("numpy", last_bit, range(4, RUNS))
    _, baseline = measured(product())
    assert baseline.verdict.passed and baseline.samples and judged.count("comparison") == 3


def test_a_wrong_result_of_a_long_call_gives_no_times(damage):
    damage("serial", lambda *_: time.sleep(0.1))
    damage("serial", nan_somewhere)
    variant, _ = measured(product(), dataclasses.replace(QUICK, max_seconds=0.05))
    assert not variant.verdict.passed and not variant.samples


def test_only_the_first_visit_of_a_point_verifies(damage, visit_all, judged):
    runs = []
    damage("serial", lambda *_: runs.append(1))
    groups = visit_all(product(), product(n=(3, 4, 5)))
    assert judged.count("reference") == 2, "one reference a problem, in the first visit"
    assert len(runs) == 2 * 3 * A_VISIT
    samples = groups["samples"]
    for row, call in itertools.product(range(4), (0, 1)):
        own = (samples["measurement"] == row) & (samples["call"] == call)
        assert list(samples["visit"][own]) == [0, 0, 1, 1, 2, 2]
        assert list(samples["repetition"][own]) == list(range(6))
    assert groups["measurements"]["passed"].all() and len(groups["measurements"]["run"]) == 4


@pytest.mark.parametrize("visit", [0, 1])
def test_other_bits_in_one_repetition_fail_the_point(damage, visit_all, visit):
    damage("serial", last_bit, [visit * A_VISIT + 1 + THREE.warmups])
    groups = visit_all(product(), visits=visit + 1)
    assert list(groups["measurements"]["passed"]) == [0, 1]
    assert groups["measurements"]["where"][0] == "bits differ from the verified result in 1 of 4 repetitions: 0"
    assert set(groups["samples"]["measurement"]) == {1}


@pytest.mark.parametrize(
    ("contender", "spoil", "passed", "where"),
    [
        ("serial", last_bit, [0, 1], "bits differ from the verified result of the first visit"),
        ("numpy", last_bit, [1, 1], ""),  # it does not promise the same bits, and others are verified
        ("numpy", row_skipped, [1, 0], "4:0: "),
    ],
)
def test_a_later_visit_has_the_bits_of_the_first_or_is_verified(damage, visit_all, contender, spoil, passed, where):
    damage(contender, spoil, range(A_VISIT, 2 * A_VISIT))
    groups = visit_all(product(), visits=3 if passed[0] else 2)  # a wrong variant has no more
    assert list(groups["measurements"]["passed"]) == passed
    assert set(groups["samples"]["measurement"]) == set(np.flatnonzero(passed))
    assert groups["measurements"]["where"][("serial", "numpy").index(contender)].startswith(where)


@pytest.mark.parametrize(("spoil", "passed"), [(last_bit, [1, 1]), (row_skipped, [0, 1])])
def test_a_later_visit_on_another_device_is_verified(damage, measure, tmp_path, spoil, passed):
    """Other devices may compute other bits."""
    damage("serial", spoil, range(A_VISIT, 2 * A_VISIT))
    for visit in range(3):
        process = alone()
        process.described["ranks"] = [{"node": f"node {visit}", "device": ""}]
        assert measure([product()], THREE, process) == []
    assert list(store.read(tmp_path / "out.h5")["measurements"]["passed"]) == passed


def test_a_wrong_baseline_is_not_timed_in_later_visits(damage, visit_all):
    damage("numpy", nan_somewhere)
    groups = visit_all(product())
    assert list(groups["measurements"]["passed"]) == [1, 0]
    assert set(groups["samples"]["measurement"]) == {0} and set(groups["samples"]["visit"]) == {0, 1, 2}


def test_a_repetition_as_long_as_the_time_limit_has_one_visit(takes, visit_all):
    takes("serial", 1.25 * THREE.max_seconds)
    takes("numpy", 0.001)
    groups = visit_all(product(), visits=1)
    assert set(groups["samples"]["visit"][groups["samples"]["measurement"] == 0]) == {0}


def test_an_error_in_a_later_visit_leaves_the_point_the_visits_it_has(damage, measure, tmp_path):
    visit = functools.partial(measure, [product(), product(variant="openmp")], THREE)
    assert visit() == []
    damage("serial", Mock(side_effect=MemoryError("no room")))
    for _ in range(2):
        assert visit() == ["serial 9x7x8 float64: MemoryError: no room"]
    assert visit() == []  # records that the visit failed twice
    assert not (tmp_path / "out.h5").exists()
    assert visit() == []
    groups = store.read(tmp_path / "out.h5")
    found = [sorted(set(groups["samples"]["visit"][groups["samples"]["measurement"] == row])) for row in range(4)]
    assert found == [[0], [0], [0, 1, 2], [0, 1, 2]] and groups["measurements"]["passed"].all()


# --- a batch -----------------------------------------------------------------------------------------------------

OTHERS = [product(variant=name) for name in ("serial", "openmp", "numpy")]


def test_an_error_at_one_point_is_reported_and_the_others_run(measure, damage, tmp_path, capsys):
    damage("serial", Mock(side_effect=MemoryError("no\n  room")), [0])
    assert measure(OTHERS) == ["serial 9x7x8 float64: MemoryError: no room"]
    output = capsys.readouterr()
    assert output.out.count(" PASS ") == 2
    assert "[1/3] size/cpu-r1-1 serial 9x7x8 float64 not measured: MemoryError: no room" in output.out
    assert "Traceback" in output.err
    assert not (tmp_path / "out.h5").exists()

    assert measure(OTHERS) == []  # it was a passing one
    output = capsys.readouterr().out
    assert "2 points were measured before" in output and output.count(" PASS ") == 1
    groups = store.read(tmp_path / "out.h5")
    assert groups["measurements"]["passed"].all()
    assert list(groups["measurements"]["variant"]) == ["serial", "serial", "openmp", "openmp", "numpy"]


def test_a_point_that_raises_again_is_missing_with_the_reason(measure, damage, tmp_path, capsys):
    damage("serial", Mock(side_effect=MemoryError("no room")))
    assert measure(OTHERS) and measure(OTHERS)
    assert measure(OTHERS) == []
    assert "float64 not measured, tried 2 times: MemoryError: no room" in capsys.readouterr().out
    rows = store.read(tmp_path / "out.h5")["measurements"]
    assert list(rows["variant"]) == ["serial", "openmp", "openmp", "numpy"]
    assert list(rows["passed"]) == [0, 1, 1, 1]
    assert rows["where"][0] == "not measured, tried 2 times: MemoryError: no room"
    assert np.isnan(rows["bound"][0])


@pytest.mark.parametrize(
    ("lacks", "reason"),
    [
        ({"architecture": "sm_90a"}, "serial needs a GPU of compute capability 9.0; this one has 8.0"),
        ({"unsupported": "why_no_blas"}, "no float64 in this library"),
    ],
    ids=["device", "library"],
)
def test_a_variant_that_cannot_run_here_is_missing_with_the_reason(
    measure, monkeypatch, tmp_path, capsys, lacks, reason
):
    monkeypatch.setattr(CpuBackend, "capability", "80")
    monkeypatch.setattr(CpuBackend, "why_no_blas", lambda self, dtype: f"no {dtype} in this library", raising=False)
    changes = {"serial": lacks, "openmp": {"architecture": "sm_75"}}
    ladder = tuple(dataclasses.replace(each, **changes.get(each.name, {})) for each in MATMUL.ladder)
    monkeypatch.setitem(OPERATIONS, "matmul", dataclasses.replace(MATMUL, ladder=ladder))
    assert measure(OTHERS) == []
    why = f"not measured: {reason}"
    assert f"serial 9x7x8 float64 {why}" in capsys.readouterr().out
    rows = store.read(tmp_path / "out.h5")["measurements"]
    assert list(rows["variant"]) == ["serial", "openmp", "openmp", "numpy"]
    assert list(rows["where"]) == [why, "", "", ""] and list(rows["passed"]) == [0, 1, 1, 1]


def test_an_error_that_the_user_can_fix_is_retried_on_every_start(measure, damage, capsys):
    damage("serial", Mock(side_effect=HpcmmError("run make setup")), range(4))
    for _ in range(4):
        assert measure(OTHERS) == ["serial 9x7x8 float64: run make setup"]
        assert "Traceback" not in capsys.readouterr().err
    assert measure(OTHERS) == []
    assert capsys.readouterr().out.count(" PASS ") == 1


def test_the_kernels_of_all_batches_of_a_process_are_compiled_with_the_first_one(monkeypatch, tmp_path):
    compiled = []
    monkeypatch.setattr(CpuBackend, "compile_ahead", lambda self, tasks, threads: compiled.append(tasks))
    monkeypatch.setattr(CpuBackend, "capability", "80")
    needs = {"avx": "sm_90a", "openmp": "sm_75"}
    ladder = tuple(dataclasses.replace(each, architecture=needs.get(each.name, "")) for each in MATMUL.ladder)
    monkeypatch.setitem(OPERATIONS, "matmul", dataclasses.replace(MATMUL, ladder=ladder))
    first, *others = (product(variant=name) for name in ("serial", "openmp", "avx", "numpy"))
    process = Process(MPI.COMM_SELF, "cpu", False, [first, *others])
    for point in (first, others[0]):
        batch = dataclasses.replace(batch_of([point]), sweep=point.variant)
        assert measure_batch(process, batch, QUICK, kept_in(tmp_path / f"{point.variant}.h5", {})) == []
    names = [{task.variant.name for task in tasks} for tasks in compiled]
    assert names == [{"serial", "openmp", "numpy"}, {"openmp"}]


def test_a_new_source_measures_its_points_alone(measure, tmp_path, capsys):
    assert measure(OTHERS) == []
    before = store.read(tmp_path / "out.h5")
    (tmp_path / "out.h5").unlink()
    capsys.readouterr()
    batch = dataclasses.replace(batch_of(OTHERS), fingerprints=("new", *batch_of(OTHERS).fingerprints[1:]))
    assert measure(OTHERS, batch=batch) == []
    output = capsys.readouterr().out
    assert output.count(" PASS ") == 1 and "[3/3] size/cpu-r1-1 serial" in output
    after = store.read(tmp_path / "out.h5")
    assert list(after["measurements"]["variant"]) == list(before["measurements"]["variant"])
    for row, same in enumerate([False, False, True, True, True]):
        times = [groups["samples"]["kernel"][groups["samples"]["measurement"] == row] for groups in (before, after)]
        assert np.array_equal(*times) is same


# --- what a job says of itself -----------------------------------------------------------------------------------


def told(point: Point, *rows) -> str:
    """The line of progress about a point; each row is a contender, its algorithm, its samples and its verdict."""
    measurements = [
        timings.measurement(point, contender, *verdict, samples=samples, algorithm=algorithm)
        for contender, algorithm, samples, *verdict in rows
    ]
    return line_of_progress(OPERATIONS[point.operation], measurements)


def test_a_line_of_progress_has_the_rate_and_the_ratio_to_the_baseline():
    product = timings.product(ranks=2)
    times = [(1e-6, 4e-6), (5e-6, 2e-6), (3e-6, 3.5e-6)]  # 4, 5 and 3.5 by the slowest, for 524,288 operations
    calls = timings.call_samples([[{"kernel": 9.0, "total": 9.0}] * 2] * 3)
    own = ("naive", "", (*timings.kernel_samples(times), *calls))
    library = ("cublas", "", timings.kernel_samples([(1e-6, 2e-6)] * 3))
    name = "naive 64x64x64 float32"
    assert told(product, own) == f"{name} PASS 131.1 GFLOP/s"
    assert told(product, own, library) == f"{name} PASS 131.1 GFLOP/s, 0.5 x cublas"
    assert told(product, own, (*library[:2], (), timings.FAIL)) == f"{name} PASS 131.1 GFLOP/s, FAILED: cublas"
    assert told(product, ("naive", "", (), timings.FAIL), library) == f"{name} FAIL: {timings.FAIL.where}"
    assert line_of_progress(MATMUL, [unmeasured(product, "not measured: why")]) == f"{name} not measured: why"
    for algorithm, baseline in (("scatter", True), ("ring", False)):  # a product over ranks is no yardstick
        missing = unmeasured(dataclasses.replace(product, variant="cublas", algorithm=algorithm), "why")
        assert (missing.algorithm, missing.baseline) == (algorithm, baseline)
    staged = dataclasses.replace(product, algorithm="staged")  # is timed end to end
    rows = [(each, timings.call_samples([[{"total": t}] * 2] * 3)) for each, t in (("staged", 4e-6), ("scatter", 2e-6))]
    said = told(staged, *(("naive", algorithm, samples) for algorithm, samples in rows))
    assert said == "naive staged 64x64x64 float32 PASS 131.1 GFLOP/s, 0.5 x naive scatter"
    integers = dataclasses.replace(product, variant="int8_transposed", dtype="int8")
    assert told(integers, own) == "int8_transposed 64x64x64 int8 PASS 131.1 GOP/s"
    total = Point("sum", "serial", (999_999,), "float64", 1)
    assert told(total, ("serial", "", timings.kernel_samples([1e-3]))) == "serial 999999 float64 PASS 8 GB/s"


def test_timed_seconds_count_rank_0_and_each_call_once():
    point = product(ranks=2)

    def seconds(*samples) -> float:
        return timed_seconds(timings.measurement(point, samples=samples))

    calls = timings.call_samples([[{"kernel": 2.0, "total": 8.0}, {"kernel": 4.0, "total": 16.0}]] * 3)
    assert seconds(*calls, *timings.kernel_samples([(1.0, 32.0)] * 2)) == 3 * 8.0 + 2 * 1.0
    once = calls[:2]
    assert seconds(*once, *timings.kernel_samples([(2.0, 4.0)])) == 8.0
    assert seconds(*once, *timings.kernel_samples([(1.0, 4.0)])) == 8.0 + 1.0
    assert seconds() == 0.0


def test_the_remaining_time_follows_from_predicted_and_measured_times(monkeypatch, capsys):
    points = [product(n=n) for n in range(1, 12)]
    clock = iter([100.0, 110.0, 125.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    progress = Progress(batch_of(points), [1.0, 3.0], Elsewhere())  # of eleven points nine were measured before
    progress.done("first")
    progress.done("second")
    assert capsys.readouterr().out.splitlines() == [
        "[10/11] size/cpu-r1-1 first (10.0 s; about 12 s to 2 min left)",
        "[11/11] size/cpu-r1-1 second (15.0 s; less than a minute left)",
    ]
    clock = iter([100.0, 110.0])
    learned = Pace(Record(str(number), "matmul", "cpu", 1.0, 20.0) for number in range(40))
    Progress(batch_of(points), [1.0, 3.0], Elsewhere(40, 100, 300.0, pace=learned)).done("first")
    assert capsys.readouterr().out == "[ 50/111] size/cpu-r1-1 first (10.0 s; about 5 min left)\n"


def test_a_visit_counts_as_its_share_of_a_point(monkeypatch, capsys):
    points = [product(n=n) for n in (1, 2)]
    for visit in range(3):
        clock = iter([0.0, 6.0, 12.0])
        monkeypatch.setattr(time, "perf_counter", lambda clock=clock: next(clock))
        progress = Progress(batch_of(points), [1.0, 1.0], Elsewhere(), visit, 3)
        progress.done("first")
        progress.done("second")
    form = r"\[(.*)\].* \(visit (.) of 3, .*; (.*) left"
    found = [re.search(form, line).groups() for line in capsys.readouterr().out.splitlines()]
    assert [place for place, _, _ in found] == ["0/2", "0/2", "1/2", "1/2", "1/2", "2/2"]
    assert [visit for _, visit, _ in found] == ["1", "1", "2", "2", "3", "3"]
    # later visits do not verify
    assert [left for _, _, left in found] == ["about 16 s to 88 s", *["less than a minute"] * 5]


# --- jobs --------------------------------------------------------------------------------------------------------

OF_JOBS = dataclasses.asdict(QUICK) | {"cache": "hot"}  # to empty the caches takes the longest
for name in ("accuracy", "same_bits"):  # these belong to a sweep
    OF_JOBS.pop(name)


@pytest.fixture
def planned(tmp_path):
    """``planned(ranks=…, sizes=…, …)`` writes a plan of one sweep; returns arguments for hpcmm.jobs.measure."""

    def write(
        variant: str = "serial",
        ranks: int = 2,
        sizes=(4, 8, 12),
        backends: str = "cpu",
        operation: str = "matmul",
        algorithms=(TEXTBOOK,),
        **measuring,
    ):
        entry = {"operation": operation, "variants": [variant], "sizes": list(sizes), "dtypes": ["float32"]}
        sweeps = {"size": entry | {"ranks": [ranks], "algorithms": list(algorithms)}}
        device = "cpu" if kernels.is_file(variant) else OPERATIONS[operation].variant(variant).device
        config = {"backends": backends, "job_minutes": 1000, "measuring": OF_JOBS | measuring, "sweeps": sweeps}
        plan.make(config).write(tmp_path / "plan.json")
        return [*("--results", tmp_path), *("--batch", f"size/{device}-r{ranks}-1")]

    return write


def finished(journal: Path) -> list[dict]:
    """The lines of a journal that are points."""
    if not journal.exists():
        return []
    return [entry for entry in (json.loads(line) for line in whole_lines(journal.read_bytes())) if "point" in entry]


def test_a_killed_job_continues_after_its_last_finished_point(mpi_job, mpi_output, planned, tmp_path):
    sizes = (4, 8, 12, 16)
    arguments = planned(sizes=sizes)
    journal, output = tmp_path / "raw/size/cpu-r2-1.journal", tmp_path / "raw/size/cpu-r2-1.h5"
    with mpi_job(2, RANK_FAILS, "stuck", 2, *arguments) as job:
        while len(finished(journal)) < 2 and job.poll() is None:
            time.sleep(0.01)
        # SIGKILL for all of it, on leaving this block
    before = {line["point"]: line for line in finished(journal)}
    assert len(before) == 2
    assert not output.exists()

    printed = mpi_output(2, *MEASURE, *arguments)
    assert printed.count(" PASS ") == len(sizes) - len(before)
    assert f"{len(before)} points were measured before and are kept" in printed
    assert not journal.exists()
    groups = store.read(output)
    assert len(groups["runs"]["batch"]) == 2
    measurements, samples = groups["measurements"], groups["samples"]
    assert list(measurements["m"]) == sorted([*sizes, *sizes])
    kept = [line["measurements"][0]["point"]["shape"][0] for line in before.values()]
    np.testing.assert_array_equal(measurements["run"], [0 if m in kept else 1 for m in measurements["m"]])
    for line in before.values():  # the very numbers that were on the disk
        for measurement in line["measurements"]:
            of_point = measurements["m"] == measurement["point"]["shape"][0]
            (row,) = np.flatnonzero(of_point & (measurements["contender"] == measurement["contender"]))
            times = samples["kernel"][samples["measurement"] == row]
            np.testing.assert_array_equal(times, [sample["seconds"]["kernel"] for sample in measurement["samples"]])


@pytest.mark.usefixtures("forgotten")
def test_points_whose_source_is_edited_between_two_visits_are_refused(mpiexec, mpi_output, planned, tmp_path):
    """Further visits would be of another program; those before stay."""
    (tmp_path / "own.py").write_text("def vector_add(A, B):\n    return A + B\n")
    arguments = planned(variant=f"{tmp_path}/own.py", operation="vector_add", ranks=1, sizes=[4], visits=2)
    mpi_output(1, *MEASURE, *arguments)
    (tmp_path / "own.py").write_text("def vector_add(A, B):\n    return B + A\n")
    done = mpiexec(1, *MEASURE, *arguments, "--failed", tmp_path / "failed")
    assert done.returncode == 1
    refused = f"hpcmm: error: size/cpu-r1-1: edited during the run: {tmp_path / 'own.py'}"
    assert refused in done.stderr and (tmp_path / "failed").read_text() == "size/cpu-r1-1\n"
    (entry,) = finished(tmp_path / "raw/size/cpu-r1-1.journal")
    assert entry["visit"] == 0


def test_an_error_on_one_rank_ends_all_of_them_with_that_error(mpiexec, planned, tmp_path):
    """The others wait for it in the middle of the point; an error of this package has no traceback."""
    done = mpiexec(3, RANK_FAILS, "HpcmmError", 1, *planned(ranks=3))
    assert done.returncode != 0
    assert "rank 1: " in done.stderr and "rank 1 lost its way" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "raw/size/cpu-r3-1.h5").exists()
    assert len(finished(tmp_path / "raw/size/cpu-r3-1.journal")) == 2


GPUS = [pytest.mark.gpu, pytest.mark.skipif(presence.count() < 2, reason="needs two GPUs")]


@pytest.mark.parametrize(
    ("variant", "algorithm", "phase"),
    [
        ("serial", TEXTBOOK, "open"),
        pytest.param("serial", "staged", "run", marks=pytest.mark.slow),
        pytest.param("serial", ALONE, "verify", marks=pytest.mark.slow),
        pytest.param("serial", "ring", "close", marks=pytest.mark.slow),
        pytest.param("cublas", "staged", "run", marks=GPUS),
        pytest.param("cublas", "resident", "verify", marks=GPUS),
        pytest.param("cublas", "ring", "open", marks=GPUS),
        pytest.param("cublas", "summa", "close", marks=GPUS),
    ],
)
def test_a_job_ends_if_one_rank_fails_in_any_phase(mpiexec, planned, tmp_path, variant, algorithm, phase):
    """The other ranks may wait for it, and its process may wait for them at its end."""
    device, ranks = ("cpu", 3) if variant == "serial" else ("cuda", min(presence.count(), 4))
    arguments = planned(variant, ranks, backends=device, algorithms=[algorithm])
    done = mpiexec(ranks, RANK_FAILS, f"RuntimeError@{phase}", 1, *arguments)
    assert done.returncode != 0
    assert "RuntimeError: rank 1 lost its way" in done.stderr and "Traceback" in done.stderr
    journal = tmp_path / f"raw/size/{device}-r{ranks}-1.journal"
    if phase == "close" and not journal.exists():  # to close the last point, rank 0 need not wait for the others
        assert set(store.read(journal.with_suffix(".h5"))["measurements"]["n"]) == {4, 8, 12}
    else:
        assert 2 <= len(finished(journal)) <= 2 + (phase == "close"), "the points before the failure"


@pytest.mark.parametrize(
    ("operation", "algorithms"),
    [
        ("sum", ["all_reduce"]),
        pytest.param("matmul", [TEXTBOOK, "staged", "resident", "ring", "summa", ALONE], marks=pytest.mark.slow),
    ],
)
def test_a_wrong_result_on_one_rank_fails_its_point_only(mpi_output, planned, tmp_path, operation, algorithms):
    arguments = planned("serial", 2, (12, 16), operation=operation, algorithms=algorithms)
    mpi_output(2, RANK_FAILS, "wrong@verify", 2, *arguments)
    rows = store.read(tmp_path / "raw/size/cpu-r2-1.h5")["measurements"]
    sizes = rows["n"]
    assert set(rows["algorithm"][sizes == 12]) == set(algorithms)
    np.testing.assert_array_equal(rows["passed"], sizes != 12)


def test_a_rank_that_hangs_after_the_last_point_ends_the_job_and_no_point_is_lost(mpiexec, planned, tmp_path):
    arguments = planned(ranks=3)
    done = mpiexec(3, RANK_FAILS, "end", 1, *arguments)
    assert done.returncode != 0
    assert "stuck in size/cpu-r3-1: end for 1 s" in done.stderr and "in hangs" in done.stderr
    assert set(store.read(tmp_path / "raw/size/cpu-r3-1.h5")["measurements"]["m"]) == {4, 8, 12}


@pytest.mark.slow
def test_an_error_on_all_ranks_leaves_the_other_points(mpiexec, planned, tmp_path):
    done = mpiexec(2, RANK_FAILS, "RuntimeError", 3, *planned(sizes=(4, 8, 12, 16)))
    assert done.returncode != 0
    assert done.stdout.count(" PASS ") == 3
    told = [line for line in done.stderr.splitlines() if "could not be measured" in line]
    assert told == ["hpcmm: error: size/cpu-r2-1: 1 of 4 points could not be measured:"]
    names = "; ".join(f"RuntimeError: rank {rank} lost its way" for rank in range(2))
    assert f"  serial 12x12x12 float32: {names}" in done.stderr
    assert not (tmp_path / "raw/size/cpu-r2-1.h5").exists()


@pytest.mark.slow
def test_a_point_that_kills_its_job_is_tried_last_and_then_missing(mpiexec, mpi_output, planned, tmp_path):
    arguments = planned(ranks=1, sizes=(4, 12, 8))
    for before in (1, 2):  # the second job first measures what the first one could not come to
        done = mpiexec(1, RANK_FAILS, "kill", 2, *arguments)
        assert done.returncode != 0
        assert len(finished(tmp_path / "raw/size/cpu-r1-1.journal")) == before
    mpi_output(1, RANK_FAILS, "kill", 2, *arguments)
    rows = store.read(tmp_path / "raw/size/cpu-r1-1.h5")["measurements"]
    assert list(rows["m"]) == [4, 4, 12, 8, 8]
    failed = rows["passed"] == 0
    assert list(rows["m"][failed]) == [12]
    assert list(rows["where"][failed]) == [f"not measured, tried 2 times: {CUT_OFF}"]


def make_visits(results: Path, count: int, batches, program=MEASURE, name: str = "job") -> subprocess.CompletedProcess:
    """Make visits as a job of the workflow does, which leaves NAME.done or NAME.failed."""
    done, failed = results / f"{name}.done", results / f"{name}.failed"
    command = [Path(__file__).parents[1] / "jobs" / "visits", count, done, failed]
    command += [sys.executable, "-m", "mpi4py", *program, "--results", results, "--batch", *batches]
    command += ["--visits", count, "--done", done, "--failed", failed]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_a_batch_that_fails_does_not_stop_the_others_of_its_job(tmp_path):
    """Its processes are started again without it, and all visits of the others are made."""
    measuring = OF_JOBS | {"visits": 2}
    entry = {"operation": "matmul", "variants": ["serial"], "dtypes": ["float32"], "ranks": [1]}
    sweeps = {name: entry | {"sizes": sizes} for name, sizes in {"a": [4], "b": [8, 12], "c": [16]}.items()}
    planned = plan.make({"backends": "cpu", "job_minutes": 1000, "measuring": measuring, "sweeps": sweeps})
    planned.write(tmp_path / "plan.json")
    (job,) = planned.jobs
    done, failed = tmp_path / "job.done", tmp_path / "job.failed"
    names = [batch.name for batch in job.batches]
    bad = make_visits(tmp_path, 2, names, (RANK_FAILS, "kill", 2))
    assert bad.returncode != 0 and not done.exists(), bad.stdout + bad.stderr
    assert failed.read_text() == "b/cpu-r1-1\n"
    for name in "ac":
        assert set(store.read(tmp_path / f"raw/{name}/cpu-r1-1.h5")["samples"]["visit"]) == {0, 1}
    assert not (tmp_path / "raw/b/cpu-r1-1.h5").exists()
    before = (tmp_path / "raw/a/cpu-r1-1.h5").stat().st_mtime_ns
    good = make_visits(tmp_path, 2, names)
    assert good.returncode == 0 and done.exists() and not failed.exists(), good.stderr
    assert set(store.read(tmp_path / "raw/b/cpu-r1-1.h5")["measurements"]["m"]) == {8, 12}
    assert (tmp_path / "raw/a/cpu-r1-1.h5").stat().st_mtime_ns == before


@pytest.mark.slow
def test_two_jobs_divide_the_visits_and_the_file_names_the_job_of_each(tmp_path):
    """The first one stops before the last visit; started again, it makes no other one."""
    sweep = {"operation": "matmul", "variants": ["serial"], "dtypes": ["float32"], "sizes": [4, 8, 12]}
    config = {"backends": "cpu", "measuring": OF_JOBS | {"visits": 3, "jobs": 2}, "sweeps": {"a": sweep}}
    planned = plan.make(config)
    planned.write(tmp_path / "plan.json")
    (job,) = planned.jobs
    output = job.batches[0].file(tmp_path)
    for name, turn in plan.turns(job, planned.measuring).items():
        done = tmp_path / f"{name}.done"
        for _ in range(2):
            done.unlink(missing_ok=True)
            run = make_visits(tmp_path, turn.visits, [job.name], name=name)
            assert run.returncode == 0 and done.exists(), run.stdout + run.stderr
            assert output.exists() == (turn.visits == 3)
            entries = finished(output.with_suffix(".journal"))
            assert not entries or len(entries) == 3 * turn.visits
    columns = store.read(output)
    jobs = [json.loads(text)["job"] for text in columns["runs"]["provenance"]]
    runs = dict(zip(columns["samples"]["visit"].tolist(), columns["samples"]["run"].tolist(), strict=True))
    assert sorted(runs.values()) == [0, 1, 2] and jobs[runs[0]] == jobs[runs[1]] != jobs[runs[2]]


def test_a_point_too_large_for_memory_is_recorded_and_its_batch_succeeds(measure, tmp_path, capsys):
    assert measure([product(variant="numpy", n=n) for n in (9, 180_000)]) == []  # 3 matrices of 241 GiB
    rows = store.read(tmp_path / "out.h5")["measurements"]
    assert list(rows["m"]) == [9, 180_000] and list(rows["passed"]) == [1, 0]
    figures = r"not measured: needs \S+ GiB of host \S+, but \S+ GiB are free; no algorithm would fit"
    assert re.fullmatch(figures, rows["where"][1])
    assert re.search(f"180000x180000x180000 float64 {figures}", capsys.readouterr().out)


def test_another_rank_count_than_the_batch_has_is_refused(mpiexec, planned):
    done = mpiexec(2, *MEASURE, *planned(ranks=3))
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert re.search("^hpcmm: error: .*needs 3 ranks, but MPI started 2", done.stderr, re.MULTILINE)


# --- under a profiler --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first_wrong", "seen"), [(0, [1, 3, 4, 5]), (1, [1, 2, 3, 4, 5]), (9, [1, 2, 3, 4, 5])])
def test_a_profiler_sees_each_right_point_once_under_its_number(damage, monkeypatch, first_wrong, seen):
    """The second run is that under the profiler: a result that is wrong only there fails."""
    damage("unrolled", lambda arrays, before: arrays["C"].fill(0), range(first_wrong, RUNS))

    def marked(run, number):
        return dataclasses.replace(run, once=lambda: watched.append(number) or run())

    watched, backend = [], CpuBackend(threads=1)
    monkeypatch.setattr(backend, "marked", marked, raising=False)
    points = [*(product(variant=name) for name in ("serial", "unrolled", "numpy")), product(dtype="float32")]
    points.append(POINTS["sum"])
    verdicts = run_for_profiler(MPI.COMM_SELF, backend, points, QUICK)
    assert [verdict.passed for verdict in verdicts] == [True, first_wrong > 1, True, True, True]
    assert verdicts[1].where.endswith("(under the profiler)") == (first_wrong == 1)
    assert watched == seen
