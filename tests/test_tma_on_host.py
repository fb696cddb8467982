"""Rungs with mbarriers, TMA, warpgroups and clusters on the host, with small tiles, and the faults that are found."""

import dataclasses
import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from tasks import tabled
from test_kernels_on_host import ALL, in_orders, multiplied, planted, with_fault, with_headers

from hpcmm.backends.emulated.launch import ORDERS, KernelError, on_device, poison
from hpcmm.model import Task
from hpcmm.model.dtypes import DTYPES
from hpcmm.model.launch import Boxes, Launch
from hpcmm.operations.blocks import Tiled
from hpcmm.operations.matmul import MATMUL
from hpcmm.operations.tabled import Tabled

pytestmark = pytest.mark.slow  # compiling large kernels takes most of the time

HANG = "waits for ever at the mbarrier at byte"
MULTIPROCESSORS = 2  # fewer than tiles, so that persistent blocks compute several


def ring(threads: int, rows: int, columns: int, stages: int, tensor_maps: Mapping[str, int] | None = None) -> Tiled:
    """Blocks with a ring of stages of 64 steps of k; with tensor maps, two mbarriers belong to each stage."""
    stage = (rows + columns) * 128 + (16 if tensor_maps else 0)
    constants = {"STAGES": stages, "GROUP_ROWS": 2}
    return Tiled((), rows, columns, 64, (threads,), (), stages * stage, (1,), tensor_maps or {}, constants=constants)


SMALL = {  # as few columns and stages as the sources take
    "wgmma_shared": ring(128, 64, 64, 3),
    "tma": ring(128, 64, 64, 3, {"A": 64, "B": 64}),
    "warp_specialized": ring(384, 128, 64, 2, {"A": 128, "B": 64}),
    "persistent": tabled("persistent", [128, 2, 1], GROUP_ROWS=2),
    "multicast": tabled("multicast", [64, 2, 1], GROUP_ROWS=2),
    "split_k_wgmma": tabled("split_k_wgmma", [64, 64, 2, [2]], GROUP_ROWS=2),
    "few_rows_wgmma": tabled("few_rows_wgmma", [-1, 16, 64, 2, [2]]),
    "fitted_wgmma": tabled("fitted_wgmma", [48, 64], GROUP_ROWS=2),
    "stream_k_wgmma": tabled("stream_k_wgmma", [64, 64, 2, [1]], GROUP_ROWS=2),
    "short_k_wgmma": tabled("short_k_wgmma", [128, 64, 2, 1]),
    "short_k_mma": tabled("short_k_mma", [64, 64, 2, 3]),
    "direct_mma": tabled("direct_mma", [16, 32, 2]),
    "int8_transposed": tabled("int8_transposed", [32, 2], GROUP_ROWS=2),
    "int8_direct": tabled("int8_direct", [16, 32, 2]),
}
# m, n, k, alpha, beta: whole tiles, ragged in rows and terms, rows that TMA cannot take: of A and B, and of C; and many
# tiles of one step, so that warps may be a tile ahead of others
POINTS = [
    ((128, 64, 192), 1.5, 0.5),
    ((140, 136, 200), -0.75, 0.0),
    ((130, 66, 70), 1.5, 0.5),
    ((65, 130, 64), 1.0, 0.0),
    ((9, 8, 0), 0.0, 2.0),
    ((520, 200, 64), 1.5, 0.5),
]


def task_of(name: str, point=((), 1.0, 0.0), dtype: str = "", geometry: Tabled | None = None) -> Task:
    """A product by a rung in its small geometry, or in another one, at a point; int8 takes whole scalars."""
    variant = dataclasses.replace(MATMUL.variant(name), geometry=geometry or SMALL[name])
    dtype, (shape, *scalars) = dtype or variant.dtypes[-1], point
    alpha, beta = [round(2 * scalar) for scalar in scalars] if dtype == "int8" else scalars
    return Task(MATMUL, variant, shape, dtype, {"alpha": alpha, "beta": beta}, 0, MULTIPROCESSORS)


def whole_source(name: str) -> str:
    return with_headers(f"matmul/{name}")


def run(build, task: Task, order: str, text: str = "", pads=(0, 0, 0)) -> bytes:
    """Run a rung, or a text in its place, hold C to the bound and return it; rows are ``pads`` elements longer."""
    return multiplied(build, task, order, text or whole_source(task.variant.name), pads=pads)["C"].tobytes()


IN_EACH_TYPE = ("wgmma_shared", "persistent", "few_rows_wgmma")  # sources and headers with code of the type


@pytest.mark.parametrize(
    ("name", "dtype"), [(name, "") for name in SMALL] + [(name, "float16") for name in IN_EACH_TYPE]
)
def test_a_rung_is_right_in_every_order(build, name, dtype):
    for point, order in zip(POINTS, ORDERS, strict=False) if dtype else in_orders(*POINTS):
        run(build, task_of(name, point, dtype), order)


@pytest.mark.parametrize("rows", [64, 128, 192, 256])
def test_the_tiles_of_int8_are_right(build, rows):
    """A product has as many columns as the tile has rows."""
    geometry = tabled("int8_transposed", [rows, 2], GROUP_ROWS=2)
    task = task_of("int8_transposed", ((rows + 9, 144, 208), 1.5, 0.5), "", geometry)
    run(build, task, ORDERS[rows // 64 % len(ORDERS)])


def test_blocks_are_no_more_than_their_waves_need():
    """2048 tiles of 128 x 256 or 256 x 128 on 132 SMs take 16 waves, which 128 blocks compute as well."""
    for name in ("persistent", "multicast", "int8_transposed"):
        variant = MATMUL.variant(name)
        (dtype,) = variant.dtypes[-1:]
        (choice,) = (each for each in variant.geometry.choices if each.rows * each.columns == 1 << 15)
        geometry = dataclasses.replace(variant.geometry, choices=(choice,))
        task = Task(
            MATMUL, dataclasses.replace(variant, geometry=geometry), (8192,) * 3, dtype, {"alpha": 1, "beta": 0}, 0, 132
        )
        arrays = {name: np.empty((8192, 8192), np.uint8) for name in "ABC"}
        (launch,) = (each for each in geometry.launches(task, arrays) if not each.function)
        assert launch.grid == (128,)


def test_four_boxes_of_c_are_filled_two_at_a_time(build, monkeypatch):
    name = "persistent"
    monkeypatch.setitem(SMALL, name, tabled(name, [256, 2, 4], GROUP_ROWS=2))
    shape = (140, 264, 200)
    for beta, order in zip((0.5, 0.0, 0.0), ORDERS, strict=True):  # two tiles for each block
        run(build, task_of(name, (shape, 1.5, beta)), order)
    text, wait = whole_source(name), "C_BOXES / ROUND - 1>"
    assert text.count(wait) == 1
    with pytest.raises(KernelError, match="race in shared memory"):
        run(build, task_of(name, (shape, 1.5, 0.0)), ORDERS[0], text.replace(wait, "C_BOXES / ROUND>"))


FURTHER = [((70, 200, 328), 1.5, 0.5), *POINTS]
OTHER_TILES = {
    "one consumer of 64 rows": ("persistent", [64, 3, 1, 64], POINTS),
    "blocks side by side share a tile of A": ("multicast", [64, 2, 1, 1], POINTS),
    "two consumers, and parts that do not divide the rows": ("split_k_wgmma", [128, 64, 3, [3]], FURTHER),
    "more blocks than steps": ("split_k_wgmma", [64, 128, 3, [8]], FURTHER),
    "one group of 8 rows": ("few_rows_wgmma", [-1, 8, 64, 3, [1]], [*POINTS, ((7, 200, 328), 1.5, 0.5)]),
    "more rows than of a tile": ("few_rows_wgmma", [-1, 48, 128, 2, [3]], [*POINTS, ((7, 200, 328), 1.5, 0.5)]),
    "a tile of C in two stages, which the steps of the next tile follow": (
        *("fitted_wgmma", [208, 128]),
        [((808, 200, 64), 1.5, 0.5), ((280, 136, 72), 1.5, 0.5), ((408, 200, 64), 1.0, 0.0), ((150, 66, 70), 1.0, 2.0)],
    ),
    "rows of a tile that are no multiple of 16, and long steps": (
        *("fitted_wgmma", [24, 64, 256]),
        [*POINTS, ((70, 72, 1800), 1.5, 0.5), ((48, 200, 1032), -0.75, 0.0)],
    ),
    "a warp has several elements of a row of c": ("direct_mma", [32, 64, 1, 16], POINTS),
    "several groups of columns": ("short_k_mma", [128, 96, 1, 2], [*POINTS[:2], ((300, 203, 37), 1.5, 0.5)]),
}


@pytest.mark.parametrize("idea", OTHER_TILES)
def test_another_tile_is_right_in_every_order(build, idea):
    name, tile, points = OTHER_TILES[idea]
    geometry = tabled(name, tile, GROUP_ROWS=2)
    for point, order in in_orders(*points):
        run(build, task_of(name, point, "float16" if name == "short_k_mma" else "", geometry), order)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("by_tma ? LOADERS : 128", "by_tma ? 1 : 128", f"{HANG}|race in shared memory|expect_tx"),
        ("warp < LOADERS", "warp < 1", HANG),
        ("loads_b ? Q * B_BOX", "loads_b ? B_BOX / 2", "expect_tx"),
    ],
)
def test_of_a_narrow_tile_one_thread_loads_a_and_another_one_b(build, monkeypatch, old, new, said):
    monkeypatch.setitem(SMALL, "persistent", tabled("persistent", [64, 3, 1, 64], GROUP_ROWS=2))
    text = whole_source("persistent")
    assert text.count(old) == 1
    with pytest.raises(KernelError, match=said):
        for order in ORDERS:
            run(build, task_of("persistent", POINTS[1]), order, text.replace(old, new))


def test_a_part_of_a_that_its_block_does_not_load_is_found(build):
    text = whole_source("multicast")
    assert text.count("first_row + part, &full") == 1
    task = task_of("multicast", POINTS[0], geometry=tabled("multicast", [64, 2, 1, 1], GROUP_ROWS=2))
    with pytest.raises(KernelError, match="wrong result"):
        run(build, task, ORDERS[0], text.replace("first_row + part, &full", "first_row, &full"))


def test_a_stage_that_is_not_waited_for_is_found(build, monkeypatch):
    """One part of k has more steps than the ring has stages."""
    monkeypatch.setitem(SMALL, "split_k_wgmma", tabled("split_k_wgmma", [64, 64, 2, [1]], GROUP_ROWS=2))
    text = with_fault("matmul/split_k_wgmma", "mbarrier_wait(&ring.empty[ring.stage], ring.parity ^ 1);", "")
    with pytest.raises(KernelError, match="race in shared memory"):
        run(build, task_of("split_k_wgmma", POINTS[0]), ORDERS[0], text)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("            cp_async_bulk_wait_group_read<0>();\n            mbarrier_arrive(&ring.empty[stored]);",
         "            mbarrier_arrive(&ring.empty[stored]);", "race in shared memory"),
        ("            barrier_sync(1 + consumer, 128);\n            if (!c_by_tma)", "            if (!c_by_tma)",
         "race in shared memory"),
        ("                release(ring.stage);\n                continue;", "                continue;", HANG),
        ("(step - steps) * HELD", "0", "wrong result|race in shared memory|expect_tx|" + HANG),
    ],
)  # fmt: skip
def test_of_the_stages_that_hold_c_a_fault_is_found(build, old, new, said):
    geometry, text = tabled("fitted_wgmma", [208, 128], GROUP_ROWS=2), whole_source("fitted_wgmma")
    task = task_of("fitted_wgmma", ((420, 264, 400), 1.5, 0.5), "", geometry)
    assert text.count(old) == 1
    with pytest.raises(KernelError, match=said):
        for order in ORDERS:
            run(build, task, order, text.replace(old, new))


@pytest.mark.parametrize("pitch", [1, 8])
def test_rows_need_not_start_at_multiples_of_16_bytes(build, pitch):
    """A workspace follows from the shape alone, so threads load what has another leading dimension."""
    names = ("split_k_wgmma", "short_k_wgmma", "short_k_mma", "direct_mma", "int8_transposed")
    for name, shape in itertools.product(names, ((70, 64, 136), (70, 66, 130))):
        run(build, task_of(name, (shape, 1.5, 0.5)), ORDERS[0], pads=(pitch,) * 3)


def test_a_split_product_has_the_same_bits_in_every_order(build):
    assert len({run(build, task_of("split_k_wgmma", POINTS[0]), order) for order in ORDERS}) == 1


DMMA_TILES = [  # with one team, two and three; with one slice, two and four, and rows that slices share unevenly
    [64, 64, 32, 32, 1, 1, 3],
    [64, 32, 32, 16, 1, 2, 3],
    [24, 96, 24, 48, 2, 2, 4],
    [16, 64, 16, 32, 2, 3, 4],
    [24, 32, 24, 32, 4, 1, 4],
    [48, 48, 24, 48, 2, 1, 4],
]


def dmma(*numbers: int) -> Tabled:
    """The geometry of persistent_dmma with one tile, the most stages last."""
    *row, most = numbers
    return tabled("persistent_dmma", row, constants={"most": most}, GROUP_ROWS=2)


def of_dmma(geometry: Tabled, shape, beta: float = 0.5) -> Task:
    return task_of("persistent_dmma", (shape, 1.5, beta), "float64", geometry)


@pytest.mark.parametrize("numbers", DMMA_TILES, ids=str)
def test_persistent_dmma_is_right_in_every_order(build, numbers):
    tile = dmma(*numbers)
    (m, n, *_), k = numbers, tile.choices[0].depth
    shapes = [((3 * m, 2 * n, 5 * k), 0.5), ((m + 9, n + 6, 2 * k + 4), -0.0), ((m + 1, n + 3, k + 1), 0.5)]
    for shape, beta in [*shapes, ((3 * m, 2 * n, k), 0.0)]:
        assert len({run(build, of_dmma(tile, shape, beta), order) for order in ORDERS}) == 1
    for shape, *pads in [
        *(((1, 2, 3), 0, 0, 0), ((m, n, 0), 0, 0, 0), ((m - 3, n, 4 * k), 1, 1, 1), ((m + 5, n, 3 * k), 2, 2, 2)),
        ((m + 1, n - 1, 2 * k), 0, 1, 1),
    ]:
        run(build, of_dmma(tile, shape), ORDERS[0], pads=pads)


def dmma_attempts(build, text: str) -> Iterator[Callable[[], object]]:
    geometries = [dmma(*numbers) for numbers in DMMA_TILES[1:]]
    for geometry, pad, stages, order in itertools.product(geometries, (0, 1), (12, 2, 1), ORDERS):
        (tile,) = geometry.choices
        shape = 4 * tile.rows, 2 * tile.columns, stages * tile.depth
        yield functools.partial(run, build, of_dmma(geometry, shape), order, text, (pad,) * 3)


TF32_TILES = [  # in few stages, so that the ring wraps around
    pytest.param([tile.rows, tile.columns, 4 - i % 2, [tile.parts]], id=f"{tile.rows}x{tile.columns}-{tile.parts}")
    for i, tile in enumerate(MATMUL.variant("tf32").geometry.choices)
    if ALL or (tile.rows, tile.parts) in ((32, 4), (192, 1))
]


def of_tf32(tile: list, shape, beta: float = 0.5) -> Task:
    return task_of("tf32", (shape, 1.5, beta), "float32", tabled("tf32", tile, GROUP_ROWS=2))


@pytest.mark.parametrize("tile", TF32_TILES)
def test_tf32_is_right_in_every_order(build, tile):
    """Whole tiles and ragged ones, several a block, fewer and more steps than stages; rows that TMA cannot take.

    They have all orders for the fewest terms only: the others take long, and a race is reported in any order.
    """
    m, n, *_ = tile
    for shape, beta in [((2 * m, 2 * n, 168), 0.5), ((m + 9, n + 4, 100), 0.0), ((m + 1, n + 3, 33), 0.5)]:
        orders = ORDERS if shape[2] == 33 else ORDERS[:1]
        assert len({run(build, of_tf32(tile, shape, beta), order) for order in orders}) == 1
    for shape, pads in [
        *(((1, 2, 3), (0, 0, 0)), ((m, n, 0), (0, 0, 0)), ((m, n, 32), (0, 0, 2))),
        *(((m - 3, n, 160), (1, 0, 0)), ((m + 5, n, 63), (0, 3, 1)), ((m, n + 8, 96), (4, 4, 4))),
    ]:
        run(build, of_tf32(tile, shape), ORDERS[0], pads=pads)


def tf32_attempts(build, text: str) -> Iterator[Callable[[], object]]:
    tiles = [32, 64, 3, [1]], [128, 64, 4, [2]], [256, 128, 4, [1]]
    # the smallest tile first, and TMA and threads in turns: together they report most faults at once
    for order, beta, tile, odd in itertools.product(ORDERS, (0.5, 0), tiles, (0, 1)):
        # rows that TMA takes; padded ones, which threads copy; rows that the first launch copies
        for pad, less in [(odd, 0), (0, odd)][: 1 + odd]:
            shape, pads = (2 * tile[0], 2 * tile[1] - less, 168 - less), (pad, pad, odd)
            yield functools.partial(run, build, of_tf32(tile, shape, beta), order, text, pads)


TESTED = (*SMALL, "persistent_dmma", "tf32")


@pytest.mark.parametrize(("name", "old", "new", "said"), planted(lambda name: name.removeprefix("matmul/") in TESTED))
def test_a_fault_is_found(build, name, old, new, said):
    text, rung = with_fault(name, old, new), name.removeprefix("matmul/")
    if rung in SMALL:
        points = itertools.product(POINTS[:4], ORDERS)
        attempts = (functools.partial(run, build, task_of(rung, point), order, text) for point, order in points)
    else:
        attempts = tf32_attempts(build, text) if rung == "tf32" else dmma_attempts(build, text)
    found = []
    for attempt in attempts:
        try:
            attempt()
        except (KernelError, AssertionError) as error:
            found.append(str(error))
            if re.search(said, found[-1]):
                return
    raise AssertionError(found)


def test_a_hang_is_reported_with_the_places_and_what_is_missing(build):
    """The producer waits for consumers whose second warp does not arrive, and they wait for the producer."""
    old, new = "if (start > 0 && lane == 0)", "if (start > 0 && lane == 0 && thread / 32 != 1)"
    text = whole_source("warp_specialized").replace(old, new)
    producer, consumer = (
        1 + text[: text.index(f"mbarrier_wait(&{name}[stage]")].count("\n") for name in ("empty", "full")
    )
    with pytest.raises(KernelError) as caught:
        run(build, task_of("warp_specialized", ((128, 64, 256), 1.0, 0.0)), "ascending", text)
    stages = 2 * SMALL["warp_specialized"].depth * (128 + 64) * 2
    message = str(caught.value)
    assert re.search(
        rf"thread \(0, 0, 0\) of block \(0, 0, 0\) waits for ever at the mbarrier at byte {stages + 16} of shared "
        rf"memory in line {producer} for the end of a phase of parity 0: 0 phases have ended, and this one lacks 2 of "
        rf"8 arrivals and 0 bytes; thread \(128, 0, 0\) .* at byte {stages} of shared memory in line {consumer} ",
        message,
    ), message


# ---- instructions by themselves ----

PRODUCT = Path(__file__).with_name("wgmma_product.cu").read_text()
# suffix of the instruction, element type of the library, terms of an instruction, bytes of a row of a box, B by rows
PRODUCTS = [
    ("f16", "float16", 16, 128, True), ("bf16", "bfloat16", 16, 64, True), ("f16", "float16", 16, 32, True),
    ("bf16", "bfloat16", 16, 128, False), ("f16", "float16", 16, 64, False), ("tf32", "float32", 8, 128, False),
    ("s8", "int8", 32, 128, False), ("s8", "int8", 32, 32, False),
]  # fmt: skip
ELEMENTS = {"f16": "CudaF16", "bf16": "CudaBf16", "tf32": "CudaTf32", "s8": "CudaS8"}


@pytest.mark.parametrize(("suffix", "dtype", "terms", "span", "by_rows"), PRODUCTS)
def test_wgmma_multiplies_what_tma_has_swizzled(build, suffix, dtype, terms, span, by_rows):
    """64 x k by k x 64, with k as many elements as a row of a box has; B by rows (MN-major) or by columns (K-major)."""
    size = 32 // terms
    k = span // size
    rng = np.random.default_rng(span)
    a, b = (rng.integers(-8, 8, shape) for shape in ((64, k), (k, 64)))
    element = DTYPES.get(dtype)
    stored = (lambda x: element.stored(x.astype(np.float32))) if element else (lambda x: x.astype(dtype))
    sums = np.dtype("int32" if suffix == "s8" else "float32")
    # by rows, boxes of `span` bytes lie beside each other, each with all terms
    boxes = 64 * size // span if by_rows else 1
    matrix = on_device(stored(b if by_rows else np.ascontiguousarray(b.T)))
    macros = {
        **{"SUM": "int" if suffix == "s8" else "float", "SPAN_BYTES": span, "B_BOXES": boxes, "MULTIPLY": "multiply"},
        **{"B_BYTES": k * 64 * size, "BOX_STEP": span // size, "B_STEP": terms * span if by_rows else 32},
    }
    majors = f"K_MAJOR, {'MN' if by_rows else 'K'}_MAJOR"
    multiply = f"(c, a, b, scale_d) cuda_wgmma<{ELEMENTS[suffix]}, 64, {majors}>(c, nullptr, a, b, scale_d)"
    text = PRODUCT.replace("constexpr", f"#define multiply{multiply}\nconstexpr", 1)
    kernel = build(text, "product", tuple(f"-D{key}={value}" for key, value in macros.items()))
    result = poison((64, 64), sums.name)
    arguments = (
        result,
        Boxes(on_device(stored(a)), 64, k, dtype),
        Boxes(matrix, k if by_rows else 64, span // size, dtype),
    )
    for order in ORDERS:
        result.fill(-1)
        kernel(Launch((1,), (128,), arguments), order, dynamic_bytes=64 * span + k * 64 * size + 8)
        np.testing.assert_array_equal(result, (a @ b).astype(sums))
