"""Every variant of every ladder: its record, its source file, and its results against sums taken here."""

import dataclasses
import itertools
import json
import math
import re
import shutil
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tasks import task
from test_kernels_on_host import CHECKS, with_headers

from hpcmm import kernels
from hpcmm.backends import DeviceError
from hpcmm.backends.cpu import device as cpu_device
from hpcmm.backends.cpu.device import CpuBackend
from hpcmm.backends.cuda import presence
from hpcmm.kernels import modules
from hpcmm.model import Task, Variant
from hpcmm.model.capabilities import block_limits
from hpcmm.model.dtypes import DTYPES
from hpcmm.model.quantities import RESOURCES
from hpcmm.operations import OPERATIONS, heads, tabled
from hpcmm.operations.amx import Packed
from hpcmm.operations.matmul import MATMUL
from hpcmm.operations.memory import BANDWIDTH, COPY, LATENCY, SCALE
from hpcmm.operations.reduction import MAXIMUM, MINIMUM, SUM
from hpcmm.operations.vector_add import VECTOR_ADD
from hpcmm.report import hardware, page
from hpcmm.system import files

EVERY = [(operation, variant) for operation in OPERATIONS.values() for variant in operation.ladder]
RUNGS = [(operation, variant) for operation, variant in EVERY if not variant.library]
SOURCES = [(operation, variant) for operation, variant in RUNGS if variant.compiled]
SKINNY = MATMUL.variant("skinny")
REDUCTIONS = (SUM, MINIMUM, MAXIMUM)
GUARD = 8  # rows before and after each array that no kernel may read or write; keeps its alignment
UNTOUCHED = 12345

scalars = st.integers(-64, 64).map(lambda i: i / 16)  # the same number in float32 and float64
seeds = st.integers(0, 2**32 - 1)

# Ragged, thin, of one tile and of several; the first few are all that the profile "few" takes.
GPU_SHAPES = [
    (33, 17, 65), (1, 1, 1), (1, 130, 7), (130, 1, 64), (64, 64, 64), (31, 129, 1), (128, 33, 130), (5, 641, 9),
]  # fmt: skip
GPU_LENGTHS = [129, 1, 128 * 128 + 1, 0, 127, 128, 641, 128 * 128, 2**21 + 3]


def of_device(device: str, operation, *, tiles: bool = False) -> list:
    """Test parameters: each variant of an operation on a device, with each dtype, and each tile if asked for."""
    return [
        pytest.param(variant, dtype, *([tile] if tiles else []), id="-".join(map(str, (variant.name, dtype, tile))))
        for variant in operation.ladder
        if variant.device == device
        for dtype in operation.dtypes_of(variant)
        for tile in (tiles and variant.tiles) or [""]
    ]


def ident(value) -> str:
    return value.name


class Guarded:
    """An array between guard rows in a backend's memory; ``view`` is what a kernel gets."""

    def __init__(self, backend, content: np.ndarray, guard: float):
        self.backend, self.rows = backend, len(content)
        self.before = np.full((self.rows + 2 * GUARD, *content.shape[1:]), guard, content.dtype)
        self.before[GUARD : GUARD + self.rows] = content
        self.buffer = backend.empty(self.before.shape, str(content.dtype))
        backend.copy(self.before, self.buffer)
        self.view = self.buffer[GUARD : GUARD + self.rows]

    def after(self) -> np.ndarray:
        host = np.empty_like(self.before)
        self.backend.copy(self.buffer, host)
        return host

    def is_unchanged(self) -> bool:
        return self.after().tobytes() == self.before.tobytes()

    def content(self) -> np.ndarray:
        """What is in the array now, provided that the guard rows are as they were."""
        after, inside = self.after(), slice(GUARD, GUARD + self.rows)
        outside_before, outside_after = np.delete(self.before, inside, 0), np.delete(after, inside, 0)
        np.testing.assert_array_equal(outside_after, outside_before, "written outside the array")
        return after[inside]


def run_once(backend, run) -> None:
    """Run what a backend prepared, with the copies before and after it that it may need."""
    for part in (run.before, lambda: backend.seconds(run), run.after):
        if part:
            part()


def computed(backend, of: Task, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """The result of a task on copies of these arrays, which are all of its operands, in a backend's memory."""
    arrays = {name: backend.empty(array.shape, str(array.dtype)) for name, array in inputs.items()}
    for name, array in inputs.items():
        backend.copy(array, arrays[name])
    run_once(backend, backend.prepare(of, arrays))
    result = np.empty_like(inputs[of.operation.output.name])
    backend.copy(arrays[of.operation.output.name], result)
    return result


def check(backend, of: Task, inputs: dict[str, np.ndarray], starts=(0, 0, 0), pitch: int = 0) -> None:
    """Run a task, compare its result with the reference, and detect accesses outside its operands.

    Each operand is a view of a wider array, from the column in ``starts`` on. The rows of the array are a multiple of
    ``pitch`` elements long.
    """
    guarded, views, parts, results = {}, {}, {}, {}
    for operand, start in zip(of.operation.operands, starts, strict=False):
        name, shape, storage = operand.name, of.shape_of(operand), of.storage(operand)
        outside = UNTOUCHED
        if operand.role == "in" and of.operation in (MINIMUM, MAXIMUM):
            outside = 0
        elif operand.role == "in" and storage != np.int32:
            outside = of.element.poison
        end = start + (shape or (1,))[-1]
        whole = np.full((*shape[:-1], end + (-end % pitch if pitch else 0)), outside, storage)
        parts[name] = np.s_[..., start:end]
        whole[parts[name]] = inputs.get(name, 77)
        guarded[name] = Guarded(backend, whole, outside)
        view = guarded[name].view[parts[name]]
        views[name] = view if shape else view.reshape(())
    run = backend.prepare(of, views)
    for _ in range(1 if "C" in views else 2):  # the other operations may be repeated
        run_once(backend, run)
        for operand in of.operation.operands:
            if operand.role == "in":
                assert guarded[operand.name].is_unchanged()
                continue
            content = guarded[operand.name].content()
            results[operand.name] = content[parts[operand.name]].reshape(of.shape_of(operand)).copy()
            content[parts[operand.name]] = UNTOUCHED
            assert np.all(content == np.asarray(UNTOUCHED, content.dtype)), "written beside the rows"
        CHECKS[of.operation.name](of, inputs, results)


def drawn(of: Task, seed: int = 1) -> dict[str, np.ndarray]:
    return of.operation.draw(np.random.default_rng(seed), of)


def matmul(variant: Variant, dtype: str, shape, alpha: float = 1.5, beta: float = 0.5, tile: int = 0) -> Task:
    return task(MATMUL, shape, dtype, {"alpha": alpha, "beta": beta}, variant, tile)


def check_matmul(backend, product: Task, seed: int = 1, first: int = 0, pitch: int = 0) -> None:
    """Check a product of random matrices, of integers with whole alpha and beta, if the library takes its shape."""
    _, n, k = product.shape
    if product.element.is_integer:
        scalars = {name: math.trunc(value) for name, value in product.scalars.items()}
        product = dataclasses.replace(product, scalars=scalars)
    if product.variant.library and product.variant.device == "cuda":
        takes_n, takes_k = {"int8": (4, 4), "float8_e4m3": (4, 16)}.get(product.dtype, (1, 1))
        if n % takes_n or k % takes_k:  # cuBLASLt multiplies narrow elements only in rows of so many
            return
    check(backend, product, drawn(product, seed), (first,) * 3, pitch)


def check_reduction(backend, reducing: Task, whole: bool = True, seed: int = 1, extreme: int = 0) -> None:
    """Reduce random numbers, whole or real ones; the extreme that is sought is at index ``extreme``."""
    rng, (n,), dtype = np.random.default_rng(seed), reducing.shape, reducing.dtype
    x = (rng.integers(-9, 10, n) if whole or dtype == "int32" else rng.uniform(-1, 1, n)).astype(dtype)
    if reducing.operation is not SUM:
        sign = 1 if reducing.operation is MINIMUM else -1
        x = sign * (abs(x) + 11)  # on one side of zero
        x[extreme : extreme + 1] -= 10 * sign  # none, if there is no element
    check(backend, reducing, {"x": x})


@pytest.fixture(scope="module")
def cpu():
    return CpuBackend(threads=2)


# --- records and files -------------------------------------------------------------------------------------------


def test_every_source_file_has_a_record_of_its_name_and_every_record_a_source_file():
    """Operations may share a folder."""
    files = {path for path in kernels.FOLDER.glob("*/**/*") if path.suffix in (".c", ".cu")}
    assert files == {kernels.source(operation, variant) for operation, variant in SOURCES}


@pytest.mark.parametrize(("operation", "variant"), SOURCES, ids=ident)
def test_the_head_of_a_rung_is_valid(operation, variant):
    """Heads of this package are read without the checks of a user's head."""
    path = kernels.source(operation, variant)
    head, _ = heads.head_of(path.read_text(), path)
    assert head["operation"] == next(each.name for each in OPERATIONS.values() if each.kernels == operation.kernels)
    assert (head["change"], head["shelf"]) == (variant.change, variant.shelf)
    assert variant.counterpart in {"", *(each.name for each in operation.ladder)} - {variant.name}
    if variant.device == "cuda":
        launch = {*heads.NUMBERS, *heads.SWITCHES, "tiles", "grid", "constants"} & head.keys()
        geometry = variant.geometry_of(operation.dtypes_of(variant)[0])
        assert launch <= (heads.keys_of(operation.geometry) if type(geometry) is operation.geometry else set())


def test_lessons_are_short():
    """Without the comment that a source begins with."""
    lessons = [kernels.source(operation, variant) for operation, variant in SOURCES if variant.shelf == "lesson"]
    texts = {path: path.read_text() for path in lessons}
    assert [x for x, text in texts.items() if len(text[heads.end_of_comments(text) :].splitlines()) > 120] == []


def test_ptx_is_in_one_header_under_the_names_of_its_isa():
    rungs = [path.name for path in kernels.FOLDER.glob("*/*/*.cu") if re.search(r"\basm\b", path.read_text())]
    assert rungs == []
    wrapped = {}  # overloads of a function wrap the same instruction
    for function in (kernels.FOLDER / "ptx.cuh").read_text().split("__device__ ")[1:]:
        name = re.search(r"(\w+)\(", function)[1]
        for instruction in (instructions := re.findall(r'asm[^"]*"(?:\{.*"[\s\\]*")?([a-zA-Z.:_0-9]+)', function)):
            parts = iter(re.split("[._:]+", instruction))
            assert all(part in parts for part in name.split("_")), f"{name} wraps {instruction}"
        assert instructions and all(wrapped.setdefault(each, name) == name for each in instructions)
    assert {"cp.async.commit_group", "wgmma.fence.sync.aligned", "fence.proxy.async.shared::cta"} < wrapped.keys()


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=ident)
def test_names_are_unique_and_each_device_has_one_baseline(operation):
    names = [variant.name for variant in operation.ladder]
    assert len(set(names)) == len(names)
    baselines = [variant.device for variant in operation.ladder if variant.baseline]
    assert sorted(baselines) == ([] if operation.dimensions == ("n", "k") else ["cpu", "cuda"])


def test_a_function_or_structure_that_several_rungs_have_is_the_same_in_all():
    head = r"(?:template <[^>]*> )?__device__ (?P<function>.*?)\n|struct alignas[^{;]*?(?P<structure>\w+)\s"
    definition = re.compile(rf"^(?:{head})\{{\n.*?^\}};?$", re.MULTILINE | re.DOTALL)
    texts = defaultdict(list)
    for path in kernels.FOLDER.glob("*/*/*.cu"):
        for found in definition.finditer(path.read_text()):
            texts[path.parents[1].name, found["function"] or found["structure"]].append(found[0])
    assert all(len(texts["matmul", name]) > 1 for name in ("Pair", "Vector"))
    assert [name for name, versions in texts.items() if len(set(versions)) > 1] == []


@pytest.mark.parametrize(("operation", "variant"), SOURCES, ids=ident)
def test_a_cuda_rung_knows_its_launch_geometry(operation, variant):
    if variant.device == "cuda":
        for dtype, tile in itertools.product(operation.dtypes_of(variant), variant.tiles or [0]):
            launched = task(operation, (64,) * len(operation.dimensions), dtype, variant=variant, tile=tile)
            arrays = {each.name: np.empty((64, 64), DTYPES[dtype].storage) for each in operation.operands}
            arrays |= {name: each.placeholder for name, each in launched.geometry.workspace(launched).items()}
            if launched.arithmetic.strassen:
                continue  # its products are launches of another rung
            launches = launched.geometry.launches(launched, arrays)
            launch = next(launch for launch in launches if not launch.function)
            assert 32 <= math.prod(launch.block) <= 1024
            assert math.prod(launch.block) == (launched.macros.get("BLOCK") or tile**2 or launched.geometry.block)
    else:
        assert not variant.tiles and (variant.geometry is None or isinstance(variant.geometry, Packed))


def test_a_kernel_whose_launch_may_overlap_the_one_before_it_waits():
    found = set()
    for variant in (each for each in MATMUL.ladder if each.device == "cuda" and each.geometry and not each.tiles):
        launched = task(MATMUL, (70, 66, 130), MATMUL.dtypes_of(variant)[0], variant=variant)
        arrays = {each.name: np.empty(launched.shape_of(each), launched.storage(each)) for each in MATMUL.operands}
        arrays |= {name: each.placeholder for name, each in launched.workspace.items()}
        for launch in [] if launched.arithmetic.strassen else launched.geometry.launches(launched, arrays):
            if launch.overlaps:
                found.add(variant.name)
                source = kernels.source(MATMUL, variant)
                texts = [path.read_text() for path in (source, *kernels.headers(source)) if path.name != "ptx.cuh"]
                for call in ("griddepcontrol_launch_dependents();", "griddepcontrol_wait();"):
                    assert any(call in text for text in texts), (variant.name, call)
    assert {"split_k_wgmma", "int8_transposed"} <= found


# --- results on the CPU ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("variant", "dtype"), of_device("cpu", MATMUL))
def test_cpu_matmul(cpu, variant, dtype):
    if why := MATMUL.why_not_run_on(cpu, variant, dtype):
        pytest.skip(why)

    @given(
        shape=st.tuples(*[st.integers(0, 70)] * 3),
        alpha=scalars,
        beta=st.just(0.0) | scalars,
        seed=seeds,
        layout=st.sampled_from(((0, 0), (3, 1), (0, 5))),
    )
    @example(shape=(5, 7, 3), alpha=1.5, beta=0.0, seed=0, layout=(3, 1))
    @example(shape=(1, 70, 70), alpha=1.5, beta=0.5, seed=0, layout=(0, 0))
    @example(shape=(3, 4, 0), alpha=1.5, beta=0.5, seed=0, layout=(0, 0))
    @example(shape=(0, 4, 5), alpha=1.5, beta=0.0, seed=0, layout=(0, 0))
    def of_any(shape, alpha, beta, seed, layout):
        check_matmul(cpu, matmul(variant, dtype, shape, alpha, beta), seed, *layout)

    of_any()


@pytest.mark.parametrize(("variant", "dtype"), of_device("cpu", SUM))
@given(n=st.integers(0, 5000), seed=seeds, extreme=st.integers(0, 4999))
@example(n=0, seed=0, extreme=0)
@example(n=1, seed=0, extreme=0)
@example(n=4999, seed=0, extreme=0)
@example(n=4999, seed=0, extreme=4998)
def test_cpu_reduction(cpu, variant, dtype, n, seed, extreme):
    for operation, whole in ((SUM, True), (SUM, False), (MINIMUM, False), (MAXIMUM, False)):
        check_reduction(cpu, task(operation, (n,), dtype, variant=variant), whole, seed, extreme % max(n, 1))


VECTORS = (VECTOR_ADD, COPY, SCALE, LATENCY, BANDWIDTH)


def of_vectors(device: str) -> list:
    """Test parameters: each variant of the other operations on a device, with each dtype."""
    return [
        pytest.param(each, *param.values[:2], id=f"{each.name}-{param.id}")
        for each in VECTORS
        for param in of_device(device, each)
    ]


@pytest.mark.parametrize(("operation", "variant", "dtype"), of_vectors("cpu"))
@given(data=st.data())
def test_cpu_vectors(cpu, operation, variant, dtype, data):
    shape, starts = (data.draw(st.integers(0, 5000)),), data.draw(st.tuples(*[st.integers(0, 3)] * 3))
    if operation in (LATENCY, BANDWIDTH):
        shape, starts = (shape[0] + 1, data.draw(st.integers(0, 3000 if operation is LATENCY else 9))), (0, 0)
    of = task(operation, shape, dtype, variant=variant)
    check(cpu, of, drawn(of, data.draw(seeds)), starts)


@pytest.fixture(autouse=True)
def suited(request):
    """Skip what the GPU cannot run."""
    if {"gpu", "variant"} <= set(request.fixturenames):
        variant, gpu = request.getfixturevalue("variant"), request.getfixturevalue("gpu")
        reason = variant.why_not_run(gpu.capability)
        if "dtype" in request.fixturenames:
            reason = MATMUL.why_not_run_on(gpu, variant, request.getfixturevalue("dtype"))
        if reason:
            pytest.skip(reason)


# --- results on the GPU ------------------------------------------------------------------------------------------


def some(values: list) -> list:
    return values[: settings.default.max_examples]


@pytest.mark.gpu
@pytest.mark.parametrize(("variant", "dtype", "tile"), of_device("cuda", MATMUL, tiles=True))
def test_cuda_matmul(gpu, variant, dtype, tile):
    for shape, (alpha, beta) in itertools.product(some(GPU_SHAPES), ((1.5, 0.5), (-2.0, 0.0))):
        if variant.exact:
            shape = tuple(-(-size // tile) * tile for size in shape)
        check_matmul(gpu, matmul(variant, dtype, shape, alpha, beta, tile or 0))


@pytest.mark.gpu
@pytest.mark.parametrize(("variant", "dtype"), of_device("cuda", SUM))
def test_cuda_reduction(gpu, variant, dtype):
    for n in some(GPU_LENGTHS):
        for whole in (True, False) if 0 < n < 20_000 else (True,):
            check_reduction(gpu, task(SUM, (n,), dtype, variant=variant), whole)
        for operation, extreme in itertools.product((MINIMUM, MAXIMUM), sorted({0, n // 2, max(n - 1, 0)})):
            check_reduction(gpu, task(operation, (n,), dtype, variant=variant), False, extreme=extreme)


@pytest.mark.gpu
@pytest.mark.parametrize(("variant", "dtype"), of_device("cuda", SUM))
def test_cuda_sums_of_several_lengths_follow_each_other(gpu, variant, dtype):
    """A launch takes no result of one before it, with another number of blocks; the host does not wait between them."""
    lengths = (3_000_001, 40_000, 1_000_000, 5, 3_000_001, 300_000)
    content = np.random.default_rng(1).integers(-9, 10, max(lengths)).astype(dtype)
    x, results = gpu.empty(content.shape, dtype), gpu.empty((20, len(lengths)), dtype)
    gpu.copy(content, x)
    runs = [
        gpu.prepare(task(SUM, (n,), dtype, variant=variant), {"x": x[:n], "result": row[i]})
        for row in results
        for i, n in enumerate(lengths)
    ]
    for run in runs:
        run()
    gpu.synchronize()
    found = np.empty(results.shape, dtype)
    gpu.copy(results, found)
    assert (found == [content[:n].sum(dtype=np.int64) for n in lengths]).all()


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", SUM.dtypes)
def test_cuda_sums_by_the_grid_for_long_vectors(gpu, dtype):
    flagged = SUM.variant("flagged")
    always = dataclasses.replace(flagged, geometry=dataclasses.replace(flagged.geometry, long=1))
    lengths = (1, 8191, 8192, 2_162_689, 9_000_003)
    for variant, n in [*((always, n) for n in lengths), (flagged, flagged.geometry.long + 5)]:
        check_reduction(gpu, task(SUM, (n,), dtype, variant=variant))


def check_divided(gpu, product: Task, runs: int) -> None:
    """The parts of a tile make the same sum in every run, whichever block is done last."""
    inputs = MATMUL.draw(np.random.default_rng(1), product)
    judge = MATMUL.reference(product, inputs)
    guarded = {name: Guarded(gpu, array, UNTOUCHED) for name, array in inputs.items()}
    arrays = {name: each.view for name, each in guarded.items()}
    run = gpu.prepare(product, arrays)
    results = set()
    for _ in range(runs):
        gpu.copy(inputs["C"], arrays["C"])
        run_once(gpu, run)
        results.add(guarded["C"].content().tobytes())
    assert len(results) == 1
    verdict = judge(guarded["C"].content())
    assert verdict.passed, verdict.where


def builds_of(name: str, dtypes: tuple[str, ...] = ()) -> list:
    """Test parameters: each build of a rung, whatever the shape, in its types."""
    rung = MATMUL.variant(name)
    return [
        pytest.param(dataclasses.replace(rung, geometry=build), dtype, id=f"{name}-{dtype}-{i}")
        for dtype in dtypes or rung.dtypes
        for i, build in enumerate(rung.geometry.builds())
    ]


# on 132 multiprocessors: parts of six tiles, of 156 and of 169; a whole tile each and parts of 192; no parts
@pytest.mark.gpu
@pytest.mark.parametrize(
    "shape", [(129, 257, 300), (1537, 1500, 170), (1664, 1664, 200), (2300, 2304, 256), (1408, 1536, 64)], ids=str
)
@pytest.mark.parametrize("name", ["stream_k", "stream_k_fma", "stream_k_wgmma", "stream_k_dmma"])
def test_cuda_tiles_are_divided(gpu, name, shape):
    divided = 0
    for build in builds_of(name, (MATMUL.dtypes_of(MATMUL.variant(name))[0],)):
        variant, dtype = build.values
        if dict(variant.geometry.choices[0].numbers).get("divided", 1):
            check_divided(gpu, task(MATMUL, shape, dtype, variant=variant), 20)
            divided += 1
    assert divided


@pytest.mark.gpu
@pytest.mark.parametrize("sms", [46, 78, 114, 132, 170])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_cuda_best_is_right_with_what_it_picks_for_other_sm_counts(gpu, dtype, sms):
    """No kernel needs as many SMs as its choice assumes; a grid for more than there are has a second wave."""
    best = MATMUL.variant("best")
    if reason := MATMUL.why_not_run(best, dtype, gpu.capability):
        pytest.skip(reason)
    for shape in ((640, 640, 640), (1024, 1024, 1024), (16, 4096, 1024), (700, 500, 64), (2049, 2000, 512)):
        product = task(MATMUL, shape, dtype, {"alpha": 1.5, "beta": 0.5}, best, multiprocessors=sms)
        inputs = MATMUL.draw(np.random.default_rng(sms), product)
        verdict = MATMUL.reference(product, inputs)(computed(gpu, product, inputs))
        assert verdict.passed, (shape, product.pick, verdict.where)


@pytest.mark.gpu
def test_cuda_a_task_is_placed_on_the_sms_of_its_gpu(gpu):
    for variant in (MATMUL.variant("best"), SUM.variant("several_per_thread")):
        operation = MATMUL if variant.picks else SUM
        anywhere = task(operation, (512,) * len(operation.dimensions), variant=variant, multiprocessors=0)
        assert gpu.placed(anywhere).multiprocessors == gpu.multiprocessors == presence.multiprocessors()
        assert gpu.placed(dataclasses.replace(anywhere, multiprocessors=7)).multiprocessors == 7


TILED = {  # rungs whose tile depends on the shape, and shapes with ends of tiles
    **dict.fromkeys(("split_k", "fixed_parts_fma"), ((130, 201, 77), (100, 132, 640))),
    "split_k_dmma": ((130, 201, 77), (100, 132, 640), (30, 61, 2101), (31, 64, 2304)),  # several clusters a tile
    "stream_k_dmma": ((130, 202, 76), (101, 133, 641), (64, 128, 0)),
    "stream_k_fma": ((130, 201, 77), (100, 132, 640), (1301, 1202, 333), (64, 128, 0)),
    "persistent_dmma": ((130, 202, 76), (1001, 133, 641), (2600, 2500, 48), (2601, 2501, 35), (64, 128, 0)),
}


@pytest.mark.gpu
@pytest.mark.parametrize(("variant", "dtype"), [build for name in TILED for build in builds_of(name)])
def test_cuda_every_tile(gpu, variant, dtype):
    for shape, (alpha, beta) in itertools.product(TILED[variant.name], ((1.5, 0.5), (-2.0, 0.0))):
        check_matmul(gpu, matmul(variant, dtype, shape, alpha, beta))


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *itertools.product(
            ("few_rows_wgmma", "fitted_wgmma", "short_k_wgmma", "short_k_mma", "direct_mma"), ("bfloat16", "float16")
        ),
        *itertools.product(("split_k", "stream_k_fma", "fixed_parts_fma", "tf32"), ["float32"]),
        *itertools.product(("persistent_dmma", "undivided_dmma"), ["float64"]),
        ("int8_direct", "int8"),
    ],
)
@given(data=st.data())
def test_cuda_builds_of_random_products(gpu, name, dtype, data):
    """Builds also run what they do not suit: more rows than of a tile, and rows that are not aligned to 16 bytes."""
    rung = MATMUL.variant(name)
    build = data.draw(st.sampled_from(rung.geometry.builds()))
    m = data.draw(st.integers(1, 200) | st.integers(1, 900))
    n, k = (data.draw(st.integers(1, 500).map(lambda x: 8 * x) | st.integers(1, 400)) for _ in range(2))
    variant = dataclasses.replace(rung, geometry=build)
    check_matmul(gpu, matmul(variant, dtype, (m, n, k), 1.5, data.draw(st.sampled_from((0.0, 0.5)))))


@pytest.mark.gpu
def test_cuda_a_build_that_needs_too_much_shared_memory_is_refused(gpu):
    rung = MATMUL.variant("stream_k_dmma")
    if reason := MATMUL.why_not_run(rung, "float64", gpu.capability):
        pytest.skip(reason)
    record = {**rung.geometry.record, "tiles": [[64, 64, 32, 32, 20, 1, [0]]]}
    variant = dataclasses.replace(rung, geometry=tabled.Tabled(record, tabled.tiles_of(record)))
    arrays = {name: gpu.empty((64, 64), "float64") for name in "ABC"}
    with pytest.raises(DeviceError, match=r"^stream_k_dmma: 378880 bytes of shared memory: "):
        gpu.prepare(matmul(variant, "float64", (64, 64, 64)), arrays)


@pytest.mark.gpu
@pytest.mark.parametrize(("variant", "dtype"), builds_of("persistent_dmma"))
def test_cuda_a_stage_of_persistent_dmma_is_not_overwritten_while_it_is_read(gpu, variant, dtype):
    """Without a fence, TMA overwrote stages that warps still loaded from, in some tiles, if blocks had several."""
    rng, shape = np.random.default_rng(1), (3072, 3072, 512)
    a, b, c = (rng.uniform(-1, 1, size) for size in ((3072, 512), (512, 3072), (3072, 3072)))
    arrays = {name: gpu.upload(x) for name, x in (("A", a), ("B", b), ("C", c))}
    run = gpu.prepare(matmul(variant, dtype, shape), arrays)
    result, truth = np.empty_like(c), 1.5 * (a @ b) + 0.5 * c
    for _ in range(5):
        gpu.copy(c, arrays["C"])
        run_once(gpu, run)
        gpu.copy(arrays["C"], result)
        np.testing.assert_allclose(result, truth, rtol=0, atol=1e-10)


@pytest.mark.gpu
@pytest.mark.parametrize(("variant", "dtype"), builds_of("fitted_wgmma"))
def test_cuda_consumers_of_fitted_wgmma_do_not_overtake_each_other(gpu, variant, dtype):
    """Consumers released stages that others still read, in some of many tiles with few steps."""
    task = matmul(variant, dtype, (6656, 9408, 64), 1.0, 0.5)
    arrays = {name: gpu.upload(x) for name, x in MATMUL.draw(np.random.default_rng(1), task).items()}
    right = gpu.prepare(matmul(MATMUL.variant("persistent"), dtype, task.shape, 1.0, 0.5), arrays)  # in the same order
    run, old = gpu.prepare(task, arrays), arrays["C"].copy()
    run_once(gpu, right)
    expected = arrays["C"].copy()
    for _ in range(10):
        arrays["C"][...] = old
        run_once(gpu, run)
        assert (arrays["C"] == expected).all()


def skinny_tiles() -> list:
    return [
        pytest.param(dtype, tile, id=f"{dtype}-{tile.rows}x{tile.columns}-{i}")
        for dtype in SKINNY.geometry
        for i, tile in enumerate(SKINNY.geometry[dtype].choices)
    ]


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "tile"), skinny_tiles())
def test_cuda_every_tile_of_skinny(gpu, dtype, tile):
    """Whole tiles whose rows are aligned to 16 bytes, and ragged ones of each alignment."""
    geometry = dataclasses.replace(SKINNY.geometry[dtype], choices=(tile,))
    variant = dataclasses.replace(SKINNY, geometry={dtype: geometry})
    m, n, k = tile.rows, tile.columns, tile.depth * tile.slices * tile.parts
    check_matmul(gpu, matmul(variant, dtype, (m, n, 4 * k)))
    check_matmul(gpu, matmul(variant, dtype, (m + 1, n + 3, 2 * k + 37), -2.0, 0.0))
    check_matmul(gpu, matmul(variant, dtype, (max(1, m - 1), max(1, n - 1), k - 2), 1.0, 1.0))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", SKINNY.geometry)
def test_cuda_narrow_products(gpu, dtype):
    for narrow, length in itertools.product((1, 2, 3, 8, 16, 17), (515, 4100, 8193, 16388)):
        for shape in ((narrow, length, 777), (length, narrow, 777)):
            check_matmul(gpu, matmul(SKINNY, dtype, shape))


def test_skinny_picks_a_tile_as_narrow_as_c():
    for dtype in SKINNY.geometry:
        for narrow, length in itertools.product((1, 2, 3, 8, 16, 17), (40, 4096, 16384)):
            for shape in ((narrow, length, 4096), (length, narrow, 4096)):
                of = task(MATMUL, shape, dtype, variant=SKINNY)
                tile = SKINNY.geometry[dtype].chosen(of)
                assert tile.few_rows == (shape[0] == narrow)
                assert narrow <= 2 * min(tile.rows, tile.columns) or narrow > 16
                assert 1 <= tile.parts <= 8 and (tile.parts == 1 or tile.parts * tile.slices * tile.depth <= 4096)


# rungs all of whose builds run at every shape
EVERY_BUILD = (
    *("persistent", "multicast", "split_k_wgmma", "undivided_wgmma", "stream_k_wgmma"),
    *("tf32", "three_fp16", "int8_transposed", "int8_direct", "direct_mma"),
)
SIXTEEN_BITS = ("float16", "bfloat16")
VIEWED = [build for name in EVERY_BUILD for build in builds_of(name)] + [
    pytest.param(variant, dtype, id=f"{variant.name}-{dtype}")
    for variant in MATMUL.ladder
    if variant.dtypes == SIXTEEN_BITS and variant.name not in EVERY_BUILD
    for dtype in SIXTEEN_BITS
]


@pytest.mark.gpu
@pytest.mark.parametrize(("variant", "dtype"), VIEWED)
def test_cuda_views(gpu, variant, dtype):
    """Rows at multiples of 16 bytes, which TMA takes, and others; tiles inside and at the ends of C; no terms."""
    layouts, shapes = ((0, 0), (4, 4), (3, 1), (1, 4)), ((257, 385, 640), (70, 45, 16))
    if dtype in SIXTEEN_BITS:
        layouts, shapes = ((0, 0), (8, 8), (3, 1), (8, 1)), ((257, 264, 64),)
    products = [matmul(variant, dtype, shape) for shape in ((300, 520, 136), (131, 77, 201), (40, 24, 0), *shapes)]
    products.append(matmul(variant, dtype, (129, 257, 200), -2.0, 0.0))
    for viewed, (first, pitch) in itertools.product(products, layouts):
        check_matmul(gpu, viewed, first=first, pitch=pitch)


LIBRARIES = [MATMUL.variant(name) for name in ("cublas", "cublaslt")]
OF_LIBRARIES = {  # shapes, first columns and pitches, scalars
    # matrices that CuPy transposes and one that cuBLASLt does
    "int8": (((12, 20, 36), (5, 1028, 1500), (40, 2052, 1028)), ((0, 0), (16, 16)), ((2, 3), (1, 0))),
    # few rows, a multiple of 4 columns and no more, ends of tiles, and matrices that cuBLASLt transposes
    "float8_e4m3": (
        (
            *((64, 64, 64), (1, 4, 16), (5, 12, 48), (333, 516, 272), (1000, 904, 528)),
            (40, 2052, 1040),
            (70, 1040, 2080),
        ),
        ((0, 0), (16, 16), (0, 48)),
        ((1.5, 0.5), (-2.0, 0.0), (0.0625, -4.0)),
    ),
    # no parts of sums are rounded to 16 bits
    "bfloat16": (((43, 377, 21), (68, 922, 7304), (655, 476, 4570), (4580, 121, 1430)), ((0, 0),), ((1.5, 0.5),)),
}


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", OF_LIBRARIES)
@pytest.mark.parametrize("variant", LIBRARIES, ids=ident)
def test_cuda_products_of_libraries(gpu, variant, dtype):
    """Whole matrices and parts of wider ones, C read and not."""
    for shape, (first, pitch), (alpha, beta) in itertools.product(*OF_LIBRARIES[dtype]):
        check_matmul(gpu, matmul(variant, dtype, shape, alpha, beta), first=first, pitch=pitch)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float8_e4m3"])
@pytest.mark.parametrize("variant", LIBRARIES, ids=ident)
def test_cuda_libraries_refuse_float8_matrices_that_they_cannot_multiply(gpu, variant, dtype):
    """Another k, another n, and rows at other addresses."""
    for shape, first in (((64, 64, 72), 0), ((64, 66, 64), 0), ((64, 64, 64), 4)):
        m, n, k = shape
        sizes = {"A": ((m, k), np.uint8), "B": ((k, n), np.uint8), "C": ((m, n), np.float32)}
        arrays = {name: gpu.empty((rows, first + columns), of) for name, ((rows, columns), of) in sizes.items()}
        arrays = {name: array[:, first:] for name, array in arrays.items()}
        with pytest.raises(DeviceError, match=f"cannot multiply {m}x{n}x{k} in float8_e4m3; allowed: k that is"):
            gpu.prepare(task(MATMUL, shape, dtype, variant=variant), arrays)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float8_e4m3"])
@pytest.mark.parametrize("variant", [MATMUL.variant("cublas")], ids=ident)
def test_cuda_float8_products_of_many_terms_pass_and_one_lost_term_fails(gpu, variant, dtype):
    product = task(MATMUL, (256, 256, 16384), dtype, variant=variant)
    inputs = MATMUL.draw(np.random.default_rng(1), product)
    judge = MATMUL.reference(product, inputs)
    wrong = inputs | {"A": inputs["A"].copy()}
    wrong["A"][17, 4711] = 0
    for lost, operands in ((False, inputs), (True, wrong)):
        verdict = judge(computed(gpu, product, operands))
        assert verdict.passed != lost, verdict
        assert not lost or verdict.where.startswith("17:")


@pytest.mark.gpu
def test_cuda_rows_and_columns_of_any_size_are_scaled(gpu):
    """Rows of A and columns of B of very different sizes, and with an infinity or NaN, which stay there."""
    variant, shape = MATMUL.variant("three_fp16"), (200, 300, 130)
    m, n, k = shape
    rng = np.random.default_rng(1)
    rows, columns = rng.integers(-60, 60, (m, 1)), rng.integers(-50, 60, (1, n))
    a = np.ldexp(rng.uniform(-1, 1, (m, k)), rows).astype(np.float32)
    b = np.ldexp(rng.uniform(-1, 1, (k, n)), columns).astype(np.float32)
    a[5], b[:, 7] = 0, 0
    truth, size = (f(a).astype(np.float64) @ f(b).astype(np.float64) for f in (np.positive, np.abs))
    a[3, 4], a[9, 1], b[2, 11] = np.inf, np.nan, -np.inf
    product = task(MATMUL, shape, "float32", {"alpha": 1.0, "beta": 0.0}, variant)
    got = computed(gpu, product, {"A": a, "B": b, "C": truth.astype(np.float32)})
    lost = np.zeros((m, n), bool)
    lost[[3, 9]] = lost[:, 11] = True
    np.testing.assert_array_equal(np.isnan(got), lost)
    assert np.all((abs(got - truth) <= (k + 2) * 2.0**-24 * size + 2.0**-126)[~lost])


@pytest.mark.gpu
@pytest.mark.parametrize(("variant", "dtype", "tile"), of_device("cuda", MATMUL, tiles=True))
def test_cuda_resources_of_matmul(gpu, variant, dtype, tile):
    shape = (128, 256, 64)
    sizes = {"A": (128, 64), "B": (64, 256), "C": (128, 256)}
    product = task(MATMUL, shape, dtype, {"alpha": 1.0, "beta": 0.0}, variant, tile or 0)
    arrays = {each.name: gpu.empty(sizes[each.name], product.storage(each)) for each in MATMUL.operands}
    gpu.prepare(product, arrays)
    found = gpu.resources(product, arrays)
    check_resources(variant, found)
    if tile:
        assert (found["block_x"], found["block_y"]) == (tile, tile)
        assert found["grid_x"] * found["grid_y"] == 128 * 256 // tile**2
    if variant.name == "tiled_padded":
        assert found["shared_bytes"] == 2 * tile**2 * np.dtype(dtype).itemsize
    if not product.arithmetic.strassen:  # a Strassen rung records the resources of its products
        unused = getattr(variant.geometry, "shared_bytes", 0)  # a number of a geometry whose head states it
        asked = isinstance(unused, int) and unused > 0
        if found:
            asked |= "extern __shared__" in with_headers(f"matmul/{product.picked.variant.name}")
        assert (found.get("dynamic_shared_bytes", 0) > 0) == asked


@pytest.mark.gpu
@pytest.mark.parametrize(("variant", "dtype"), [p.values[:2] for p in of_device("cuda", SUM)])
@pytest.mark.parametrize("operation", REDUCTIONS, ids=ident)
def test_cuda_resources_of_reduction(gpu, operation, variant, dtype):
    arrays = {"x": gpu.empty((100_000,), dtype), "result": gpu.empty((), dtype)}
    reducing = task(operation, (100_000,), dtype, variant=variant)
    gpu.prepare(reducing, arrays)
    found = gpu.resources(reducing, arrays)
    check_resources(variant, found)


def check_resources(variant: Variant, found: dict) -> None:
    """A library has no resources; the driver reports the number of blocks that the arithmetic gives."""
    if variant.library:
        assert found == {}
        return
    assert found.keys() == RESOURCES.keys()
    assert json.loads(json.dumps(found)) == found  # a journal takes it
    assert found["registers"] > 0 and found["resident_blocks"] > 0
    assert found["block_x"] * found["block_y"] * found["resident_blocks"] <= found["sm_threads"]
    assert found["memory_bytes_per_second"] > 1e10
    assert found["resident_blocks"] == min(block_limits(found).values()), block_limits(found)


@pytest.mark.gpu
def test_a_gpu_describes_itself(gpu):
    described = gpu.describe()["gpu"]
    json.dumps(described)
    (shown,) = page.gpus([{"gpus": [described]}])  # with what follows from it
    assert {key for key, _, _ in hardware.DEVICE_ROWS} <= shown.keys()
    assert len(hardware.device_table([shown]).rows) == len(hardware.DEVICE_ROWS)


LEVELS = {  # lengths and numbers of steps
    "latency": ([33, 1, 8, 1000, 4099, 12288, 2**15 + 1, 2**22 + 1], (0, 1, 77, 999)),
    "bandwidth": ([33, 1, 1000, 4100, 8192, 12288, 2**20 + 1, 2**22], (0, 1, 3, 5, 1000)),
}


@pytest.mark.gpu
@pytest.mark.parametrize(("operation", "variant", "dtype"), of_vectors("cuda"))
def test_cuda_vectors(gpu, operation, variant, dtype):
    starts = ((0, 0, 0), (1, 1, 1), (3, 3, 3), (0, 1, 2))  # alike to 16 bytes, and not
    shapes = [(n,) for n in some(GPU_LENGTHS)]
    if operation.name in LEVELS:
        lengths, steps = LEVELS[operation.name]
        shapes = [(min(n, variant.capacity or n), k) for n in some(lengths) for k in steps if n < 10_000 or k < 1000]
        starts = starts[:1]
    for shape, first in itertools.product(shapes, starts):
        of = task(operation, shape, dtype, variant=variant)
        check(gpu, of, drawn(of), first)


@pytest.mark.gpu
@pytest.mark.parametrize("tile", (8, 16, 32))
def test_cuda_a_kernel_that_writes_outside_c_is_caught_by_the_guard(gpu, tile):
    """As kernel10 of 003 at 641: blocks for all of C, and no bounds checks."""
    shape = (641, 641, 641)
    for name, caught in (("tiled_overrun", True), ("tiled_guarded", False)):
        product = task(MATMUL, shape, variant=name, tile=tile)
        inputs = MATMUL.draw(np.random.default_rng(1), product)
        arrays = {key: gpu.upload(array) for key, array in inputs.items()}
        run = gpu.prepare(product, arrays)
        run_once(gpu, run)
        complaint = run.complaint() if caught else ""
        assert ("elements written behind C" in complaint) == caught and "behind A" not in complaint
        got = np.empty_like(inputs["C"])
        gpu.copy(arrays["C"], got)
        assert not MATMUL.reference(product, inputs)(got).passed


# --- determinism -------------------------------------------------------------------------------------------------


def bits_of_runs(backend, of: Task) -> set[bytes]:
    """What several runs on the same numbers leave, bit for bit: of numbers whose sum depends on their order."""
    rng, inputs = np.random.default_rng(1), {}
    for operand in of.operation.operands:
        record, size = of.element if operand.role == "in" else of.element.results, of.shape_of(operand)
        inputs[operand.name] = record.stored(
            rng.integers(-99, 99, size) if record.is_integer else rng.uniform(-1, 1, size)
        )
    return {computed(backend, of, inputs).tobytes() for _ in range(10)}


def deterministic(device: str, length: int) -> list:
    """A task of each variant that says it of itself, in each type that is rounded, and each tile."""
    return [
        pytest.param(
            task(
                operation,
                (length,) if len(operation.dimensions) == 1 else (128, 192, 320),
                dtype,
                None,
                variant,
                tile or 0,
            ),
            id=f"{operation.name}-{each.id}",
        )
        for operation in OPERATIONS.values()
        for each in of_device(device, operation, tiles=True)
        for variant, dtype, tile in [each.values]
        if variant.deterministic and dtype != "int32"
    ]


@pytest.mark.parametrize("of", deterministic("cpu", 100_003))
def test_cpu_runs_give_the_same_bits(of):
    assert len(bits_of_runs(CpuBackend(threads=5), of)) == 1


@pytest.mark.gpu
@pytest.mark.parametrize("of", deterministic("cuda", 2**22 + 3))
def test_cuda_runs_give_the_same_bits(gpu, of):
    if reason := of.operation.why_not_run_on(gpu, of.variant, of.dtype):
        pytest.skip(reason)
    assert len(bits_of_runs(gpu, of)) == 1


def test_all_rungs_are_deterministic_and_a_library_where_it_promises_to_be():
    assert all(variant.deterministic for _, variant in RUNGS)
    silent = [f"{operation.name}/{variant.name}" for operation, variant in EVERY if not variant.deterministic]
    products = ["matmul/numpy", "matmul/mkl", "matmul/onednn", "matmul/cublaslt"]
    assert silent == [*products, "sum/numpy", "minimum/numpy", "maximum/numpy"]


# --- compiled modules --------------------------------------------------------------------------------------------


SERIAL_SUM = task(SUM, (3,), "float64", variant="serial")


def of_three() -> dict[str, np.ndarray]:
    return {"x": np.array([1.0, 2.0, 4.0]), "result": np.zeros(())}


@pytest.fixture
def own_sources(monkeypatch, tmp_path):
    """A copy of the sources to edit, and an empty cache of compiled ones."""
    shutil.copytree(kernels.FOLDER, tmp_path / "kernels")
    monkeypatch.setattr(kernels, "FOLDER", tmp_path / "kernels")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def test_a_source_changed_after_it_was_built_is_compiled_again(cpu, own_sources):
    arrays = of_three()
    cpu.prepare(SERIAL_SUM, arrays)()
    assert arrays["result"] == 7 and not (own_sources / "cache").exists()
    source = kernels.source(SUM, SERIAL_SUM.variant)
    source.write_text(source.read_text().replace("*result = value", "*result = -value"))
    for _ in range(2):
        cpu.prepare(SERIAL_SUM, arrays)()
        assert arrays["result"] == -7
    assert len(list((own_sources / "cache/hpcmm").rglob("*.so"))) == 1


def test_a_source_that_does_not_compile_is_an_error_with_the_compilers_words(cpu, own_sources):
    source = kernels.source(SUM, SERIAL_SUM.variant)
    source.write_text("void reduction( {\n")
    with pytest.raises(DeviceError, match=r"serial\.c: .* failed:\n.*serial\.c:1"):
        cpu.prepare(SERIAL_SUM, of_three())
    assert not list((own_sources / "cache/hpcmm").iterdir())


def test_without_a_compiler_a_changed_source_is_a_clear_error(cpu, own_sources, monkeypatch):
    with kernels.source(SUM, SERIAL_SUM.variant).open("a") as file:
        file.write("/* another comment */\n")
    monkeypatch.setattr(modules, "compiler", lambda: ("", "there is no C compiler"))
    with pytest.raises(DeviceError, match=r"^not tested: serial\.c is not compiled, and there is no C compiler$"):
        cpu.prepare(SERIAL_SUM, of_three())


def test_an_unwritable_cache_is_not_needed(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert files.cache().is_dir() and tmp_path not in files.cache().parents


def test_a_rung_without_its_function_is_a_clear_error(cpu, monkeypatch):
    monkeypatch.setattr(cpu_device, "module_of", lambda task: object())
    with pytest.raises(DeviceError, match=r"/serial\.c has no function reduction$"):
        cpu.prepare(SERIAL_SUM, of_three())
