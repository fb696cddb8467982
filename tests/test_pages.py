"""Arrays of the CPU: aligned, on huge pages if the system grants them, and what a file says about them."""

import dataclasses
import math
import mmap

import numpy as np
import pytest
import timings
from batches import BATCH, HOST, filled, measured, of
from hypothesis import given
from hypothesis import strategies as st
from mpi4py import MPI
from timings import product, took

from hpcmm import analysis, store
from hpcmm.analysis import visits
from hpcmm.backends.cpu import memory
from hpcmm.backends.cpu.device import CpuBackend
from hpcmm.bench import provenance
from hpcmm.bench.journal import Journal
from hpcmm.bench.measure import Problem, measure_point
from hpcmm.model.measurement import Measuring, Point, Visit
from hpcmm.operations import OPERATIONS
from hpcmm.report import findings, tables

LIMITS = Measuring(1, 2, 2, 1.0, 1.0, "cold", seed=1)
SHAPES = {"matmul": (40, 24, 56), "latency": (1024, 64), "bandwidth": (1024, 64)}


@given(st.lists(st.integers(0, 70), max_size=3).map(tuple), st.sampled_from(["float32", "float64", "uint8", "int32"]))
def test_an_array_begins_at_a_huge_page_and_is_like_one_of_numpy(shape, dtype):
    found, like = memory.empty(shape, dtype), np.zeros(shape, dtype)
    assert found.ctypes.data % memory.HUGE == 0
    assert (found.shape, found.dtype) == (like.shape, like.dtype)
    assert found.flags.writeable and found.flags.c_contiguous
    np.testing.assert_array_equal(found, like)
    found[...] = 1
    assert found.sum() == found.size


def points() -> list[Point]:
    """A CPU rung of each operation on one rank."""
    found = []
    for operation in OPERATIONS.values():
        rungs = [each for each in operation.ladder if each.device == "cpu" and not each.library]
        shape = SHAPES.get(operation.name, (4096,) * len(operation.dimensions))
        if rungs:
            dtype = operation.dtypes_of(rungs[0])[0]
            scalars = operation.scalars_of(dtype, {})
            found.append(Point(operation.name, rungs[0].name, shape, dtype, 1, scalars))
    return found


@pytest.mark.parametrize("point", points(), ids=lambda point: point.operation)
def test_every_operand_of_every_operation_begins_at_a_huge_page(point):
    problem = Problem(MPI.COMM_SELF, CpuBackend(1), point, seed=1)
    own, *_ = measure_point(problem, point, LIMITS)
    assert own.verdict.passed, own.verdict
    (spread,) = problem.placed.values()
    for name, array in {**spread.arrays, **spread.inputs, **spread.result}.items():
        assert array.ctypes.data % memory.HUGE == 0, name
    (visit,) = own.visits
    assert visit.number == 0 and 0 <= visit.huge_pages <= 1
    assert visit.busy_seconds >= visit.steal_seconds >= 0


def refuse(*arguments):
    raise OSError(22, "Invalid argument")


@pytest.mark.parametrize("fault", ["no such advice", "a kernel without huge pages"])
def test_without_huge_pages_arrays_have_ordinary_ones(monkeypatch, fault):
    if fault == "no such advice":
        monkeypatch.delattr(mmap, "MADV_HUGEPAGE")
    else:
        whole = mmap.mmap
        monkeypatch.setattr(mmap, "mmap", type("Mapping", (whole,), {"madvise": refuse}))
    array = memory.empty((300, 300), "float64")
    array.fill(1)
    assert array.ctypes.data % memory.HUGE == 0 and array.sum() == 90000
    if provenance.value("sys/kernel/mm/transparent_hugepage/enabled", r"\[(\w+)\]") != "always":
        assert memory.huge_pages([array]) == 0


def test_the_share_of_huge_pages_is_that_of_the_mappings_of_the_arrays(monkeypatch, tmp_path):
    a, b, elsewhere = (memory.empty((1 << 20,), "uint8") for _ in range(3))

    def mapping(array, resident: int, huge: int, kind: str = "AnonHugePages") -> str:
        start = array.ctypes.data
        head = f"{start:x}-{start + memory.HUGE:x} rw-p 00000000 00:00 0 \nSize: 2048 kB\nRss: {resident} kB\n"
        return head + f"{kind}:   {huge} kB\nVmFlags: rd wr\n"

    text = mapping(a, 2048, 2048) + mapping(b, 1024, 512, "ShmemPmdMapped") + mapping(elsewhere, 2048, 0)
    (tmp_path / "smaps").write_text(text + "7ffe-8000 r--p 00000000 00:00 0  [ab-cd ]\nRss: 4 kB\n")
    monkeypatch.setattr(memory, "SMAPS", tmp_path / "smaps")
    assert memory.huge_pages([a]) == 1
    assert memory.huge_pages([b]) == 0.5
    assert memory.huge_pages([a, b]) == 0.75
    assert memory.huge_pages([elsewhere]) == 0
    assert math.isnan(memory.huge_pages([]))
    monkeypatch.setattr(memory, "SMAPS", tmp_path / "none")
    assert math.isnan(memory.huge_pages([a]))


FIRST = Visit(0, "algorithm 3", 1.0, 2.0, 0.0)
SECOND = Visit(1, "algorithm 7", 0.25, 4.0, 0.5)
THIRD = Visit(2, "algorithm 3", 1.0, 0.1, visits.TICK)


def of_visit(point: Point, visit: Visit):
    own, baseline = measured(point)
    samples = tuple(dataclasses.replace(sample, visit=visit.number) for sample in own.samples)
    return [dataclasses.replace(own, samples=samples, visits=(visit,)), baseline]


@pytest.fixture
def three_visits(tmp_path):
    """The file of a point with three visits, each of a process of its own."""
    path, point = tmp_path / "file.h5", BATCH.points[0]
    filled(path.with_suffix(".journal"), BATCH.points[1:]).close()
    for left, visit in ((2, FIRST), (1, SECOND), (0, THIRD)):
        journal = Journal(path.with_suffix(".journal"), BATCH, HOST)
        journal.append(point, of_visit(point, visit), left)
        if left:
            journal.close()
    journal.complete()
    return path


def test_a_file_has_the_state_of_each_visit(three_visits):
    columns = store.read(three_visits)
    found, fingerprints = columns["visits"], columns["measurements"]["fingerprint"]
    own = found["measurement"] == list(fingerprints).index(of(BATCH.points[0]))
    names = ("visit", "schedule", "huge_pages", "busy_seconds", "steal_seconds")
    rows = [Visit(*values) for values in zip(*(found[name][own] for name in names), strict=True)]
    assert rows == [FIRST, SECOND, THIRD]
    row = analysis.row_dicts(analysis.measurements(columns))[0]
    assert row["schedule"] == "algorithm 3 (2 of 3 visits); algorithm 7 (1 of 3 visits)"
    assert (row["huge_pages"], row["huge_pages_most"], row["steal"]) == (0.25, 1.0, 0.125)
    assert row["schedule"] in tables.result(row)


def test_merging_and_selecting_keep_the_visits_of_each_measurement(three_visits, tmp_path):
    timings.merge([three_visits, three_visits], tmp_path / "merged.h5")
    whole = store.read(tmp_path / "merged.h5")
    np.testing.assert_array_equal(whole["visits"]["schedule"], store.read(three_visits)["visits"]["schedule"])
    last = store.select(whole, np.array([2, 0]))["visits"]
    assert list(last["measurement"]) == [1, 1, 1] and list(last["schedule"]) == ["algorithm 3", *last["schedule"][1:]]


def sentences(*states: Visit, others=()):
    rows = [took(product("avx"), 1.0, visits=states)]
    rows += [took(product("serial"), 2.0, visits=(each,)) for each in others]
    return findings.disturbances(analysis.row_dicts(timings.derived(*rows)))


def test_different_pages_of_visits_or_rungs_and_steal_beyond_a_tick_are_findings():
    text = sentences(FIRST, dataclasses.replace(FIRST, number=1, huge_pages=0.0))
    assert "Visits differ in the pages of their arrays at 64: 0 % to 100 %" in text
    assert "pages of their arrays at 64" in sentences(FIRST, others=[Visit(0, "", 0.5, 1.0, 0.0)])
    assert "during 1 of 1 points, at most 12 % (avx at 64)" in sentences(FIRST, Visit(1, "", 1.0, 4.0, 0.5))


@pytest.mark.parametrize("states", [(), (FIRST,), (FIRST, Visit(1, "", 0.99, 0.1, 0.01)), (Visit(0), Visit(1))])
def test_equal_pages_without_steal_are_no_finding(states):
    assert sentences(*states) == ""
