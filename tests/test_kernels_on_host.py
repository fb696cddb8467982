"""The CUDA rungs where there is no GPU: run on the host behind ``cuda_on_host.h``.

A new rung is tested as soon as its file and record exist. One that the header cannot carry goes into
``on_host.yaml`` with the reason; it is then compiled only, as all others are too: see ``test_kernels_compiled.py``.
"""

import dataclasses
import functools
import itertools
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml
from checksums import splitmix64_sum

from hpcmm import kernels
from hpcmm.backends.emulated.launch import ORDERS, HostKernel, KernelError, on_device, poison
from hpcmm.grading import counts
from hpcmm.model import Task
from hpcmm.model.dtypes import DTYPES
from hpcmm.model.launch import Launch
from hpcmm.operations import OPERATIONS, tabled
from hpcmm.operations.reduction import Passes
from hpcmm.operations.truth import strassen_bound

RECORDS = yaml.safe_load(Path(__file__).with_name("on_host.yaml").read_text())


def by_name(records: str) -> dict[str, str]:
    """Return the records that list names, by name."""
    return {name: each for each, names in RECORDS[records].items() for name in names}


NOT_ON_HOST, FAULTY = by_name("not on the host"), by_name("faulty")
SPARE_BARRIERS = {(name, which) for name, which, _ in RECORDS["spare barriers"]}
# Without it a race is reported, but no order gives a wrong result: lanes meet before they multiply, and have stored by
# then.
RACES_ONLY = {("matmul/mma_tiled", 0)}
SMALLER = {"sum/invariant": ("LOADS = 8", "LOADS = 1")}  # batches, so that the longest vector of a test has two
ALL = os.environ.get("HPCMM_TEST_ALL") == "1"  # also what CI has no time for
REAL = ("float32", "float64")
MULTIPROCESSORS = 3  # few, so that blocks have more than one tile, and parts of some, however small these are

RUNGS = [(o, v) for o in OPERATIONS.values() for v in o.ladder if v.device == "cuda" and v.compiled]
RUNG_OF = {f"{operation.name}/{variant.name}": (operation, variant) for operation, variant in RUNGS}


class OneDmmaTile(tabled.Tabled):
    """The geometry of stream_k_dmma with its first tile; tiles are divided if they have few terms."""

    def chosen(self, task):
        divided = bool(task.shape) and task.shape[2] <= 3 * self.choices[0].depth
        return tabled.Tile(tuple({**dict(self.choices[0].numbers), "divided": int(divided)}.items()))


# A build has one tile, whatever the shape.
operation, variant = RUNG_OF["matmul/stream_k_dmma"]
RUNG_OF["matmul/stream_k_dmma"] = (
    operation,
    dataclasses.replace(variant, geometry=OneDmmaTile(variant.geometry.record, variant.geometry.choices)),
)


def path_of(name: str) -> Path:
    """The source of a rung, which several operations may share, or of a kernel that is none."""
    if name not in RUNG_OF:
        return kernels.FOLDER / f"{name}.cu"
    operation, variant = RUNG_OF[name]
    return kernels.source(operation, variant)


def source(name: str) -> str:
    return path_of(name).read_text()


def with_headers(name: str) -> str:
    """The source of a rung with the text of the headers of its operation in place of their includes."""

    def text_of(path: Path) -> str:
        include = r'^#include "(\w+/.+)"$'
        return re.sub(include, lambda found: text_of(kernels.FOLDER / found[1]), path.read_text(), flags=re.MULTILINE)

    return text_of(path_of(name))


def planted(is_tested: Callable[[str], bool]) -> list:
    """Return test parameters of the faults of some rungs: the name, the source with the fault, and the report."""
    texts = yaml.safe_load(Path(__file__).with_name("faults.yaml").read_text())
    return [
        pytest.param(name, *fault, marks=pytest.mark.slow, id=f"{name}-{i}")
        for name, faults in texts.items()
        if is_tested(name)
        for i, fault in enumerate(faults)
    ]


def with_fault(name: str, old: str, new: str) -> str:
    text = with_headers(name)
    assert text.count(old) == 1, f"{name}.cu or a header has changed: adapt faults.yaml"
    return text.replace(old, new)


# the first rungs with the instructions of 16-bit types that others have, too
WITH_INSTRUCTIONS = [f"matmul/{name}" for name in ("warp_mma", "wgmma_shared", "persistent", "few_rows_wgmma")]


def is_representative(name: str, dtype: str, tile: int | None, runs: bool) -> bool:
    """Whether a build is tested without HPCMM_TEST_ALL=1; on a GPU, ``test_kernels.py`` tests all.

    Operations that share a source take turns with its types. Another build is compiled for a GPU with the largest tile
    and the first type. It ``runs`` here with the smallest tile, which is no warp's width, and in double precision, in
    which a result of another one is wrong. A source with code of its own for ``double`` or for 16 bits is tested in
    all types, and compiled in one of those of 16 bits, so that rungs can be compared; in each of them where it is the
    first one with its instructions.
    """
    operation, variant = RUNG_OF[name]
    dtypes = operation.dtypes_of(variant)
    sharing = [other.name for other in OPERATIONS.values() if other.kernels == operation.kernels]
    if len(sharing) > 1:
        return dtype == dtypes[(sharing.index(operation.name) + 1) % len(dtypes)]
    narrow = [each for each in dtypes if DTYPES[each].accumulator]
    if not runs and dtype in narrow[:-1] + narrow[1:]:
        return dtype == narrow[-1] or name in WITH_INSTRUCTIONS
    own_code = name not in NOT_ON_HOST and (DTYPES[dtype].accumulator or re.search(r"\bdouble\b", with_headers(name)))
    is_usual = dtype == usual_type(name, runs)
    return tile in (None, *(variant.tiles[:1] if runs else variant.tiles[-1:])) and bool(is_usual or own_code)


def usual_type(name: str, runs: bool) -> str:
    dtypes = RUNG_OF[name][0].dtypes_of(RUNG_OF[name][1])
    return "float64" if runs and "float64" in dtypes else dtypes[0]


def some(values: Iterable, step: int = 4) -> list:
    """Each fourth of test parameters, or each of another step, named by its number."""
    return [pytest.param(value, id=str(i)) for i, value in enumerate(values) if ALL or i % step == 0]


def builds(runs: bool) -> list:
    """Names, types and tiles of the builds that are compiled for a GPU, or run on the host.

    The shelf of products, and matrix products in another type than the usual one, are slow tests.
    """
    return [
        pytest.param(
            *(name, dtype, tile),
            marks=pytest.mark.slow
            if variant.shelf == "product" or (operation.name == "matmul" and dtype != usual_type(name, runs))
            else (),
            id=f"{name}-{dtype}" + (f"-{tile}" if tile else ""),
        )
        for name, (operation, variant) in RUNG_OF.items()
        if not (runs and name in NOT_ON_HOST)
        for dtype in operation.dtypes_of(variant)
        for tile in variant.tiles or (None,)
        if ALL or is_representative(name, dtype, tile, runs)
    ]


BUILDS, HOST_BUILDS = builds(runs=False), builds(runs=True)

# m, n, k: single elements, thin ones, ragged in each dimension, whole tiles, several blocks each way
PRODUCTS = [
    (1, 1, 1), (17, 33, 1), (1, 17, 33), (33, 1, 17), (5, 3, 0), (8, 16, 32), (31, 32, 33), (33, 31, 32), (64, 64, 64),
    (32, 96, 64), (65, 7, 129), (9, 70, 40),
]  # fmt: skip
SCALARS = [(1.5, 0.5), (1.0, 0.0), (0.0, 2.0), (-0.75, -1.0)]  # alpha, beta; draw() makes C NaN for beta = 0


def defines(name: str, dtype: str | None, tile: int | None) -> tuple[str, ...]:
    """The constants that the CUDA backend compiles a rung with, as far as its source knows them."""
    if name not in RUNG_OF:
        return ()
    constants = task_of(name, dtype, tile).macros
    texts = [path.read_text() for path in (path_of(name), *kernels.headers(path_of(name)))]
    known = set(re.findall(r"\w+", " ".join(texts)))
    return tuple(f"-D{key}={value}" for key, value in constants.items() if key.partition("(")[0] in known)


def task_of(name: str, dtype: str, tile: int | None, shape: tuple[int, ...] = (), scalars=None) -> Task:
    operation, variant = RUNG_OF[name]
    return Task(operation, variant, shape, dtype, scalars or {}, tile or 0, MULTIPROCESSORS)


def widest_tile(name: str) -> int | None:
    return max(RUNG_OF[name][1].tiles, default=None)


@pytest.fixture(autouse=True)
def small_tiles_are_divided(monkeypatch):
    monkeypatch.setattr(tabled, "MIN_SAVED_STEPS", 0)
    monkeypatch.setattr(tabled, "MIN_STEPS", 1)


# ---- on the host ----


class WrongResult(KernelError):
    """A wrong result."""


def padded(content: np.ndarray) -> np.ndarray:
    """Copy of a matrix whose rows are padded, with NaN."""
    rows, columns = content.shape
    whole = on_device(np.full((rows, columns + 5), np.nan, content.dtype))
    whole[:, :columns] = content
    return whole[:, :columns]


UNIT_ROUNDOFF = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-53}


def check_matmul(product: Task, inputs, got) -> None:
    """Hold C to gamma_{k+2} (|alpha| |A| |B| + |beta| |C|) around a truth in a higher precision.

    Products of integers and in float8_e4m3 are exact. Extended precision, which is slow, is for float64 alone.
    """
    element, results, arithmetic, k = product.element, product.element.results, product.arithmetic, product.shape[2]
    higher = np.longdouble if product.dtype == "float64" else np.float64
    a, b = (element.numbers(inputs[name]).astype(higher) for name in "AB")
    alpha, beta = product.scalars["alpha"], product.scalars["beta"]
    started = beta * results.numbers(inputs["C"]).astype(higher) if beta else np.zeros(inputs["C"].shape)
    truth = alpha * (a @ b) + started
    exact = element.is_integer or product.dtype == "float8_e4m3"
    roundings = 0 if exact else (k + 2) * UNIT_ROUNDOFF[element.accumulator or product.dtype]
    of_inputs = (1 + arithmetic.input_roundoff) ** 2 - 1  # of two inputs that TF32 rounds
    magnitudes = abs(a.astype(np.float64)) @ abs(b.astype(np.float64))
    allowed = (roundings / (1 - roundings) + of_inputs) * (abs(alpha) * magnitudes + abs(started))
    if arithmetic.strassen:  # an error of Strassen's algorithm is relative to a whole row of A and column of B
        u = [UNIT_ROUNDOFF[each] for each in (element.accumulator or product.dtype, product.dtype)]
        largest = abs(a).max(axis=1)[:, None] * abs(b).max(axis=0)
        allowed = allowed + abs(alpha) * strassen_bound(k, arithmetic.strassen, *u) * largest
    if element.accumulator and not exact:  # rounded once more, perhaps to a subnormal number
        allowed = allowed + UNIT_ROUNDOFF.get(results.name, 0.0) * abs(truth) + 2.0**-25
    right = abs(results.numbers(got["C"]) - truth) <= allowed
    if not right.all():
        raise WrongResult(f"wrong result: {(~right).sum()} of {right.size}, first {np.argwhere(~right)[0]}")


def check_sum(reducing: Task, inputs, got) -> None:
    """Whole numbers have an exact sum, real ones one within the rounding bound."""
    x = inputs["x"]
    truth, allowed = math.fsum(x), 0.0
    if x.dtype != np.int32 and (x % 1).any():
        allowed = 1.01 * len(x) * UNIT_ROUNDOFF[reducing.dtype] * math.fsum(abs(x))
    if not abs(float(got["result"]) - truth) <= allowed:
        raise WrongResult(f"wrong result: {got['result']} instead of {truth}")


def check_extreme(reducing: Task, inputs, got) -> None:
    """The result of no elements is what any element beats."""
    extreme, sign = (min, 1) if reducing.operation.name == "minimum" else (max, -1)
    worst = sign * math.inf if reducing.dtype != "int32" else {1: 2**31 - 1, -1: -(2**31)}[sign]
    truth = extreme(inputs["x"].tolist(), default=worst)
    if not got["result"] == truth:
        raise WrongResult(f"wrong result: {got['result']} instead of {truth}")


def check_vector_add(adding: Task, inputs, got) -> None:
    """In long double, which holds each sum of these inputs closely enough for one rounding to be the right one."""
    truth = (inputs["x"].astype(np.longdouble) + inputs["y"]).astype(got["z"].dtype)
    wrong = np.flatnonzero(got["z"] != truth)
    if wrong.size:
        raise WrongResult(f"wrong result: {wrong.size} of {truth.size}, first {wrong[0]}")


def check_latency(chase: Task, inputs, got) -> None:
    """Follow the elements, which are a permutation."""
    assert np.array_equal(np.sort(inputs["x"]), 4 * np.arange(chase.shape[0]))
    at = 0
    for _ in range(chase.shape[1]):
        at = inputs["x"][at // 4]
    if got["result"] != at:
        raise WrongResult(f"wrong result: {got['result']} instead of {at}")


def check_bandwidth(reading: Task, inputs, got) -> None:
    total = sum(inputs["x"].tolist()) * reading.shape[1]
    if (int(got["result"]) - total) % 2**32:
        raise WrongResult(f"wrong result: {got['result']} instead of {total} modulo 2^32")


def check_copy(copying: Task, inputs, got) -> None:
    factor = inputs["x"].dtype.type(0.4 if copying.operation.name == "scale" else 1)
    wrong = np.flatnonzero(got["y"] != inputs["x"] * factor)
    if wrong.size:
        raise WrongResult(f"wrong result: {wrong.size} of {got['y'].size}, first {wrong[0]}")


CHECKS = {
    "matmul": check_matmul,
    "sum": check_sum,
    "minimum": check_extreme,
    "maximum": check_extreme,
    "vector_add": check_vector_add,
    "latency": check_latency,
    "bandwidth": check_bandwidth,
    "copy": check_copy,
    "scale": check_copy,
}


def cases(rung: Task) -> list[tuple[tuple[int, ...], dict[str, float]]]:
    """Shapes and parameters to try; lengths of a vector lie around the limits of a block, and of a sum's two passes."""
    operation, variant = rung.operation, rung.variant
    if operation.name == "matmul":
        scalars = itertools.cycle({"alpha": alpha, "beta": beta} for alpha, beta in SCALARS)
        products = list(zip(PRODUCTS, scalars, strict=False))
        constants = dataclasses.replace(rung, tile=0).macros
        if "ROWS" in constants:  # several blocks each way, however large they are
            rows, columns, depth = constants["ROWS"], constants["COLUMNS"], constants.get("DEPTH", 8)
            whole = (constants.get("STAGES", 1) + 1) * depth  # terms of more tiles than are under way at once
            shapes = [(rows + 12, 2 * columns + 5, 20), (2 * rows - 1, 2 * columns - 4, whole)]
            shapes += [(rows, columns, whole + 4), (rows, columns, 21), (rows, columns - 4, 20)]
            if "MAX_BLOCKS" in constants:  # one tile for all blocks, and a whole one each and parts of those left
                shapes += [(rows - 1, columns, 3 * depth - 3), (7 * rows, columns, 2 * depth)]
            large = [(shape, {"alpha": 1.5, "beta": 0.5}) for shape in shapes]
        if "BFLOAT16" in constants:  # one source for both types: a few of the large tiles for one, one for the other
            few = [*products[:1], *products[4:6], *products[7:8]]
            return (
                [*few, (shapes[0], products[0][1]), (shapes[2], products[1][1])] if constants["BFLOAT16"] else few[2:]
            )
        if "ROWS" in constants:  # fewer small products, because a product smaller than a tile takes as long as a tile
            return [*(products[i] for i in (1, 3, 4, 7, 9, 10, 11)), *large]
        return products
    if operation.dimensions == ("n", "k"):
        shapes = [(1, 1), (5, 0), (8, 3), (7, 9), (31, 33), (32, 64), (97, 41), (20484, 11)]
        return [(shape, {"k": shape[1]}) for shape in shapes if shape[0] <= (variant.capacity or shape[0])]
    threads = int(np.prod(rung.geometry.block))
    block = threads * rung.geometry.per_thread
    lengths = [0, 1, 2, 33, block - 1, block, block + 1, 3 * block + 5]
    if operation.kernels == "reduction":
        lengths += [threads * block, threads * block + 1]
    return [((length,), operation.scalars) for length in lengths]


def run(kernel: HostKernel, task: Task, order: str, checked: bool = True, starts=()) -> None:
    """Run all launches of a rung at one shape and check what comes out.

    ``starts`` moves the first elements of the operands by so many from where the allocator puts them.
    """
    inputs = task.operation.draw(np.random.default_rng([*task.shape, ORDERS.index(order)]), task)
    arrays = launched(kernel, task, inputs, order, checked, starts)
    CHECKS[task.operation.name](task, inputs, arrays)


def launched(kernel: HostKernel, task: Task, inputs, order: str, checked: bool = True, starts=()) -> dict:
    """Run all launches of a rung on copies of ``inputs``, and return all its arrays."""
    operation, dtype = task.operation, task.dtype
    arrays = {key: (padded if task.variant.pitched else on_device)(array) for key, array in inputs.items()}
    lengths = dict(zip(operation.dimensions, task.shape, strict=True))
    for operand in operation.operands:
        if operand.role == "out":
            arrays[operand.name] = poison(tuple(lengths[d] for d in operand.dimensions), dtype)
    for operand, start in zip(operation.operands, starts, strict=False):
        array = arrays[operand.name]
        arrays[operand.name] = on_device(np.concatenate([np.zeros(start, dtype), array]))[start:]
    for key, needed in task.geometry.workspace(task).items():
        arrays[key] = poison(needed.shape, needed.dtype)
    for symbol, operand in task.geometry.in_constant_memory(task).items():
        kernel.fill(symbol, arrays[operand])
    for launch in task.geometry.launches(task, arrays):
        kernel(launch, order, checked, launch.shared_bytes)
    return arrays


def compiled(build, rung: Task, text: str = "") -> HostKernel:
    """Compile a rung, or a text in its place, for the host."""
    name = f"{rung.operation.name}/{rung.variant.name}"
    return build(text or source(name), rung.operation.kernels, defines(name, rung.dtype, rung.tile))


def complaints(build, rung: Task, *, text="", checked=True, every_order=False, step=1) -> Iterator[str]:
    """Reports about a rung, or about a text in its place, for each shape, in one of the orders or in all.

    A misuse of memory or of a barrier is reported in any order.
    """
    variant, tile, kernel = rung.variant, rung.tile, compiled(build, rung, text)
    faulty = FAULTY.get(f"{rung.operation.name}/{variant.name}", "no report")
    tried = cases(rung)[::step]
    turns = zip(tried, itertools.cycle(ORDERS), strict=False)
    if every_order:  # those first that find most
        turns = itertools.product(tried[::-1], ORDERS[::-1])
    for (shape, parameters), order in turns:
        try:
            run(kernel, dataclasses.replace(rung, shape=shape, scalars=parameters), order, checked)
        except WrongResult as error:
            if variant.exact and any(size % tile for size in shape):
                continue  # as its record says; but it stays within bounds
            yield f"{shape}, {parameters}, {order} order: {error}"
        except KernelError as error:
            if faulty in str(error) and any(size % tile for size in shape):
                continue
            yield f"{shape}, {parameters}, {error}"


@pytest.mark.parametrize(("name", "dtype", "tile"), HOST_BUILDS)
def test_a_rung_is_right_and_stays_in_bounds(build, name, dtype, tile):
    """At every shape in the usual type; another type has the same indices, and every other shape."""
    step = 1 if dtype == usual_type(name, True) else 2
    assert list(complaints(build, task_of(name, dtype, tile), step=step)) == []


@pytest.mark.parametrize("name", FAULTY)
def test_the_faults_of_a_lesson_are_reported(build, monkeypatch, name):
    said = FAULTY[name]
    monkeypatch.delitem(FAULTY, name)
    found = list(complaints(build, task_of(name, "float32", 16)))
    assert any(said in complaint for complaint in found)
    assert not any(complaint.startswith(("(64, 64, 64)", "(32, 96, 64)")) for complaint in found)


def test_elements_outside_the_matrices_change_no_result_of_kernel11(build):
    """It loads them: as 003 prints it, it is right wherever the memory behind A and B is readable."""
    rung = task_of("matmul/tiled_unclamped", "float64", 8)
    kernel = compiled(build, rung)
    for shape, parameters in cases(rung):
        product = dataclasses.replace(rung, shape=shape, scalars=parameters)
        inputs = rung.operation.draw(np.random.default_rng(shape), product)
        behind = {key: np.full((rung.variant.guard_rows, inputs[key].shape[1]), 1e30) for key in "AB"}
        guarded = inputs | {key: np.concatenate([inputs[key], rows]) for key, rows in behind.items()}
        arrays = launched(kernel, product, guarded, "random")
        check_matmul(product, inputs, arrays)


# ---- the idea of a lesson ----

CHANGED = by_name("differs in")
PAIRS = {
    name: f"{operation.name}/{variant.counterpart}"
    for name, (operation, variant) in RUNG_OF.items()
    if variant.shelf == "lesson" and variant.counterpart and operation.name in ("matmul", "sum", "vector_add")
}
PAIRS = {name: before for name, before in PAIRS.items() if name not in NOT_ON_HOST and name != "matmul/pitched"}


@pytest.mark.parametrize("name", PAIRS)
def test_a_lesson_differs_from_its_counterpart_in_its_idea_only(build, name):
    """In what the emulation counts; ``pitched`` is the source of its counterpart."""
    counterpart = PAIRS[name]
    tile = max({*RUNG_OF[name][1].tiles} & {*RUNG_OF[counterpart][1].tiles}, default=None)
    after, before = (numbers_of(build, each, tile or widest_tile(each)) for each in (name, counterpart))
    different = " ".join(key for key in after if after[key] != before[key])
    assert (different or "nothing") == CHANGED[name], (before, after)


@functools.cache  # a counterpart has several lessons
def numbers_of(build, name: str, tile: int | None) -> dict[str, int]:
    """Return the counts of a rung in the emulation; sectors and conflicts beyond the minimum for its bytes."""
    shape = (128, 128, 32) if name.startswith("matmul") else (4096,)
    task = task_of(name, "float32", tile, shape, RUNG_OF[name][0].scalars)
    kernel = compiled(build, task)
    inputs = task.operation.draw(np.random.default_rng(1), task)
    kernel.counted = True
    try:
        launched(kernel, task, inputs, "random")
        found = counts.read(kernel.counts(), 1)
    finally:
        kernel.counted = False
    numbers = dict.fromkeys(("loads", "stores", "sectors", "shared", "conflicts"), 0) | {"barriers": found.barriers}
    for each in found.accesses:
        if each.shared:
            numbers["shared"] += each.warps
            numbers["conflicts"] += each.parts - each.least
        else:
            numbers["loads" if each.kind == counts.READ else "stores"] += each.lanes
            numbers["sectors"] += each.parts - each.least
    return numbers


def undivided(geometry: tabled.Tabled) -> list[tabled.Tile]:
    """The tiles of a geometry in one part each."""
    return [tile for tile in geometry.choices if tile.parts == 1]


SKINNY = RUNG_OF["matmul/skinny"][1]
SKINNY_TILES = [
    pytest.param(dtype, *each.values, id=f"{dtype}-{each.id}")
    for dtype in SKINNY.geometry
    for each in some(undivided(SKINNY.geometry[dtype]))
]


DMMA_TILES = [  # of one slice, or with slices of one warp
    tile
    for tile in undivided(RUNG_OF["matmul/split_k_dmma"][1].geometry)
    if 1 in (tile.slices, tile.block // (32 * tile.slices))
]


def rounded_to_tf32(x: np.ndarray) -> np.ndarray:
    """Return the nearest numbers of 11 bits."""
    fraction, exponent = np.frexp(x.astype(np.float64))
    return np.ldexp(np.trunc(fraction * 2**11 + np.copysign(0.5, fraction)), exponent - 11)


def multiplied(build, task: Task, order: str, text: str, macros=None, pads=(0, 0, 0)) -> dict:
    """Run a product on the host, hold C to the bound, and return all arrays.

    Rows of the operands are ``pads`` elements longer, which are NaN. Of a rung that rounds its inputs to TF32, the
    bound is that of the rounded ones.
    """
    inputs, arrays = task.operation.draw(np.random.default_rng(task.shape), task), {}
    for (name, x), pad in zip(inputs.items(), pads, strict=True):
        outside = task.element.poison
        arrays[name] = on_device(np.pad(x, ((0, 0), (0, pad)), constant_values=outside))[:, : x.shape[1]]
    arrays |= {name: poison(each.shape, each.dtype) for name, each in task.workspace.items()}
    constants = tuple(f"-D{key}={value}" for key, value in (macros or task.macros).items())
    for launch in task.geometry.launches(task, arrays):
        build(text, launch.function or "matmul", constants)(launch, order, True, launch.shared_bytes)
    if task.arithmetic.input_roundoff:
        inputs |= {name: rounded_to_tf32(inputs[name]) for name in "AB"}
    check_matmul(dataclasses.replace(task, variant=RUNG_OF["matmul/naive"][1]), inputs, arrays)
    return arrays


def in_orders(first: tuple, *others: tuple) -> list[tuple[tuple, str]]:
    """A point in every order, and others in one each: a misuse of memory or of a barrier is reported in any order."""
    return [*itertools.product([first], ORDERS), *zip(others, itertools.cycle(ORDERS), strict=False)]


def divided(geometry: tabled.Tabled) -> tabled.Tile:
    """The first tile of a geometry in eight parts."""
    return next(tile for tile in geometry.choices if tile.parts == 8)


SPLIT_K, SKINNY32 = RUNG_OF["matmul/split_k"][1].geometry, SKINNY.geometry["float32"]
SPLIT_TILES = [tile for tile in undivided(SPLIT_K) if tile.block <= 128] + undivided(SPLIT_K)[:1]
STREAM_K = RUNG_OF["matmul/stream_k_dmma"][1].geometry.choices
STREAM_FMA = [tile for tile in RUNG_OF["matmul/stream_k_fma"][1].geometry.choices if tile.slices == 1]
SPLIT_DMMA = undivided(RUNG_OF["matmul/split_k_dmma"][1].geometry)
# Whose threads copy a number of rows of A at once that does not divide its rows
UNEVEN = [tile for tile in SPLIT_DMMA if tile.rows % (2 * tile.block // tile.slices // tile.depth)]
SPLIT_RECORD = RUNG_OF["matmul/split_k_dmma"][1].geometry.record
# Of the smallest tile, in clusters of two blocks, as many as there may be
(GROUPED,) = tabled.tiles_of({**SPLIT_RECORD, "tiles": [[16, 32, 1, 16, 16, 16, 3, 8, 1, 4, 1, [2]]]})
TILES = [  # a rung, a type and one of its tiles
    *(("skinny", *each.values) for each in SKINNY_TILES),
    *(("split_k_dmma", "float64", each.values[0]) for each in [*some(DMMA_TILES), *some(UNEVEN)]),
    ("split_k_dmma", "float64", GROUPED),
    *(("split_k", "float32", tile) for tile in SPLIT_TILES),
    *(("split_k", "float32", divided(SPLIT_K)), ("skinny", "float32", divided(SKINNY32))),
    *(("stream_k_dmma", "float64", each.values[0]) for each in some(STREAM_K, 3)),
    *(("stream_k_fma", "float32", tile) for tile in STREAM_FMA[:2]),
]


def points_of(name: str, tile: tabled.Tile) -> list[tuple[tuple, str]]:
    """Shapes and orders: whole tiles, ragged ones, some without terms; rows that begin anywhere."""
    m, n, k = tile.rows, tile.columns, tile.depth
    if name in ("stream_k_dmma", "stream_k_fma"):
        return in_orders((m, n, 5 * k), (m - 1, n + 5, k + 7), (1, 2, 3), (m + 2, n + 6, 2 * k + 4), (m, n, 0))
    k *= tile.slices
    if tile.parts == 8:  # blocks of a cluster, which read and write each other's shared memory
        return in_orders((m + 1, n, 8 * k + 5))
    if name == "skinny":
        return in_orders((m, n, 4 * k), (m + 2, n + 5, k + 7), (max(1, m - 1), max(1, n - 2), 3), (m, n, 0))
    if tile is GROUPED:  # several clusters divide a tile, or one has it
        return in_orders((m + 1, n, 12 * k + 5), (m - 1, n + 3, 20 * k), (m, n, 3 * k), (m, n, 0))
    if name == "split_k_dmma":
        return in_orders((m, 2 * n, 2 * k), (m + 2, n + 5, k + 7), (m - 1, n + 3, k + 2), (1, 2, 3), (m, n, 0))
    shapes = [(m + 3, n + 5, 1), (m - 1, n - 2, k + 10), (m + 2, n + 4, k + 6), (m + 1, n + 4, 2 * k), (3, 2, 0)]
    return list(zip(shapes, itertools.cycle(ORDERS), strict=False))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "dtype", "tiles"),
    [pytest.param(name, dtype, tiles, id=f"{name}-{i}") for i, (name, dtype, *tiles) in enumerate(TILES)],
)
def test_a_tile_is_right_in_every_order_and_stays_in_bounds(build, name, dtype, tiles):
    operation, variant = RUNG_OF[f"matmul/{name}"]
    geometry = dataclasses.replace(variant.geometry_of(dtype), choices=tuple(tiles))
    variant = dataclasses.replace(variant, geometry=geometry)
    points, results = points_of(name, tiles[0]), set()
    for shape, order in points:
        scalars = {"alpha": 1.5, "beta": -0.0 if shape == points[-2][0] != points[0][0] else 0.5}
        task = Task(operation, variant, shape, dtype, scalars, 0, MULTIPROCESSORS)
        macros = dict(dataclasses.replace(task, shape=()).macros)
        if "A_WIDTH" in macros:  # of most shapes here; the others are copied by single elements
            macros |= {"A_WIDTH": 2, "B_WIDTH": 2}
        pads = 0, 0, shape[1] * shape[2] % 2  # of an odd number of columns of C, with aligned rows or without
        arrays = multiplied(build, task, order, source(f"matmul/{name}"), macros, pads)
        if shape == points[0][0]:
            results.add(arrays["C"].tobytes())
    assert len(results) == 1


@pytest.mark.parametrize(("name", "dtype", "tile"), [b for b in HOST_BUILDS if b.values[0].startswith("vector_add/")])
def test_vectors_may_start_anywhere(build, name, dtype, tile):
    rung = task_of(name, dtype, tile)
    kernel = compiled(build, rung)
    starts, orders = ((1, 1, 1), (3, 3, 3), (0, 0, 1), (0, 1, 0), (1, 0, 0), (1, 2, 3)), itertools.cycle(ORDERS)
    for first, (shape, parameters) in itertools.product(starts, cases(rung)):
        run(kernel, dataclasses.replace(rung, shape=shape, scalars=parameters), next(orders), starts=first)


FLAGGED = source("sum/flagged")


def check_launches_in_a_row(build, text: str, dtype: str) -> None:
    """Run a text in place of ``flagged`` for several lengths in a row, in every order, with few and small blocks.

    Some grids are smaller than the one before and leave results of it. The longest vector has several rounds in each
    thread and several results for each thread of the last block. Vectors do not all start at a multiple of 16 bytes.
    """
    operation, variant = RUNG_OF["sum/flagged"]
    variant = dataclasses.replace(variant, geometry=Passes(16, 70, block=64, one_launch=True))
    macros = Task(operation, variant, (), dtype).macros
    kernel = build(text, operation.kernels, tuple(f"-D{name}={value}" for name, value in macros.items()))
    rng = np.random.default_rng(1)
    lengths = (14_000, 1025, 150_001, 2048, 14_000, 0, 71_680, 150_001)
    for start, (order, n) in enumerate(itertools.product(ORDERS, lengths)):
        task = Task(operation, variant, (n,), dtype)
        inputs = operation.draw(rng, task)
        x = on_device(np.concatenate([np.zeros(start % 5, dtype), inputs["x"]]))[start % 5 :]
        arrays = {"x": x, "result": poison((), dtype)}
        for launch in variant.geometry.launches(task, arrays):
            kernel(launch, order)
        check_sum(task, inputs, arrays)


@pytest.mark.parametrize("dtype", ["int32", "float32", "float64"])
def test_launches_of_flagged_follow_each_other(build, dtype):
    check_launches_in_a_row(build, FLAGGED, dtype)


def results_in_all_orders(build, rung: Task, text: str = "") -> set[bytes]:
    """What a rung, or a text in its place, makes of real numbers: each other order of additions rounds differently."""
    kernel, operation, tile = compiled(build, rung, text), rung.operation, rung.tile
    shape, parameters = cases(rung)[-1]
    if rung.variant.exact or rung.variant.guard_rows:
        shape = (3 * tile, 2 * tile, 4 * tile)
    rung = dataclasses.replace(rung, shape=shape, scalars=parameters)
    rng = np.random.default_rng(shape)
    inputs = {
        key: rng.uniform(-1, 1, array.shape).astype(rung.dtype) for key, array in operation.draw(rng, rung).items()
    }
    return {launched(kernel, rung, inputs, order)[operation.output.name].tobytes() for order in ORDERS}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "dtype", "tile"),
    [each for each in HOST_BUILDS if each.values[0].startswith(("matmul/", "sum/")) and each.values[1] in REAL],
)
def test_a_deterministic_rung_gives_the_same_bits_in_every_order(build, name, dtype, tile):
    assert RUNG_OF[name][1].deterministic
    assert len(results_in_all_orders(build, task_of(name, dtype, tile))) == 1


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [  # in the order in which blocks finish, and that in which threads come
        ("sum/one_launch", "block_results[blockIdx.x] = value", "block_results[tickets] = value"),
        (
            "sum/sequential",
            "for (",
            "if (t > 0) atomicAdd(&values[0], values[t]); __syncthreads(); for (; false;) for (",
        ),
    ],
)
def test_additions_in_no_fixed_order_are_found(build, name, old, new):
    text = with_headers(name)
    assert text.count(old) == 1, f"{name}.cu has changed: adapt this list"
    text, rung = text.replace(old, new), task_of(name, "float32", None)
    assert not list(complaints(build, rung, text=text)), "whole numbers are summed exactly"
    assert len(results_in_all_orders(build, rung, text)) > 1


# ---- the header finds what it is there for ----

BARRIER = re.compile(r"(__sync(threads|warp)\(.*?\)|cp_async_wait_group<.*?>\(\));")


def places() -> Iterator[tuple[tuple[str, ...], str, int]]:
    """Yield each barrier of each rung with the lines around it, which other rungs may share."""
    for name in (each for each in reversed(RUNG_OF) if each not in NOT_ON_HOST):
        text = re.sub(r"^\s*(//|#pragma).*\n|^\s+", "", source(name), flags=re.MULTILINE)
        for i, barrier in enumerate(BARRIER.finditer(text)):
            if (name, i) not in SPARE_BARRIERS:
                before, after = text[: barrier.end()].splitlines()[-3:], text[barrier.end() :].splitlines()[1:3]
                yield (*before, *after), name, i


# of the rungs that share a place the first, and every third of them
BARRIERS = [
    pytest.param(name, i, id=f"{name}-{i}") for name, i in {place: where for place, *where in places()}.values()
][:: 1 if ALL else 3]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "which"), BARRIERS)
def test_removing_any_barrier_of_any_rung_is_found(build, name, which):
    """Take one barrier away: it is reported, and without those checks some order gives a wrong result."""
    text, tile = source(name).replace(*SMALLER.get(name, ("", ""))), widest_tile(name)
    barrier = list(BARRIER.finditer(text))[which]
    text = text[: barrier.start()] + ";" + text[barrier.end() :]
    reports = ("race in shared memory", "nothing has written")

    def said(**options) -> Iterator[str]:
        """Of all types, as one may be the only one that passes a barrier."""
        dtypes = RUNG_OF[name][0].dtypes_of(RUNG_OF[name][1])[::-1]
        return itertools.chain.from_iterable(
            complaints(build, task_of(name, each, tile), text=text, every_order=True, **options) for each in dtypes
        )

    assert any(report in each for each in said() for report in reports)
    # instead of a wrong result, a rung may use a wrong pointer or divide by zero
    wrong = ("wrong result", "misaligned pointer", "division by zero", "part of one")
    assert any(text in each for each in said(checked=False) for text in wrong) == ((name, which) not in RACES_ONLY)


@pytest.mark.parametrize(("name", "old", "new", "said"), planted(lambda name: name not in NOT_ON_HOST))
def test_a_fault_of_a_rung_is_found(build, name, old, new, said):
    text = with_fault(name, old, new)
    if name == "sum/flagged":
        with pytest.raises(KernelError, match=said):
            for dtype in ("float64", "float32"):
                check_launches_in_a_row(build, text, dtype)
        return
    operation, variant = RUNG_OF[name]
    dtype = "float32" if "float32" in operation.dtypes_of(variant) else "int32"
    rung = task_of(name, dtype, widest_tile(name))
    assert any(re.search(said, found) for found in complaints(build, rung, text=text))


def test_the_checksum_has_every_byte_once(build):
    for size, order in zip((0, 7, 8 * 3 * 64 + 5), ORDERS, strict=True):
        content = np.random.default_rng(size).integers(0, 256, size, np.uint8)
        found = np.zeros(1, np.uint64)
        launch = Launch((3,), (64,), (content, np.uint64(size), found))
        build(source("checksum"), "checksum")(launch, order)
        assert found[0] == splitmix64_sum(content)


def test_every_kernel_is_tested():
    """Each .cu file belongs to a rung or is listed in on_host.yaml, and every listed one exists."""
    files = {str(path.relative_to(kernels.FOLDER).with_suffix("")) for path in kernels.FOLDER.rglob("*.cu")}
    names = {*RUNG_OF, *NOT_ON_HOST}
    assert files == {str(path_of(name).relative_to(kernels.FOLDER).with_suffix("")) for name in names}
    assert names >= {name for name, _ in (*SPARE_BARRIERS, *RACES_ONLY)}
    assert CHECKS.keys() == {operation.name for operation, _ in RUNGS}


# ---- GPUs of other SM counts ----


PICKED = {  # shapes at which ``best`` picks another tile for 46 SMs than for 170
    "float64": (200, 100, 40),
    "bfloat16": (141, 298, 86),
}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", PICKED)
def test_what_best_picks_is_right_on_gpus_of_other_sm_counts(build, dtype):
    operation, best = OPERATIONS["matmul"], OPERATIONS["matmul"].variant("best")
    asked = Task(operation, best, PICKED[dtype], dtype, {"alpha": 1.5, "beta": 0.5})
    few, many = (dataclasses.replace(asked, multiprocessors=sms).picked for sms in (46, 170))
    assert (few.variant.name, few.macros) != (many.variant.name, many.macros)
    for task, order in zip((few, many), ORDERS, strict=False):
        multiplied(build, task, order, kernels.source(operation, task.variant).read_text())
