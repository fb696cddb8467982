"""Sums and products that have the same bits for any number of ranks, threads and blocks, and any m."""

import dataclasses
import json
import re
import shutil
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
import timings
from hypothesis import example, given
from hypothesis import strategies as st
from mpi4py import MPI
from tasks import machine, needs_gxx, tabled
from test_kernels_on_host import ALL, source
from timings import kernel_samples, measurement

from hpcmm import kernels, report, store
from hpcmm.backends.cpu.device import CpuBackend
from hpcmm.backends.cuda import presence
from hpcmm.backends.emulated.launch import ORDERS, on_device, poison
from hpcmm.bench.job import Process, measure_batch
from hpcmm.bench.journal import kept_in
from hpcmm.bench.same_bits import Difference, broken, compare_alone, difference, result_on, rounded, together
from hpcmm.experiment import plan
from hpcmm.model import Task
from hpcmm.model.dtypes import DTYPES
from hpcmm.model.measurement import Measuring, Point
from hpcmm.operations import OPERATIONS
from hpcmm.operations.heads import whole
from hpcmm.operations.reduction import identity
from hpcmm.parallel.all_reduce import of_tree
from hpcmm.parallel.schedules import CUT, block_tree, tree_nodes

MATMUL = OPERATIONS["matmul"]
SUM = OPERATIONS["sum"]
FLOATS = ("float32", "float64")


def numbers(n: int, dtype: str, seed: int = 1) -> np.ndarray:
    """Draw numbers of many magnitudes and both signs, denormal ones among them."""
    rng = np.random.default_rng(seed)
    if dtype.startswith("int"):
        return rng.integers(-(2**31), 2**31, n, dtype)
    x = rng.standard_normal(n).astype(dtype) * np.exp2(rng.integers(-20, 20, n)).astype(dtype)
    tiny = rng.random(n) < 0.1
    x[tiny] = rng.integers(-9, 9, tiny.sum()).astype(dtype) * np.finfo(dtype).smallest_subnormal
    return x


def tree(values: np.ndarray, neutral: np.generic, combine=np.add) -> np.generic:
    """Combine values as a binary tree by index, with the identity in place of missing ones."""
    whole = np.full(1 << max(len(values) - 1, 0).bit_length(), neutral, values.dtype)
    whole[: len(values)] = values
    while len(whole) > 1:
        whole = combine(whole[::2], whole[1::2])
    return whole[0]


def expected(x: np.ndarray) -> bytes:
    """The bits of the sum by the tree that ``invariant.cu`` describes."""
    leaf, neutral = 4096 // x.itemsize, identity("sum", str(x.dtype))
    values = []
    for start in range(0, len(x), leaf):
        rows = np.full(leaf, neutral, x.dtype)
        rows[: len(x[start : start + leaf])] = x[start : start + leaf]
        rows = rows.reshape(8, -1)
        while len(rows) > 1:
            rows = rows[::2] + rows[1::2]
        values.append(neutral + tree(rows[0], neutral))
    return tree(np.array(values, x.dtype), neutral).tobytes()


@pytest.mark.parametrize("dtype", [*FLOATS, "int32"])
@given(n=st.integers(0, 30_000), seed=st.integers(0, 99), threads=st.sampled_from((1, 2, 3, 7)))
@example(n=4 * 10**6 + 3, seed=1, threads=3)
@example(n=4 * 10**6 + 3, seed=1, threads=7)
def test_the_cpu_rung_sums_in_the_stated_order_with_any_number_of_threads(dtype, n, seed, threads):
    x = numbers(n, dtype, seed)
    arrays = {"x": x, "result": np.empty((), dtype)}
    CpuBackend(threads).prepare(Task(SUM, SUM.variant("tree"), x.shape, dtype), arrays)()
    assert arrays["result"].tobytes() == expected(x)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "block"), [("float32", 32), ("float64", 256), ("int32", 64)])
def test_the_gpu_rung_has_the_bits_of_the_stated_order_for_any_grid(build, dtype, block):
    variant = SUM.variant("invariant")
    for per_sm, sms in ((4, 1), (1, 3)):
        geometry = dataclasses.replace(variant.geometry_of(dtype), block=block, per_sm=per_sm)
        variant = dataclasses.replace(variant, geometry=geometry)
        for order, n in zip((*ORDERS, *ORDERS), (0, 1, 1024, 5000, 40_000, 300_001), strict=True):
            x = numbers(n, dtype)
            task = Task(SUM, variant, (n,), dtype, multiprocessors=sms)
            kernel = build(source("sum/invariant"), "reduction", tuple(f"-D{a}={b}" for a, b in task.macros.items()))
            arrays = {"x": on_device(x), "result": poison((), dtype)}
            for launch in geometry.launches(task, arrays):
                kernel(launch, order)
            assert arrays["result"].tobytes() == expected(x), (n, order)


def rung(name: str, dtype: str, shape, geometry=None, scalars=None) -> Task:
    variant = MATMUL.variant(name)
    variant = dataclasses.replace(variant, geometry=geometry or variant.geometry_of(dtype))
    tile = variant.tiles[-1] if variant.tiles else 0
    return Task(MATMUL, variant, shape, dtype, scalars or {"alpha": 1.5, "beta": 0.5}, tile, multiprocessors=2)


def product(build, task: Task, order: str = ORDERS[0], inputs=None) -> np.ndarray:
    """The product of a rung on the host; rows of A and C are the first of the same matrices for every m."""
    m, n, k = task.shape
    largest = dataclasses.replace(task, shape=(MOST_ROWS, n, k))
    drawn = inputs or MATMUL.draw(np.random.default_rng([n, k]), largest)
    arrays = {key: on_device(drawn[key][: each if key != "B" else k]) for key, each in (("A", m), ("B", k), ("C", m))}
    arrays |= {key: poison(each.shape, each.dtype) for key, each in task.workspace.items()}
    macros = tuple(f"-D{key}={value}" for key, value in task.macros.items() if key != "ACCUMULATOR")
    for launch in task.geometry.launches(task, arrays):
        kernel = build(whole(kernels.source(MATMUL, task.variant)), launch.function or "matmul", macros)
        kernel(launch, order, True, launch.shared_bytes)
    return arrays["C"]


MOST_ROWS = 200
UNDIVIDED = [
    pytest.param(name, choice, id=f"{name}-{i}")
    for name in ("undivided_dmma", "undivided_wgmma", "undivided_few_rows")
    for i, choice in enumerate(MATMUL.variant(name).geometry.choices)
    if ALL or i % 9 == 2
]
# the same sums in the same order: of another source where there is one
OF_BFLOAT16 = "persistent", tabled("persistent", [64, 2, 1], GROUP_ROWS=2)
COUNTERPARTS = dict.fromkeys(("undivided_wgmma", "undivided_few_rows"), OF_BFLOAT16)
COUNTERPARTS["undivided_dmma"] = "undivided_dmma", MATMUL.variant("undivided_dmma").geometry.builds()[0]


@pytest.fixture(scope="module")
def rows_of_counterpart(build):
    @cache
    def rows(name: str, dtype: str, n: int, k: int) -> np.ndarray:
        counterpart, geometry = COUNTERPARTS[name]
        return product(build, rung(counterpart, dtype, (MOST_ROWS, n, k), geometry))

    return rows


@pytest.mark.slow
@pytest.mark.parametrize(("name", "choice"), UNDIVIDED)
def test_rows_of_an_undivided_product_are_the_same_for_any_tile_and_m(build, rows_of_counterpart, name, choice):
    dtype = "float64" if name == "undivided_dmma" else "bfloat16"
    geometry = dataclasses.replace(MATMUL.variant(name).geometry, choices=(choice,))
    shapes = (3, 72, 136), (MOST_ROWS, 72, 136), (70, 33, 75)
    for (m, n, k), order in zip(shapes, ORDERS, strict=True):
        found = product(build, rung(name, dtype, (m, n, k), geometry), order)
        assert found.tobytes() == rows_of_counterpart(name, dtype, n, k)[:m].tobytes(), (m, n, k)


OF_FMA = MATMUL.variant("fixed_parts_fma").geometry.choices
FIXED_PARTS = [
    pytest.param(name, choice, id=f"{name}-{i}")
    for name, choices in (("fixed_parts_tile", [None]), ("fixed_parts_fma", OF_FMA))
    for i, choice in enumerate(choices)
    if ALL or i % 6 == 0
]


IN_PARTS = {"alpha": 1.0, "beta": 0.5}  # its products are exact


@pytest.fixture(scope="module")
def sums_of_parts(build):
    @cache
    def sums(n: int, k: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Inputs, and the sum of products of their parts that another source computes."""
        part = -(-k // 128) * 32
        whole_task = Task(MATMUL, MATMUL.variant("naive"), (MOST_ROWS, n, k), "float32", IN_PARTS, 16)
        drawn = MATMUL.draw(np.random.default_rng(k), whole_task)
        total = np.zeros((MOST_ROWS, n), np.float32)
        for first in range(0, k, part):
            terms = slice(first, min(first + part, k))
            parts = {"A": drawn["A"][:, terms].copy(), "B": drawn["B"][terms].copy(), "C": total}
            of_part = rung("naive", "float32", (MOST_ROWS, n, terms.stop - first), scalars=IN_PARTS | {"beta": 0.0})
            total = total + product(build, of_part, inputs=parts)
        return drawn, total + np.float32(0.5) * drawn["C"]

    return sums


@pytest.mark.slow
@pytest.mark.parametrize(("name", "choice"), FIXED_PARTS)
def test_rows_of_a_product_in_fixed_parts_are_sums_of_four_products(build, sums_of_parts, name, choice):
    """There are also shorter parts, and empty ones."""
    geometry = dataclasses.replace(MATMUL.variant(name).geometry, choices=(choice,)) if choice else None
    shapes = (3, 72, 136), (MOST_ROWS, 72, 136), (70, 33, 75), (70, 36, 515)
    for (m, n, k), order in zip(shapes, (*ORDERS, ORDERS[0]), strict=True):
        drawn, expected = sums_of_parts(n, k)
        found = product(build, rung(name, "float32", (m, n, k), geometry, IN_PARTS), order, drawn)
        assert found.tobytes() == expected[:m].tobytes(), (m, n, k)


@pytest.mark.slow
def test_a_division_of_k_that_depends_on_m_is_found(build):
    """As split_k divides them for few rows: the tests above would fail."""
    split = MATMUL.variant("split_k").geometry
    few = dataclasses.replace(split, choices=split.choices[:4])  # of one tile, in one part to four
    rows = product(build, rung("naive", "float32", (MOST_ROWS, 72, 136)))
    assert product(build, rung("split_k", "float32", (3, 72, 136), few)).tobytes() != rows[:3].tobytes()


@given(shape=st.tuples(*[st.integers(1, 9000)] * 3), rows=st.integers(1, 9000))
@pytest.mark.parametrize(("dtype", "parts"), [("float32", 4), ("float64", 1), ("float16", 1), ("bfloat16", 1)])
def test_all_picks_of_best_invariant_divide_k_alike(dtype, parts, shape, rows):
    for m in (shape[0], rows):
        best = MATMUL.variant("best_invariant")
        picked = Task(MATMUL, best, (m, *shape[1:]), dtype, {"beta": 0.5}, multiprocessors=132).picked
        assert picked.macros.get("PARTS", 1) == 1
        assert picked.macros.get("SLICES", parts) == parts


MPI_PROGRAM = Path(__file__).parent / "mpi_programs" / "same_bits.py"


@pytest.mark.slow
def test_a_sum_and_a_product_have_the_same_bits_on_any_number_of_ranks(mpi_output):
    assert "28 results on several ranks have the bits of one rank" in mpi_output(5, MPI_PROGRAM, "cpu", 0, "1,2,5")


def test_an_order_by_arrival_is_found(mpiexec):
    done = mpiexec(4, MPI_PROGRAM, "cpu", 0, "1,3,4", "arrival")
    assert done.returncode != 0
    assert "ranks: depends on the ranks" in done.stdout + done.stderr


@pytest.mark.gpu
def test_a_sum_and_a_product_have_the_same_bits_on_any_number_of_gpus_cuda(gpu, mpi_output):
    count = min(presence.count(), 4)
    share = int(count == 1)  # two ranks then share the GPU
    numbers = ",".join(map(str, range(1, count + share + 1)))
    printed = mpi_output(max(2, count), MPI_PROGRAM, "cuda", share, numbers, timeout=300)
    assert "results on several ranks have the bits of one rank" in printed


@given(length=st.integers(0, 3 * 10**7), ranks=st.integers(1, 64))
def test_the_nodes_of_all_ranks_make_the_tree_of_the_whole_vector(length, ranks):
    ranges, end = [], 0
    for first, count in block_tree(length, ranks):
        assert first == end or not count
        end = first + count if count else end
        nodes = tree_nodes(length, first, count)
        ranges += [((start, size), (start // CUT, (start + size) // CUT)) for start, size in nodes]
    assert end == length

    def combine(left, right):
        """Combine ranges of cuts: neighbours, of which the left one is aligned, and the right one is not longer."""
        if right is None:
            return left
        size = left[1] - left[0]
        assert left[1] == right[0] and left[0] % (2 * size) == 0 and right[1] - right[0] <= size
        return left[0], right[1]

    whole = of_tree(ranges, combine, None)
    assert whole is None if not length else whole[0] == 0 and whole[1] * CUT >= length


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int32"])
def test_a_difference_has_its_place_and_its_size_in_ulps(dtype):
    element = DTYPES[dtype]
    x = element.stored(np.array([[1, -2, 3], [0, 5, -6]], "f4" if element.ml_dtype else dtype))
    assert difference(x, x.copy(), element) == Difference()
    other = x.copy()
    bits = other.view(f"u{x.itemsize}")
    bits[1, 1] += 3
    bits[1, 2] += 5
    assert difference(other, x, element) == Difference(5.0, 4)
    assert difference(x, other, element) == Difference(5.0, 4)
    if not element.is_integer:
        across = x.copy().view(f"u{x.itemsize}")
        across[1, 0] = 1 << (8 * x.itemsize - 1)  # -0
        assert difference(across.view(x.dtype), x, element) == Difference(0.0, 3)
        across[1, 0] += 1  # the smallest negative number
        assert difference(across.view(x.dtype), x, element) == Difference(1.0, 3)


def test_a_broken_promise_is_reported():
    tree, found = SUM.variant("tree"), {"run": Difference(), "ranks": Difference(2.0, 0)}
    assert "bits depend on the ranks, against the record of tree" in broken(tree, "all_reduce", found, True)
    assert not broken(tree, "scatter", found, True), "MPI reduces the parts of the textbook's algorithm"
    assert not broken(SUM.variant("openmp"), "all_reduce", found, True), "it promises nothing of ranks"
    runs = {"run": Difference(1.0, 7)}
    assert "bits depend on the run" in broken(SUM.variant("openmp"), "scatter", runs, True)
    assert not broken(SUM.variant("numpy"), "scatter", runs, False)


@pytest.mark.slow
def test_a_kernel_of_a_user_that_divides_k_by_m_is_found(command, tmp_path):
    shutil.copy(Path(__file__).with_name("kernels") / "by_m.c", tmp_path)
    done = command("bench", "by_m.c", "--sizes", "70", "--bits", "--json", folder=tmp_path)
    found = {each["kernel"]: each for each in json.loads(done.stdout)["bits"]}
    assert found["by_m.c"]["first_run"] == -1
    assert found["by_m.c"]["first_rows"] >= 0
    assert found["by_m.c"]["ulps_rows"] >= 1


@needs_gxx
def test_the_bits_of_a_cuda_kernel_are_compared_on_the_host(command, tmp_path):
    shutil.copy(kernels.source(MATMUL, MATMUL.variant("naive")), tmp_path / "same.cu")
    done = command("bench", "same.cu", "--on-host", "--bits", "--shapes", "40x24x30", folder=tmp_path)
    assert done.returncode == 0
    assert re.search(r"same.cu +40 × 24 × 30 +float32 +8 +yes +yes", done.stdout)


def test_a_sweep_measures_what_the_bits_of_both_contenders_depend_on(tmp_path):
    config = {"sweeps": {"s": {"operation": "matmul", "variants": ["openmp"], "sizes": [40], "same_bits": True}}}
    batch = plan.make(config, machine("none")).batches[0]
    assert batch.same_bits
    point = Point("matmul", "openmp", (40, 40, 40), "float64", 1, MATMUL.scalars)
    batch = dataclasses.replace(batch, points=(point,), fingerprints=("f",), predicted=(1.0,))
    for same_bits in (True, False):
        limits = Measuring(1, 2, 2, 1.0, 0.05, "hot", 1, same_bits=same_bits)
        output = tmp_path / str(same_bits) / "out.h5"
        output.parent.mkdir()
        assert measure_batch(Process(MPI.COMM_SELF, "cpu", False), batch, limits, kept_in(output, {})) == []
        rows = store.read(output)["measurements"]
        assert len(rows["contender"]) == 2
        assert np.isfinite(rows["first_run"]).all() == np.isfinite(rows["ulps_rows"]).all() == same_bits
        assert np.isnan(rows["first_ranks"]).all(), "there is one rank"


@pytest.mark.usefixtures("drawn_here")
def test_the_report_answers_each_question_over_all_numbers_of_ranks(tmp_path):
    def row(variant: str, of_ranks: int, algorithm: str = "scatter", **found: tuple[float, int]):
        point = Point("matmul", variant, (512,) * 3, "float64", of_ranks, {}, algorithm)
        made = measurement(point, samples=kernel_samples([1e-3] * 7))
        ulps = {f"ulps_{question}": each for question, (each, _) in found.items()}
        first = {f"first_{question}": each for question, (_, each) in found.items()}
        return dataclasses.replace(made, differences=ulps | first)

    same = (0.0, -1)
    rows = [
        row("naive", 1, run=same, rows=same),
        row("naive", 2, run=same, ranks=same),
        row("naive", 4, run=same, ranks=same),
        row("naive", 2, "ring", run=same, ranks=same),
        row("naive", 4, "ring", run=same, ranks=(12.0, 7)),
        row("skinny", 1, run=(1.0, 3), rows=(2.5, 9)),
    ]
    path = timings.write(tmp_path / "timings.h5", {"size": rows})
    report.build(path, tmp_path / "results")
    text = (tmp_path / "results/tables/matmul.same_bits.md").read_text()
    rows = ([cell.strip() for cell in line.split("|")] for line in text.splitlines())
    lines = {cells[4].replace("\\", ""): cells for cells in rows if len(cells) > 5}
    assert lines["naive"][5:8] == ["yes", "yes", "yes (1, 2, 4 ranks)"]
    assert lines["naive ring"][5:8] == ["yes", "", "no (4 ranks: first at 7, up to 12 ulps)"]
    assert lines["skinny"][5:8] == ["no (first at 3, up to 1 ulps)", "no (first at 9, up to 2 ulps)", ""]
    page = timings.page_of(tmp_path / "results/report.html")
    assert "Same bits" in page and "Equal bits, ulps" in page


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", [0, 1, 4097, 3 * 10**6 + 7])
def test_cuda_sum_has_the_bits_of_the_cpu(gpu, dtype, n):
    task = Task(SUM, SUM.variant("invariant"), (n,), dtype, {}, multiprocessors=gpu.multiprocessors)
    found = together(compare_alone(task, rounded(task, {"x": np.empty(n, dtype)}, 1), partial(result_on, gpu)))
    assert set(found) == {"run", "device"} and all(each.first < 0 for each in found.values()), found


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16"])
@pytest.mark.parametrize("shape", [(300, 1000, 704), (150, 641, 333)], ids=str)
def test_cuda_rows_of_best_invariant_are_the_same_for_any_m(gpu, dtype, shape):
    best, scalars = MATMUL.variant("best_invariant"), {"alpha": 1.5, "beta": 0.5}
    task = Task(MATMUL, best, shape, dtype, scalars, multiprocessors=gpu.multiprocessors)
    inputs = MATMUL.draw(np.random.default_rng(1), task)
    found = together(compare_alone(task, inputs, partial(result_on, gpu)))
    assert all(each.first < 0 for each in found.values()), found
