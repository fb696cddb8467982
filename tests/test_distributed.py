"""Distributed algorithms over all transports: results, schedules, memory, plan and cost model."""

import dataclasses
import importlib.util
import itertools
import math
import re
import sys
from importlib.machinery import ModuleSpec
from operator import itemgetter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import timings
from hypothesis import example, given
from hypothesis import strategies as st
from mpi4py import MPI
from tasks import machine, task

from hpcmm import analysis, store
from hpcmm.backends.cpu.device import CpuBackend
from hpcmm.backends.cuda import presence
from hpcmm.experiment import plan
from hpcmm.experiment.config import SCHEMA
from hpcmm.model import HpcmmError, Operand, Task
from hpcmm.model.launch import Run
from hpcmm.model.measurement import Point
from hpcmm.model.quantities import PHASES
from hpcmm.operations import OPERATIONS
from hpcmm.operations.matmul import MATMUL
from hpcmm.parallel import ALGORITHMS, algorithm_of, algorithms_of, cost, cublasmp, memory, preflight, schedules
from hpcmm.parallel.all_reduce import combining
from hpcmm.parallel.transports.base import Transport, TransportError
from hpcmm.parallel.transports.choice import Connections, candidates, trial
from hpcmm.parallel.transports.mpi_rma import MpiRma

PROGRAM = Path(__file__).parent / "mpi_programs" / "distributed.py"
REOPEN = PROGRAM.with_name("reopen.py")
REOPENED = r"opened, run and closed, over (.*): (.*)"


# --- records -----------------------------------------------------------------------------------------------------


def operation(dimensions: str, *operands: str):
    """An operation by its dimensions, and by the name, dimensions, distribution and role of each operand."""
    parts = [each.split() for each in operands]
    made = tuple(Operand(name, tuple(of.strip("-")), how, role) for name, of, how, role in parts)
    return dataclasses.replace(MATMUL, name="other", dimensions=tuple(dimensions), operands=made)


OF_PRODUCTS = ["scatter", "staged", "resident", "ring", "summa", "cublasmp", "alone"]


@pytest.mark.parametrize(
    ("other", "names"),
    [
        # a matrix times a vector: rows and a whole vector, but no product of matrices
        (("mn", "A mn rows in", "x n replicated in", "y m rows out"), ["scatter", "alone"]),
        # a dot product has two vectors
        (("n", "x n rows in", "y n rows in", "result - combined out"), ["scatter", "all_reduce", "alone"]),
        # the same product with its dimensions under other names
        (("rct", "B tc replicated in", "A rt rows in", "C rc rows inout"), OF_PRODUCTS),
        # B transposed; no beta C; rows of the second dimension
        (("mnk", "A mk rows in", "B nk replicated in", "C mn rows inout"), ["scatter", "alone"]),
        (("mnk", "A mk rows in", "B kn replicated in", "C mn rows out"), ["scatter", "alone"]),
        (("nmk", "A mk rows in", "B kn replicated in", "C mn rows inout"), []),
    ],
)
def test_an_operation_from_outside_gets_the_algorithms_that_suit_its_operands(other, names):
    assert [algorithm.name for algorithm in algorithms_of(operation(*other))] == names


def test_an_algorithm_that_does_not_suit_an_operation_is_refused_by_name():
    with pytest.raises(HpcmmError, match="'ring' does not suit sum; allowed: scatter, all_reduce"):
        algorithm_of(OPERATIONS["sum"], "ring")
    with pytest.raises(HpcmmError, match="'cannon' does not suit matmul; allowed: scatter, staged"):
        algorithm_of(MATMUL, "cannon")


# --- results -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_algorithm_over_every_transport_is_right(mpi_output):
    """One rank, and a grid of 2 x 3; two ranks are closed and opened again."""
    assert "5 drawn cases over mpi, mpi_rma, pinned: right" in mpi_output(6, PROGRAM, "cpu", 0, "1,6", 5, timeout=600)


def test_each_rank_draws_and_verifies_a_problem_of_its_own(mpi_output):
    printed = mpi_output(3, PROGRAM.with_name("alone.py"), timeout=300)
    assert "4 problems of each rank alone: right, and wrong ones found" in printed


@pytest.mark.gpu
def test_every_algorithm_is_right_between_processes_that_share_a_gpu_cuda(gpu, mpi_output):
    assert "30 drawn cases over " in mpi_output(3, PROGRAM, "cuda", 1, "1,2,3", 30, timeout=600)


@pytest.mark.gpu
def test_every_algorithm_is_right_on_gpus_of_their_own_cuda(gpu, mpi_output):
    gpus = min(presence.count(), 6)
    if gpus < 2:
        pytest.skip(f"needs two GPUs, CUDA shows {gpus}")
    printed = mpi_output(gpus, PROGRAM, "cuda", 0, ",".join(map(str, range(2, gpus + 1))), 50, timeout=600)
    assert "50 drawn cases over " in printed


@pytest.mark.slow
def test_every_algorithm_can_be_closed_and_opened_again(mpi_output):
    found = re.search(REOPENED, mpi_output(2, REOPEN, "cpu", timeout=300))
    assert set(found[1].split(", ")) == {"mpi", "mpi_rma", "pinned"}
    on_gpus = {name for name, each in ALGORITHMS.items() if each.fixed and each.transport not in ("mpi", "mpi_rma")}
    on_gpus -= {name for name in on_gpus if "pinned" in name}
    assert set(found[2].split(", ")) == set(ALGORITHMS) - on_gpus


@pytest.mark.gpu
@pytest.mark.parametrize("ranks", [2, 4])
def test_every_algorithm_can_be_closed_and_opened_again_on_gpus(gpu, mpi_output, ranks):
    if presence.count() < ranks:
        pytest.skip(f"needs {ranks} GPUs, CUDA shows {presence.count()}")
    with_nvmath = ["nvmath"] if importlib.util.find_spec("nvmath") and not cublasmp.too_old(gpu.nccl_version) else []
    names = re.search(REOPENED, mpi_output(ranks, REOPEN, "cuda", *with_nvmath, timeout=240))[2].split(", ")
    assert {"scatter", "staged", "resident", "ring", "summa", "all_reduce"} <= {*names}
    assert ("cublasmp" in names) == bool(with_nvmath)


@pytest.mark.parametrize(
    ("release", "needs", "nccl", "reason"),
    [
        ("0.10.0.3695", "nvidia-nccl-cu13>=2.29.2", "2.28.9", "cuBLASMp 0.10 needs NCCL >= 2.29.2, found 2.28.9"),
        ("0.10.0.3695", "nvidia-nccl-cu13>=2.29.2", "2.29.2", ""),
        ("0.9.1.3056", "nvidia-nccl-cu13 (>=2.29.2)", "2.9.8", "cuBLASMp 0.9 needs NCCL >= 2.29.2, found 2.9.8"),
        ("0.7.0.125", "nvidia-nccl-cu13>=2.28.3", "2.28.9", ""),
        ("0.7.0.125", "nvidia-cublas>=13.0.0.19", "2.3", ""),
        ("0.10.0.3695", "nvidia-nccl-cu13>=2.29.2", "", ""),  # unknown
    ],
)
def test_a_cublasmp_that_needs_a_newer_nccl_is_refused(tmp_path, monkeypatch, release, needs, nccl, reason):
    folder = tmp_path / f"nvidia_cublasmp_cu13-{release}.dist-info"
    folder.mkdir()
    text = f"Metadata-Version: 2.1\nName: nvidia-cublasmp-cu13\nVersion: {release}\n"
    (folder / "METADATA").write_text(f"{text}Requires-Dist: nvidia-cublas>=13.1.0.3\nRequires-Dist: {needs}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert cublasmp.too_old(nccl) == reason
    monkeypatch.setitem(sys.modules, "nvmath", SimpleNamespace(__spec__=ModuleSpec("nvmath", None)))
    if reason:
        backend = SimpleNamespace(nccl_version=nccl)
        with pytest.raises(HpcmmError, match=f"algorithm cublasmp: {re.escape(reason)}; install this NCCL, or an earl"):
            ALGORITHMS["cublasmp"].distribution(MPI.COMM_SELF, backend, task(MATMUL, (4, 4, 4)), None)


@pytest.mark.parametrize("part", ["arrival", "order"])
def test_a_broken_exchange_is_found(mpiexec, part):
    done = mpiexec(3, PROGRAM, "cpu", 0, "3", 10, part, timeout=600)
    assert done.returncode != 0 and "right" not in done.stdout
    assert "passed=False" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["scatter", "staged", "resident", "ring", "summa"])
def test_a_matrix_of_more_than_2_31_elements(mpi_output, algorithm):
    terms, columns = 2**22 + 1, 513  # 8 GiB
    needed = 5 * 4 * terms * columns
    if preflight.host_free() < needed:
        pytest.skip(f"needs {needed / 2**30:.0f} GiB of memory")
    printed = mpi_output(2, PROGRAM.parent / "large.py", algorithm, terms, columns, timeout=600)
    assert f"{terms * columns} elements: right" in printed


def test_a_transport_is_offered_where_the_backend_has_its_arrays():
    backends = (SimpleNamespace(in_host_memory=place) for place in (True, False))
    on_host, on_device = ([kind.name for kind in candidates(backend)] for backend in backends)
    assert (on_host, on_device) == (["mpi", "mpi_rma"], ["peer", "nccl", "mpi_cuda", "pinned"])
    assert sorted(SCHEMA["properties"]["transport"]["enum"]) == sorted(["auto", *on_host, *on_device])


@pytest.mark.parametrize(
    ("wanted", "algorithm", "broken", "opened", "why"),
    [
        ("auto", "ring", (), "peer", ""),
        ("auto", "ring", ("peer", "nccl"), "mpi_cuda", "peer: no peer; nccl: no nccl"),
        ("auto", "all_reduce", (), "nccl", ""),  # its own first
        ("auto", "all_reduce", ("nccl",), "peer", "nccl: no nccl"),
        ("pinned", "all_reduce", (), "pinned", ""),
        ("mpi", "ring", (), "peer", ""),  # mpi is for host memory
        ("pinned", "neighbours_nccl", (), "nccl", ""),  # fixed
        ("nccl", "scatter", ("nccl",), None, ""),  # uses none
        ("nccl", "ring", ("nccl",), "", "config: transport: 'nccl' does not work between these ranks: nccl: no nccl"),
        ("auto", "neighbours_nccl", ("nccl",), "", "no nccl"),
    ],
)
def test_an_algorithm_gets_its_own_transport_or_that_of_the_config_or_the_first_that_works(
    wanted, algorithm, broken, opened, why
):
    class Some(Connections):
        def _open(self, name):
            if name in broken:
                raise TransportError(f"no {name}")
            transport = Transport(self.ranks, self.backend)
            transport.name = name
            return transport

    connections = Some(MPI.COMM_SELF, SimpleNamespace(in_host_memory=False), wanted)
    if opened == "":
        with pytest.raises(TransportError, match=f"^{re.escape(why)}$"):
            connections.of(ALGORITHMS[algorithm])
    else:
        transport, reasons = connections.of(ALGORITHMS[algorithm])
        assert (transport and transport.name, reasons) == (opened, why)
    connections.close()


def test_a_transport_that_mpi_refuses_does_not_work():
    """As Open MPI 4 refuses windows over memory of the caller on one node without a network."""

    class Refused(MpiRma):
        def share(self, name, array):
            raise MPI.Exception(MPI.ERR_WIN)

    with pytest.raises(TransportError, match=r"^rank 0: Exception: "):
        trial(Refused(MPI.COMM_SELF, CpuBackend(1)))


def test_an_all_reduce_takes_every_vector_of_its_operation():
    class Backend(CpuBackend):
        def prepare(self, *arguments):
            arrays = arguments[-1]
            return Run(lambda: np.dot(arrays["x"], arrays["y"], out=arrays["result"]))

    dot = operation("n", "x n rows in", "y n rows in", "result - combined out")
    algorithm, inputs = algorithm_of(dot, "all_reduce"), {"x": np.arange(5.0), "y": np.arange(5.0) + 1}
    backend, problem = Backend(threads=1), Task(dot, MATMUL.variant("numpy"), (5,), "float64")
    spread = algorithm.distribution(MPI.COMM_SELF, backend, problem, inputs, True, Transport(MPI.COMM_SELF, backend))
    spread.poison()
    spread.call(spread.prepare(problem))
    assert spread.result["result"] == 0 * 1 + 1 * 2 + 2 * 3 + 3 * 4 + 4 * 5
    assert algorithm.need(dot, (5,), 1, 0).device == sum(array.size for array in spread.arrays.values())


# --- measuring ---------------------------------------------------------------------------------------------------

MEASURING = {
    "visits": 1, "warmups": 1, "min_repetitions": 3, "max_repetitions": 3, "max_seconds": 5, "relative_interval": 0.01,
    "cache": "hot", "seed": 1,
}  # fmt: skip


def measured(mpi_output, folder: Path, entry: dict, transport: str) -> dict:
    """The groups of the file that a job with two ranks writes."""
    config = {"scale": "quick", "backends": "cpu", "transport": transport, "measuring": MEASURING}
    plan.make(config | {"sweeps": {"spread": entry | {"ranks": [2]}}}, machine("no GPU", 0)).write(folder / "plan.json")
    name = "spread/cpu-r2-1"
    mpi_output(2, "-m", "hpcmm.jobs.measure", "--results", folder, "--batch", name)
    return store.read(folder / "raw" / f"{name}.h5")


@pytest.mark.slow
def test_a_product_is_measured_beside_the_textbook_and_records_its_transport(mpiexec, tmp_path):
    phases = {"staged": {"kernel", "total"}, "resident": {"kernel"}, "summa": {"kernel"}}
    schedules = {"staged": {"1 x 1"}, "resident": {"1+1", "2"}, "summa": {"columns whole"}}
    entry = {"operation": "matmul", "variants": ["numpy"], "sizes": [30, 41], "algorithms": list(phases)}
    groups = measured(mpiexec, tmp_path, entry | {"dtypes": ["float32", "float64"]}, "mpi_rma")
    rows, samples = groups["measurements"], groups["samples"]
    assert rows["passed"].all()
    chosen, of = groups["visits"]["schedule"], rows["contender_algorithm"][groups["visits"]["measurement"]]
    assert set(chosen[of == "scatter"]) == {""}
    for algorithm, timed in phases.items():
        here = rows["algorithm"] == algorithm  # two sizes in two types
        assert rows["contender_algorithm"][here].tolist() == [algorithm, "scatter"] * 4
        assert rows["transport"][here].tolist() == ["mpi_rma", ""] * 4
        assert rows["baseline"][here].tolist() == [0, 1] * 4
        assert set(chosen[of == algorithm]) <= schedules[algorithm]
        assert np.bincount(samples["measurement"])[here].tolist() == [2 * 3] * 8
        own = np.isin(samples["measurement"], np.flatnonzero(rows["contender_algorithm"] == algorithm))
        assert {phase for phase in PHASES if not np.isnan(samples[phase][own]).all()} == timed
        assert set(samples["call"][np.isin(samples["measurement"], np.flatnonzero(here))]) == {int("total" in timed)}
    exchanges = analysis.runs(groups)[0]["exchanges"]
    assert exchanges["transport"] == "mpi_rma"
    assert len(exchanges["bytes"]) == len(exchanges["seconds"]) > 1


def test_a_reduction_is_combined_on_all_ranks(mpiexec, tmp_path):
    entry = {"operation": "maximum", "variants": ["serial"], "sizes": [1, 1000], "algorithms": ["all_reduce"]}
    rows = measured(mpiexec, tmp_path, entry, "auto")["measurements"]
    assert rows["passed"].all()
    assert set(rows["transport"][rows["contender_algorithm"] == "all_reduce"]) == {"mpi"}


# --- schedules ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", range(2, 20))
def test_exchange_partners_of_each_step_match(size):
    orders = [schedules.arriving(rank, size) for rank in range(size)]
    assert [order[0] for order in orders] == list(range(size))
    for sources in (*orders, *zip(*orders, strict=True)):  # in each step each rank is the source of one other
        assert sorted(sources) == list(range(size))


@pytest.mark.parametrize("size", range(1, 70))
def test_divisions_take_each_share_once_and_are_few(size):
    found = schedules.divisions(size)
    assert all(sum(lengths) == size and min(lengths) > 0 for lengths in found)
    assert len(set(found)) == len(found) <= size.bit_length() + 5
    assert {(size,), (1,) * size} <= set(found)


@pytest.mark.parametrize("size", [2, 4, 8, 16])
def test_between_cuts_at_powers_of_two_shares_lie_together(size):
    for rank in range(size):
        order = schedules.arriving(rank, size)
        for power in (1, 2, 4, 8):
            for part in (order[:power], order[power : 2 * power] or [0]):
                assert len(schedules.consecutive(part)) == 1


@pytest.mark.slow
def test_all_ranks_take_the_schedule_that_is_the_fastest_on_the_slowest(mpi_output):
    assert mpi_output(3, PROGRAM.parent / "choice.py", timeout=600).count(": right") == 4


@given(st.integers(1, 500), st.integers(1, 40))
def test_panels_of_a_grid_cover_the_sum_and_have_one_owner_each(terms, ranks):
    rows, columns = schedules.grid(ranks)
    assert rows * columns == ranks
    assert rows <= columns
    cut = schedules.panels(terms, rows, columns)
    assert [panel.first for panel in cut] == [0, *itertools.accumulate(panel.terms for panel in cut)][:-1]
    assert sum(panel.terms for panel in cut) == terms
    for panel in cut:
        for parts, owner in ((columns, panel.column), (rows, panel.row)):
            first, count = schedules.block_rows(terms, parts)[owner]
            assert first <= panel.first and panel.first + panel.terms <= first + count
    first = {}
    for place in itertools.product(range(rows), range(columns)):
        order = schedules.panels_of(cut, rows, columns, *place)
        assert sorted(order, key=lambda panel: panel.first) == cut
        first[place] = order[0].first
    if terms >= ranks:  # each rank of a row, and each of a column, begins elsewhere
        assert all(len({first[row, column] for column in range(columns)}) == columns for row in range(rows))
        assert all(len({first[row, column] for row in range(rows)}) == rows for column in range(columns))
    assert ranks > 1 or len(cut) == 1


def covers(cut: list[tuple[int, int]], length: int) -> bool:
    """Whether parts lie one after the other, none of them empty, from 0 to ``length``."""
    ends = list(itertools.accumulate(count for _, count in cut))
    return [first for first, _ in cut] == [0, *ends[:-1]] and ends[-1] == length and min(cut, key=itemgetter(1))[1] > 0


@given(st.integers(1, 10**6), st.integers(1, 20))
def test_panels_of_columns_cover_them(columns, most):
    cut = schedules.column_panels(columns, most)
    assert covers(cut, columns)
    assert len(cut) <= most
    assert len(cut) == 1 or columns >= len(cut) * 2048


@given(st.tuples(*[st.integers(1, 10**4)] * 2), st.tuples(*[st.integers(1, 16)] * 2), st.booleans())
def test_arrived_blocks_form_a_square_or_all_of_a_follows_the_first_of_b(shape, parts, a_first):
    order = schedules.growth(*shape, *parts, a_first)
    assert (order[0], order.count("A"), order.count("B")) == ("B", *parts)
    heights, widths = (np.linspace(0, length, count + 1) for length, count in zip(shape, parts, strict=True))
    for i, matrix in enumerate(order[1:], 1):
        a, b = (order[:i].count(each) for each in "AB")
        if matrix == "B" and a < parts[0]:  # B is, or will be, no wider there than A is high
            assert widths[b + a_first] <= heights[a] * (1 + 1e-9)


@given(st.integers(1, 10**5), st.integers(1, 10**5), st.integers(1, 20))
@example(16384, 16384, 2)
def test_each_tiling_has_every_tile_once_and_none_too_small(rows, columns, ranks):
    _, most = schedules.block_rows(rows, ranks)[0]
    found = schedules.tilings(rows, columns, ranks)
    assert len({repr(tiling) for tiling in found.values()}) == len(found) >= 1
    for name, (of_rows, of_columns, order) in found.items():
        assert covers(of_rows, most)
        assert covers(of_columns, columns)
        assert name.split(",")[0] == f"{len(of_rows)} x {len(of_columns)}"
        assert (order.count("A"), order.count("B"), order[0]) == (len(of_rows), len(of_columns), "B")
        assert len(found) == 1 or len(of_rows) * len(of_columns) * schedules.TILE <= most * columns


# --- memory ------------------------------------------------------------------------------------------------------


def checked(n: int, algorithm: str) -> tuple[str, bool]:
    point = Point("matmul", "numpy", (n, n, n), "float64", 1, algorithm=algorithm)
    return preflight.preflight(MPI.COMM_SELF, CpuBackend(threads=1), [point], algorithms_of(MATMUL))[point.key]


def test_a_point_too_large_for_memory_is_reported_with_both_sizes(monkeypatch):
    lacking, beside = checked(2**20, "resident")
    assert re.fullmatch(r"needs \S+ GiB of host \S+, but \S+ GiB are free; no algorithm would fit", lacking)
    assert not beside
    assert checked(64, "staged") == ("", True)
    bytes_of_summa = 8 * 64 * 64 * (4 + 4 + 1)
    monkeypatch.setattr(preflight, "host_free", lambda: bytes_of_summa / preflight.USABLE + 1)
    lacking, _ = checked(64, "staged")
    assert re.search("would fit: .*resident", lacking)
    assert checked(64, "resident") == ("", False)


# Elements of A (10 x 7), B (7 x 6) and C (10 x 6): shares of rank 0 have 4 rows of A and C and 3 of B, those of rank 2
# have 3 and 2. Rank 0 holds all three besides, and A a second time while they are drawn, and the result: 302.
@pytest.mark.parametrize(
    ("algorithm", "ranks", "rank", "device", "staging", "whole"),
    [
        ("scatter", 3, 0, 4 * 7 + 42 + 2 * 24, 0, 302),  # C's rows are kept as they were
        ("scatter", 3, 2, 3 * 7 + 42 + 2 * 18, 21 + 42 + 2 * 18, 0),  # C comes and goes
        ("staged", 3, 0, 4 * 7 + 42 + 24, 0, 302 + 70 + 42 + 60),  # all three once more, where the node shares them
        ("staged", 3, 2, 3 * 7 + 42 + 18, 0, 0),
        ("resident", 3, 0, 4 * 7 + 42 + 2 * 24, 4 * 7, 302),
        ("resident", 3, 2, 3 * 7 + 42 + 2 * 18, 3 * 7, 0),
        ("ring", 1, 0, 70 + 42 + 2 * 60, 70, 302),
        ("ring", 2, 1, 5 * 7 + 3 * 7 + 2 * 30 + 3 * 7, 5 * 7, 0),  # and a block of B that arrives
        ("ring", 4, 3, 2 * 7 + 1 * 7 + 2 * 12 + 2 * 2 * 7, 2 * 7, 0),  # two, as large as the largest
        ("cublasmp", 3, 2, 3 * 7 + 2 * 6 + 3 * 18 + 42, 3 * 7, 0),
        ("summa", 1, 0, 70 + 42 + 2 * 60, 70, 302),
        ("summa", 4, 0, 5 * 4 + 4 * 3 + 2 * 15 + 2 * 3 * (5 + 3), 5 * 4, 302),  # two panels of three terms
        ("summa", 4, 3, 5 * 3 + 3 * 3 + 2 * 15 + 2 * 3 * (5 + 3), 5 * 3, 0),
    ],
)
def test_memory_of_a_rank_for_a_product_counted_by_hand(algorithm, ranks, rank, device, staging, whole):
    assert ALGORITHMS[algorithm].need(MATMUL, (10, 6, 7), ranks, rank) == memory.Need(device, staging, whole)


def test_a_variant_that_divides_no_sum_has_the_form_with_whole_sums():
    packed, other = (task(MATMUL, (10, 6, 7), variant=variant) for variant in ("packed", "openmp"))
    for name, least in (("summa", (5 + 3) * 7), ("resident", 6 * 7), ("ring", 0)):
        algorithm = ALGORITHMS[name]
        needs = [preflight.rank_bytes(algorithm, each, 4, 3, False)[1] for each in (packed, other)]
        of_form = algorithm.of(packed.element, True).need(MATMUL, (10, 6, 7), 4, 3).device
        assert needs[0] - preflight.workspace_bytes(packed, 4, 3) == 4 * of_form
        assert needs[1] == 4 * algorithm.need(MATMUL, (10, 6, 7), 4, 3).device
        assert of_form >= least


def test_memory_of_a_rank_for_vectors_counted_by_hand():
    # ten elements on three ranks: four, three, three; a sum's result is one element, of vector_add a vector
    def need(algorithm: str, operation: str, n: int, rank: int) -> memory.Need:
        return ALGORITHMS[algorithm].need(OPERATIONS[operation], (n,), 3, rank)

    assert need("scatter", "sum", 10, 0) == memory.Need(4 + 1, 0, 10 + 10 + 1)
    assert need("scatter", "sum", 10, 2) == memory.Need(3 + 1, 3 + 1, 0)
    # an all-reduce cuts at whole tiles of a tree: four, three, three
    cut = schedules.CUT
    assert need("all_reduce", "sum", 10 * cut, 0) == memory.Need(4 * cut + 1, 0, 20 * cut + 1)
    assert need("all_reduce", "sum", 10 * cut, 2) == memory.Need(3 * cut + 1, 3 * cut + 1, 0)
    assert need("scatter", "vector_add", 10, 0) == memory.Need(3 * 4, 0, 30 + 10)
    assert need("scatter", "vector_add", 10, 1) == memory.Need(3 * 3, 3 * 3, 0)


def test_the_largest_need_counted_by_hand():
    # 64 GiB a matrix: the textbook's four ranks have a quarter of A and C, C twice, and all of B; rank 0 holds three
    # inputs, one of them twice, and the result, the others what they send and receive
    n, gib = 2**17, 2**30
    product = task(MATMUL, (n, n, n), "float32")
    need = preflight.largest_need(ALGORITHMS["scatter"], product, 4, False)
    assert need == ((5 * 64 + 3 * (3 * 16 + 64)) * gib, (3 * 16 + 64) * gib)
    alone = preflight.largest_need(ALGORITHMS["scatter"], product, 1, True)
    assert alone == ((5 + 4) * 64 * gib, 0)


def device_bytes(shape: tuple[int, int, int], dtype: str, variant: str, ranks: int = 1) -> int:
    product = task(MATMUL, shape, dtype, variant=variant)
    return preflight.largest_need(ALGORITHMS["scatter"], product, ranks, False)[1]


def test_the_workspace_of_a_kernel_counts_in_the_memory_of_its_device():
    n = 512  # A, B, C and C once more in float64, and 14 bytes for each of their elements; scales of 4 bytes
    shape = n, n, n
    assert device_bytes(shape, "float64", "ozaki_14") == (4 * 8 + 3 * 14) * n * n + 2 * 4 * n
    assert device_bytes(shape, "float64", "tensor_core") == 4 * 8 * n * n
    of_two = (5 * 8 // 2 + 2 * 14) * n * n + 4 * n + 2 * n  # half of A and C each
    assert device_bytes(shape, "float64", "ozaki_14", 2) == of_two


def test_the_transpose_and_the_workspace_that_the_library_needs_count_beside_the_copies_of_the_kernel():
    # Every operand is counted with 4 bytes per element, as C has. The kernel copies A, whose rows are no multiples of
    # 16 bytes, to rows of a multiple of 32 elements
    shape = m, n, k = 64, 512, 1000
    operands, library, workspace = 4 * (m * k + k * n + 2 * m * n), n * 1008, 32 * 2**20
    lt = operands + 2 * library + workspace + 4 * m * n
    assert device_bytes(shape, "int8", "cublas") == operands + library
    assert device_bytes(shape, "int8", "cublaslt") == lt
    assert device_bytes(shape, "int8", "int8_transposed") == operands + m * 1024 + library
    of_two = 4 * (m * k // 2 + k * n + m * n) + library  # each rank has all of B
    assert device_bytes(shape, "int8", "cublas", 2) == of_two
    assert device_bytes(shape, "float32", "cublas") == operands
    assert device_bytes(shape, "float8_e4m3", "cublas") == operands + library + workspace
    assert device_bytes(shape, "float8_e4m3", "cublaslt") == lt + workspace
    for dtype in ("int8", "float8_e4m3"):
        assert [each.name for each in algorithms_of(MATMUL) if each.takes_type(dtype)] == ["scatter"]


@pytest.mark.parametrize(
    ("device", "host", "lacking", "beside"),
    [
        (2.0, 1.0, "", True),
        (1.0, 1.0, "", False),  # the textbook's takes as much of the device once more
        (0.99, 2.0, r"needs 0.000122 GiB of GPU-1 on \S+, but 0.000127 GiB are free; would fit: staged", False),
        (2.0, 0.99, r"needs 0.000183 GiB of host \S+, but 0.000191 GiB are free; would fit: scatter", False),
    ],
)
def test_a_device_with_memory_of_its_own_is_held_against_it_and_against_the_hosts(
    monkeypatch, device, host, lacking, beside
):
    backend, n = CpuBackend(threads=1), 64
    # of the device A, B and C and C once more; of the host three inputs, one of them twice, the result and what
    # is on its way; a twentieth is left for others
    needs = {"device": 4 * n * n * 8 / 0.95 + 1, "host": (5 + 1) * n * n * 8 / 0.95 + 1}
    monkeypatch.setattr(CpuBackend, "in_host_memory", False)
    monkeypatch.setattr(CpuBackend, "uuid", "GPU-1", raising=False)
    monkeypatch.setattr(CpuBackend, "free_bytes", lambda self: device * needs["device"], raising=False)
    monkeypatch.setattr(preflight, "host_free", lambda: host * needs["host"])
    point = Point("matmul", "numpy", (n, n, n), "float64", 1, algorithm="resident")
    found = preflight.preflight(MPI.COMM_SELF, backend, [point], algorithms_of(MATMUL))[point.key]
    assert re.match(lacking or "$", found[0]) and found[1] is beside


def test_needs_on_a_host_add_up_and_the_smallest_free_memory_counts(monkeypatch):
    class Two:
        size, rank = 2, 0

        @staticmethod
        def allgather(places):
            return [places, [(name, free / 2, wanted) for name, free, wanted in places]]

    monkeypatch.setattr(preflight, "host_free", lambda: 3 * preflight.GIB)
    point = Point("sum", "numpy", (2**26,), "float64", 2)  # half a GiB, drawn and copied, and half of it on each
    backend, total = CpuBackend(threads=1), OPERATIONS["sum"]
    found, _ = preflight.preflight(Two(), backend, [point], algorithms_of(total))[point.key]
    assert re.match(r"needs 2.5 GiB of host \S+, but 1.5 GiB are free; no algorithm", found)


@pytest.mark.parametrize(("limits", "free"), [({"a": "1000"}, 600), ({"a/b": "700", "a": "max"}, 300), ({}, 2**50)])
def test_free_memory_of_the_host_is_limited_by_control_groups(tmp_path, monkeypatch, limits, free):
    for name in ("proc/self", "sys/fs/cgroup/a/b"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/a/b\n")
    for group, limit in limits.items():
        (tmp_path / "sys/fs/cgroup" / group / "memory.max").write_text(limit + "\n")
        (tmp_path / "sys/fs/cgroup" / group / "memory.current").write_text("400\n")
    monkeypatch.setattr(preflight.surroundings, "ROOT", tmp_path)
    monkeypatch.setattr(preflight.psutil, "virtual_memory", lambda: SimpleNamespace(available=2**50))
    assert preflight.host_free() == free


# --- analysis and cost model -------------------------------------------------------------------------------------


def test_an_algorithm_is_held_against_the_textbook_with_the_same_variant():
    point = timings.product("cublas", ranks=2, algorithm="ring")
    rows = timings.took(point, [[2.0, 4.0]] * 7), timings.took(point, [[3.0, 3.0]] * 7, algorithm="scatter")
    frame = timings.derived(*rows)
    (own,) = analysis.points(frame).to_dict("records")
    assert (own["label"], own["seconds"], own["ratio"]) == ("cublas ring", 4.0, 0.75)
    assert frame["label"].tolist() == ["cublas ring", "cublas"]


def test_a_line_is_found_again():
    line = cost.fit([1e3, 1e5, 1e7], [2e-5 + size * 3e-9 for size in (1e3, 1e5, 1e7)])
    assert line.latency == pytest.approx(2e-5)
    assert line.per_unit == pytest.approx(3e-9)
    assert line(0) == 0
    assert cost.fit([1, 3], [3.0, 7.0]) == cost.Line(1.0, 2.0)
    # no latency is negative: through zero, (1 + 2/3 + 3/5) / (1 + 4/9 + 9/25) has the least relative errors
    assert cost.fit([1, 2, 3], [1.0, 3.0, 5.0]) == cost.Line(0.0, pytest.approx(510 / 406))
    assert cost.fit([1, 2], [2.0, 1.0]) == cost.Line(0.0, pytest.approx(2.5 / 4.25))  # nor does more take less


lengths = st.integers(1, 20_000)


@given(shape=st.tuples(lengths, lengths, lengths), ranks=st.integers(1, 16))
@example(shape=(16384, 16384, 100), ranks=2)
def test_a_prediction_with_one_cost_equals_that_cost(shape, ranks):
    """Each element goes up, across, through the product and down once, however it is cut and overlapped."""
    m, n, k = shape
    rows, terms, columns = (-(-size // ranks) for size in (m, k, n))  # of the rank that has the most
    of_rows, of_columns = schedules.grid(ranks)
    part_rows, part_columns = -(-m // of_rows), -(-n // of_columns)
    product, from_others = 2 * rows * n * k, (ranks - 1) * 4 * terms * n
    free = cost.Line(0.0, 0.0)
    expected = {
        "staged": (product, from_others, 4 * (rows * k + terms * n + rows * n), 4 * rows * n),
        "resident": (product, from_others),
        "ring": (2 * rows * columns * k * ranks, (ranks - 1) * 4 * columns * k),
        # of A and of B, all but the smallest part that a rank of the first row has itself
        "summa": (
            2 * part_rows * part_columns * k,
            4 * ((k - k // of_columns) * part_rows + (k - -(-k // of_rows)) * part_columns),
        ),
    }
    for algorithm, amounts in expected.items():
        for busy, amount in [*enumerate(amounts), (None, None)]:
            local, exchange, up, down = (cost.Line(0.0, 1e-9) if busy in (i, None) else free for i in range(4))
            machine = cost.Machine(local, exchange, {"upload": up, "download": down})
            seconds = predict(algorithm, shape, ranks, machine)
            if busy is None:  # all of them: no sooner than the longest, no later than one after the other
                assert (1 - 1e-9) * max(amounts) <= seconds * 1e9 <= (1 + 1e-9) * sum(amounts)
            else:
                assert seconds == pytest.approx(amount * 1e-9), (algorithm, busy)


def predict(algorithm: str, shape: tuple[int, ...], ranks: int, machine: cost.Machine, itemsize: int = 4) -> float:
    return ALGORITHMS[algorithm].predict(MATMUL, shape, itemsize, ranks, machine)


def test_predictions_of_one_schedule_by_hand():
    # a rank multiplies 2 * 250 * 1000 * 250 flops of a share in 1.25 s and 0.5 s besides; a share arrives in 1 s
    machine = cost.Machine(cost.Line(0.5, 1e-8), cost.Line(0.0, 1e-6), {})
    shape = (1000, 1000, 1000)
    assert predict("ring", shape, 4, machine) == pytest.approx(4 * 1.75)
    # own share until 1.75 s, when one has arrived: with two more products the last of three ends soonest at
    # 1.75 + 1.75 (one) and, as three have arrived by 3 s, 3.5 + 3 = 6.5; waiting for all three ends at 3 + 4.25
    assert predict("resident", shape, 4, machine) == pytest.approx(6.5)
    assert math.isnan(predict("staged", shape, 4, machine))
    # too small for tiles: 250 * 1000 * 4 bytes of each matrix go up in 1 s, B's arrive from three in 3 s more
    link = cost.Line(0.0, 1e-6)
    linked = cost.Machine(machine.local, machine.exchange, {"upload": link, "download": link})
    assert predict("staged", shape, 4, linked) == pytest.approx(1 + 3 + 5.5 + 1)
    # rank 0 has both parts of its first 500 terms: 2 * 500 * 500 * 125 flops in 1.125 s and the others in 2.375 s;
    # then 125 terms are there, and the last 375 * 1000 * 4 bytes arrive in 1.5 s from when their buffer is free
    assert predict("summa", shape, 4, machine) == pytest.approx(1.125 + 2.375 + 1.5 + 2.375)
    for algorithm in ("resident", "ring", "summa"):  # nothing to exchange
        assert predict(algorithm, shape, 1, machine) == pytest.approx(0.5 + 20.0)


def test_an_all_reduce_costs_as_much_for_each_doubling_of_the_ranks():
    machine = cost.Machine(cost.Line(0.5, 1e-3), combine=combining(0.25, 2, "mpi"))
    # the longest part of 1001 elements has 501, 251 and 126
    expected = [0.5 + 1.001, 0.5 + 0.501 + 0.25, 0.5 + 0.251 + 0.5, 0.5 + 0.126 + 0.75]
    total, seconds = OPERATIONS["sum"], ALGORITHMS["all_reduce"].predict
    got = [seconds(total, (1001,), 4, ranks, machine) for ranks in (1, 2, 4, 8)]
    assert got == pytest.approx(expected)
    unknown = cost.Machine(cost.Line(0.5, 1e-3))
    assert math.isnan(seconds(total, (1001,), 4, 2, unknown))
    assert seconds(total, (1001,), 4, 1, unknown) == pytest.approx(expected[0])


def test_the_textbook_sends_each_other_rank_its_rows_and_all_of_b():
    moves = {phase: cost.Line(1.0, 1e-6) for phase in ("scatter", "broadcast", "gather")}
    machine, shape = cost.Machine(cost.Line(0.5, 1e-8), moves=moves), (10, 20, 50)
    # of ten rows rank 0 keeps four: the other six of A and C go away, B twice, and six of C come back
    away = {"scatter": 6 * (50 + 20) * 8, "broadcast": 2 * 50 * 20 * 8, "gather": 6 * 20 * 8}
    # to its device go four rows of A and C and all of B, and four of C come from there
    copied = {"upload": (4 * 50 + 50 * 20 + 4 * 20) * 8, "download": 4 * 20 * 8}
    assert {phase: cost.moved(phase, shape, 8, 3) for phase in away | copied} == away | copied
    expected = 3 * 1.0 + sum(away.values()) * 1e-6 + 0.5 + 2 * 4 * 20 * 50 * 1e-8
    assert predict("scatter", shape, 3, machine, 8) == pytest.approx(expected)
    assert predict("scatter", shape, 1, machine, 8) == pytest.approx(0.5 + 2 * 10 * 20 * 50 * 1e-8)
    assert math.isnan(predict("scatter", shape, 2, cost.Machine(cost.Line(0.5, 1e-8)), 8))
