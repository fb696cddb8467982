"""Variants that pick a rung: against times of every rung that an H100 or H200 took."""

import csv
import dataclasses
import math
import statistics
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcmm.experiment import fingerprint
from hpcmm.model import HpcmmError, Task
from hpcmm.operations import OPERATIONS
from hpcmm.operations.blocks import ChosenTile
from hpcmm.operations.split_k import Skinny, SplitK
from hpcmm.operations.split_k_tma import SplitTma
from hpcmm.operations.stream_k import StreamKFma
from hpcmm.operations.tma import PersistentDmma, PersistentTma

MATMUL = OPERATIONS["matmul"]
SPLIT_WGMMA = MATMUL.variant("split_k_wgmma")
PICKING = [variant for variant in MATMUL.ladder if variant.picks]
KINDS = [(variant, dtype) for variant in PICKING for dtype in MATMUL.dtypes_of(variant)]
IDS = [f"{variant.name}-{dtype}" for variant, dtype in KINDS]
# best_invariant picks from rungs that the tables of times lack
TIMED = [(variant, dtype) for variant, dtype in KINDS if variant.name != "best_invariant"]


def task(variant, shape, dtype, beta=0.5, sms=132) -> Task:
    return Task(MATMUL, variant, shape, dtype, {"alpha": 1.5, "beta": beta}, multiprocessors=sms)


Times = list[tuple[tuple[int, int, int], dict[str, float]]]  # shapes, and microseconds by name


def times(dtype: str, table: str = "rung_times.csv") -> Times:
    """Shapes, and the microseconds of the rungs that were measured at each."""
    with (Path(__file__).parent / table).open(encoding="utf-8") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    names = [name for name in rows[0] if name not in ("dtype", "m", "n", "k")]
    return [
        (tuple(int(row[name]) for name in "mnk"), {name: float(row[name]) for name in names if row[name]})
        for row in rows
        if row.get("dtype", dtype) == dtype
    ]


def times_16_bit() -> Times:
    """Return the measured times of bfloat16, with that of the picked tile as the time of ``split_k_wgmma``."""
    found = times("bfloat16", "rung_times_16_bit.csv")
    for shape, measured in found:
        asked = task(SPLIT_WGMMA, shape, "bfloat16", beta=0.0)
        tile, parts = asked.geometry.chosen(asked)
        if f"{tile.rows}x{tile.columns}/{parts}" in measured:
            measured["split_k_wgmma"] = measured[f"{tile.rows}x{tile.columns}/{parts}"]
    return found


@pytest.mark.parametrize(("variant", "dtype"), TIMED)
def test_the_picked_rung_is_nearly_the_fastest_measured_one(variant, dtype):
    losses, sixteen_bit = {}, dtype in ("float16", "bfloat16")
    for shape, measured in times_16_bit() if sixteen_bit else times(dtype):
        rungs = {name: measured[name] for name in variant.picks.rungs(dtype) if name in measured}
        picked = variant.picks.rung(task(variant, shape, dtype, beta=0.0))
        if picked in rungs:
            losses[shape] = rungs[picked] / min(rungs.values())
    assert len(losses) > (20 if sixteen_bit else 50)
    assert statistics.geometric_mean(losses.values()) < 1.005, losses
    assert sum(loss > 1.05 for loss in losses.values()) <= (1 if sixteen_bit else 2), losses


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_the_picked_rung_is_nearly_the_fastest_measured_one_that_reads_c(dtype):
    best, losses = MATMUL.variant("best"), {}
    for shape, measured in times(dtype, "rung_times_with_c.csv"):
        rungs = {name: measured[name] for name in best.picks.rungs(dtype) if name in measured}
        losses[shape] = rungs[best.picks.rung(task(best, shape, dtype))] / min(rungs.values())
    assert len(losses) > 15
    assert statistics.geometric_mean(losses.values()) < 1.015, losses
    assert sum(loss > 1.05 for loss in losses.values()) <= 2, losses


@pytest.mark.parametrize("beta", [0.0, 0.5])
@given(size=st.integers(80, 320).map(lambda size: 64 * size))
def test_a_product_in_bfloat16_at_the_power_limit_has_wide_tiles(beta, size):
    """As measured at 8192 and 16384: narrower tiles read more from the L2 cache, and take more power."""
    for name in ("best", "persistent", "multicast"):
        picked = task(MATMUL.variant(name), (size, size, size), "bfloat16", beta).picked
        assert picked.variant.name == ("persistent" if name == "best" else name)
        assert picked.macros["COLUMNS"] >= 192


def test_the_tile_of_split_k_wgmma_is_nearly_the_fastest_measured_one():
    losses = {
        shape: measured["split_k_wgmma"] / measured["any_split"]
        for shape, measured in times_16_bit()
        if "split_k_wgmma" in measured
    }
    assert len(losses) > 20
    assert statistics.geometric_mean(losses.values()) < 1.012, losses
    assert sum(loss > 1.07 for loss in losses.values()) <= 1, losses


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@given(shape=st.tuples(*[st.integers(1, 20000)] * 3))
def test_rows_that_tma_cannot_take_are_copied(dtype, shape):
    _, n, k = shape
    picked = task(MATMUL.variant("best"), shape, dtype).picked
    assert picked.variant is SPLIT_WGMMA or not (n % 8 or k % 8)
    assert set(picked.workspace) == {name for name, columns in (("copy_a", k), ("copy_b", n)) if columns % 8}


def test_a_narrow_product_in_bfloat16_has_its_terms_divided():
    best = MATMUL.variant("best")
    assert task(best, (64, 4096, 4096), "bfloat16", beta=0.0).pick == "split_k_wgmma, 64x64, parts 2"
    assert task(best, (64, 1024, 16384), "bfloat16").pick == "split_k_wgmma, 64x128, parts 8"
    assert task(best, (4096, 4096, 4096), "bfloat16").picked.variant.name == "persistent"


@pytest.mark.parametrize("shape", [(6144, 6144, 6144), (8192, 8192, 8192), (16384, 16384, 16384)])
def test_the_rung_that_divides_no_tile_is_picked_for_a_product_in_float64_with_many_terms(shape):
    assert task(MATMUL.variant("best"), shape, "float64").picked.variant.name == "persistent_dmma"


@pytest.mark.parametrize(
    ("shape", "beta", "rung"),
    [
        ((512, 512, 512), 0.0, "split_k_dmma"),
        ((640, 640, 640), 0.0, "stream_k_dmma"),
        ((896, 896, 896), 0.0, "persistent_dmma"),
        ((2500, 2500, 2500), 0.0, "persistent_dmma"),
        ((8192, 8192, 128), 0.5, "persistent_dmma"),
        ((2048, 2048, 256), 0.5, "tensor_core"),  # hides the time to read C
        ((64, 8192, 8192), 0.0, "split_k_dmma"),
    ],
)
def test_a_rung_that_fills_all_sms_is_picked_for_a_product_in_float64_below_the_power_limit(shape, beta, rung):
    assert task(MATMUL.variant("best"), shape, "float64", beta).picked.variant.name == rung


def test_a_gpu_that_cannot_run_every_rung_of_float64_is_refused():
    reason = "best: persistent_dmma needs a GPU of compute capability 9.0; this one has 10.0"
    assert MATMUL.why_not_run(MATMUL.variant("best"), "float64", "100") == reason
    assert MATMUL.why_not_run(MATMUL.variant("best"), "float64", "90") == ""
    assert MATMUL.why_not_run(MATMUL.variant("best"), "float32", "100") == ""


def test_a_rung_for_few_rows_is_not_picked_if_its_blocks_need_two_waves():
    best = MATMUL.variant("best")
    assert task(best, (16, 4096, 4096), "float32").picked.variant.name == "split_k"
    assert task(best, (16, 8192, 8192), "float32").picked.variant.name == "skinny"


@pytest.mark.parametrize("n", [641, 3001, 4097])
def test_a_rung_that_copies_single_elements_of_unaligned_rows_is_not_picked(n):
    assert task(MATMUL.variant("best"), (n, n, n), "float64").picked.variant.name == "split_k_dmma"


@pytest.mark.parametrize("n", [641, 897, 1001, 2049, 4097])
def test_two_teams_copy_unaligned_rows_because_each_has_more_threads_for_it(n):
    rung = MATMUL.variant("persistent_dmma")
    tile, _ = rung.geometry.chosen(task(rung, (n, n, n), "float64"))
    assert tile.producers == max(each.producers for each in rung.geometry.choices) == 64


@given(shape=st.tuples(*[st.integers(0, 20000)] * 3))
@pytest.mark.parametrize(("variant", "dtype"), KINDS, ids=IDS)
def test_any_shape_has_a_rung_and_the_same_one_each_time(variant, dtype, shape):
    asked = task(variant, shape, dtype)
    picked = asked.picked
    assert picked.variant.name in variant.picks.rungs(dtype)
    assert dtype in MATMUL.dtypes_of(picked.variant) and picked.variant.compiled
    assert picked.variant.arithmetic.get(dtype) == variant.arithmetic.get(dtype)
    assert picked == dataclasses.replace(asked).picked
    assert asked.pick.startswith(picked.variant.name)
    arrays = {name: np.empty((1, 1), asked.element.storage) for name in "ABC"}
    arrays |= {name: each.placeholder for name, each in picked.workspace.items()}
    launches = picked.geometry.launches(picked, arrays)
    assert bool(launches) == (shape[0] > 0 and shape[1] > 0)


def test_a_pick_names_the_rung_and_its_tile():
    best = MATMUL.variant("best")
    assert task(best, (256, 256, 256), "float32").pick.startswith("split_k, ")
    assert task(best, (1, 4096, 4096), "float32").pick == "skinny, 1x32, 32 terms, slices 8, parts 1"
    assert task(MATMUL.variant("naive"), (256, 256, 256), "float32").pick == ""
    split = MATMUL.variant("split_k")
    tile, parts = split.geometry.chosen(task(split, (640, 640, 640), "float32"))
    expected = f"{tile.rows}x{tile.columns}, slices {tile.slices}, parts {parts}"
    assert task(split, (640, 640, 640), "float32").pick == expected


@pytest.mark.parametrize(("variant", "dtype"), KINDS, ids=IDS)
def test_a_variant_picks_among_the_rungs_of_its_arithmetic_that_its_gpu_can_run(variant, dtype):
    for name in variant.picks.rungs(dtype):
        rung = MATMUL.variant(name)
        assert not rung.exact and not rung.tiles and rung.deterministic
        assert not any(rung.why_not_run(each) for each in ("90",)) and variant.why_not_run("80")


@pytest.mark.parametrize(
    ("dtype", "capability", "reason"),
    [
        ("bfloat16", "90", ""),
        ("float32", "120", ""),
        ("bfloat16", "120", "best: persistent needs a GPU of compute capability 9.0; this one has 12.0"),
        ("bfloat16", "80", "best needs a GPU of compute capability 9.0 or later; this one has 8.0"),
    ],
)
def test_a_variant_that_picks_refuses_a_gpu_that_cannot_run_all_its_rungs(dtype, capability, reason):
    assert MATMUL.why_not_run(MATMUL.variant("best"), dtype, capability) == reason


def test_a_changed_rung_changes_the_fingerprint_of_the_variant_that_picks_it(monkeypatch):
    best, split = MATMUL.variant("best"), MATMUL.variant("split_k")
    asked = task(best, (256, 256, 256), "float32")
    before = fingerprint._of_task(MATMUL, best, asked.element)
    assert before == fingerprint._of_task(MATMUL, best, asked.element)
    first, *others = split.geometry.choices
    changed = dataclasses.replace(split, geometry=SplitK((dataclasses.replace(first, share=0.5), *others)))
    ladder = tuple(changed if each is split else each for each in MATMUL.ladder)
    assert before != fingerprint._of_task(dataclasses.replace(MATMUL, ladder=ladder), best, asked.element)


# --- SM counts -----------------------------------------------------------------------------------------------------

COUNTS = (46, 78, 114, 132, 170)  # of an RTX 4070, an H20, a PCIe H100, an H100 SXM and an RTX 5090
CHOOSING = [  # rungs whose tile depends on the SM count
    (variant, dtype)
    for variant in MATMUL.ladder
    for dtype in (MATMUL.dtypes_of(variant) if variant.geometry else ())
    if isinstance(variant.geometry_of(dtype), (ChosenTile, PersistentTma))
]
CHOOSING_IDS = [f"{variant.name}-{dtype}" for variant, dtype in CHOOSING]
some_shape = st.tuples(*[st.integers(1, 200).map(lambda size: 64 * size) | st.integers(1, 12000)] * 3)


def launches_of(picked: Task) -> list:
    shapes = dict(zip("ABC", ((0, 2), (2, 1), (0, 1)), strict=True))
    arrays = {
        name: np.broadcast_to(np.zeros((), picked.element.storage), [picked.shape[axis] for axis in axes])
        for name, axes in shapes.items()
    }
    arrays |= {name: each.placeholder for name, each in picked.workspace.items()}
    return picked.geometry.launches(picked, arrays)


@pytest.mark.parametrize(("variant", "dtype"), [*KINDS, *CHOOSING], ids=[*IDS, *CHOOSING_IDS])
def test_gpus_of_several_sm_counts_get_several_tiles(variant, dtype):
    def build_of(size: tuple[int, int, int], sms: int) -> tuple:
        picked = task(variant, size, dtype, sms=sms).picked
        return picked.variant.name, *((key, value) for key, value in picked.macros.items() if key != "MAX_BLOCKS")

    sizes = [(size, size, size) for size in range(256, 8192, 384)] + [(1 << i, 8192, 8192) for i in range(13)]
    assert sum(len({build_of(size, sms) for sms in COUNTS}) > 1 for size in sizes) > 4


@pytest.mark.parametrize(("variant", "dtype"), CHOOSING, ids=CHOOSING_IDS)
@given(shape=some_shape, counts=st.tuples(st.integers(8, 200), st.integers(8, 200)).map(sorted))
def test_more_sms_are_never_predicted_to_be_slower(variant, dtype, shape, counts):
    geometry = variant.geometry_of(dtype)
    if isinstance(geometry, Skinny):
        return  # its choice has no times

    def least(sms: int) -> float:
        asked = task(variant, shape, dtype, sms=sms)
        if isinstance(geometry, ChosenTile):
            return geometry.seconds(asked)
        return min(geometry.seconds_of(asked, each) for each in geometry.choices)

    few, many = counts
    assert least(many) <= least(few) * (1 + 1e-12)


@pytest.mark.parametrize(("variant", "dtype"), [*KINDS, *CHOOSING], ids=[*IDS, *CHOOSING_IDS])
@given(shape=some_shape, sms=st.integers(8, 200))
def test_persistent_blocks_are_resident_at_the_same_time(variant, dtype, shape, sms):
    """Persistent blocks need no second wave, and blocks that share tiles have memory for their parts."""
    picked = task(variant, shape, dtype, sms=sms).picked
    (launch,) = (each for each in launches_of(picked) if not each.function)
    blocks, tiles = math.prod(launch.grid), math.prod(picked.geometry.over_c(picked))
    assert blocks == tiles or blocks <= picked.macros.get("MAX_BLOCKS", blocks)
    whole_tiles = isinstance(picked.geometry, SplitTma) and picked.macros["PARTS"] == 1
    if whole_tiles or isinstance(picked.geometry, (PersistentTma, PersistentDmma, StreamKFma)):
        assert blocks <= sms


def test_a_choice_without_an_sm_count_is_refused():
    for name in ("best", "split_k", "stream_k_fma"):
        asked = task(MATMUL.variant(name), (512, 512, 512), "float32", sms=0)
        with pytest.raises(HpcmmError, match=f"matmul {name if name != 'best' else ''}.*depend on the SM count"):
            _ = asked.picked.macros
    assert task(MATMUL.variant("register_2d"), (512, 512, 512), "float32", sms=0).macros["ROWS"] == 128
