"""Variants that pick a rung, and rungs that choose a tile."""

import dataclasses
import itertools
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcmm.experiment import fingerprint
from hpcmm.model import HpcmmError, Task
from hpcmm.operations import OPERATIONS, waves
from hpcmm.operations.choice import builds
from hpcmm.operations.tabled import Tabled

MATMUL = OPERATIONS["matmul"]
PICKING = [variant for variant in MATMUL.ladder if variant.picks]
KINDS = [(variant, dtype) for variant in PICKING for dtype in MATMUL.dtypes_of(variant)]
IDS = [f"{variant.name}-{dtype}" for variant, dtype in KINDS]


def task(variant, shape, dtype, beta=0.5, sms=132) -> Task:
    return Task(MATMUL, variant, shape, dtype, {"alpha": 1.5, "beta": beta}, multiprocessors=sms)


def launches_of(picked: Task) -> list:
    (m, n, k), zero = picked.shape, np.zeros((), picked.element.storage)
    arrays = {name: np.broadcast_to(zero, of) for name, of in (("A", (m, k)), ("B", (k, n)), ("C", (m, n)))}
    arrays |= {name: each.placeholder for name, each in picked.workspace.items()}
    return picked.geometry.launches(picked, arrays)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@given(shape=st.tuples(*[st.integers(1, 20000)] * 3))
def test_rows_that_tma_cannot_take_are_copied(dtype, shape):
    _, n, k = shape
    picked = task(MATMUL.variant("best"), shape, dtype).picked
    if picked.variant.name in ("short_k_wgmma", "short_k_mma", "direct_mma"):  # they load rows of any alignment
        return
    assert picked.variant.name in ("split_k_wgmma", "fitted_wgmma") or not (n % 8 or k % 8)
    assert set(picked.workspace) == {name for name, columns in (("copy_a", k), ("copy_b", n)) if columns % 8}


@settings(max_examples=4 * settings.default.max_examples)
@given(st.sampled_from(KINDS), st.tuples(*[st.integers(0, 20000)] * 3))
def test_any_shape_has_a_rung_and_the_same_one_each_time(kind, shape):
    variant, dtype = kind
    asked = task(variant, shape, dtype)
    picked = asked.picked
    assert picked.variant.name in variant.picks.rungs(dtype)
    assert dtype in MATMUL.dtypes_of(picked.variant) and picked.variant.compiled
    assert picked.variant.arithmetic.get(dtype) == variant.arithmetic.get(dtype)
    assert picked == dataclasses.replace(asked).picked
    assert asked.pick.startswith(picked.variant.name)
    assert bool(launches_of(picked)) == (shape[0] > 0 and shape[1] > 0)


def test_a_pick_names_the_rung_and_its_tile():
    best = MATMUL.variant("best")
    assert task(best, (256, 256, 256), "float32").pick.startswith("split_k, ")
    narrow = task(best, (1, 4096, 4096), "float32")
    tile = narrow.picked.geometry.chosen(narrow.picked)
    details = f"{tile.depth} terms, slices {tile.slices}, parts {tile.parts}"
    assert narrow.pick == f"skinny, {tile.rows}x{tile.columns}, {details}"
    assert task(MATMUL.variant("naive"), (256, 256, 256), "float32").pick == ""
    split = MATMUL.variant("split_k")
    tile = split.geometry.chosen(task(split, (640, 640, 640), "float32"))
    level = f", level {tile.level}" if tile.level > 1 else ""
    expected = f"{tile.rows}x{tile.columns}, slices {tile.slices}, parts {tile.parts}{level}"
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
        ("float64", "100", "best: persistent_dmma needs a GPU of compute capability 9.0; this one has 10.0"),
        ("float64", "90", ""),
        ("float32", "100", ""),
    ],
)
def test_a_variant_that_picks_refuses_a_gpu_that_cannot_run_all_its_rungs(dtype, capability, reason):
    assert MATMUL.why_not_run(MATMUL.variant("best"), dtype, capability) == reason


def test_a_changed_rung_changes_the_fingerprint_of_the_variant_that_picks_it(monkeypatch):
    best, split = MATMUL.variant("best"), MATMUL.variant("split_k")
    asked = task(best, (256, 256, 256), "float32")
    before = fingerprint._of_task(MATMUL, best, asked.element)
    assert before == fingerprint._of_task(MATMUL, best, asked.element)
    fewer = dataclasses.replace(split.geometry, choices=split.geometry.choices[1:])
    changed = dataclasses.replace(split, geometry=fewer)
    ladder = tuple(changed if each is split else each for each in MATMUL.ladder)
    assert before != fingerprint._of_task(dataclasses.replace(MATMUL, ladder=ladder), best, asked.element)


COUNTS = (46, 78, 114, 132, 170)  # of an RTX 4070, an H20, a PCIe H100, an H100 SXM and an RTX 5090
CHOOSING = [  # rungs whose tile depends on the SM count
    (variant, dtype)
    for variant in MATMUL.ladder
    for dtype in (MATMUL.dtypes_of(variant) if variant.geometry else ())
    if getattr(variant.geometry_of(dtype), "several", False) and variant.name != "undivided_few_rows"  # m chooses
]
CHOOSING_IDS = [f"{variant.name}-{dtype}" for variant, dtype in CHOOSING]
some_shape = st.tuples(*[st.integers(1, 200).map(lambda size: 64 * size) | st.integers(1, 12000)] * 3)


@pytest.mark.parametrize(("variant", "dtype"), [*KINDS, *CHOOSING], ids=[*IDS, *CHOOSING_IDS])
def test_gpus_of_several_sm_counts_get_several_tiles(variant, dtype):
    def build_of(size: tuple[int, int, int], sms: int) -> tuple:
        picked = task(variant, size, dtype, sms=sms).picked
        return picked.variant.name, *((key, value) for key, value in picked.macros.items() if key != "MAX_BLOCKS")

    sizes = [(size, size, size) for size in range(256, 8192, 384)] + [(1 << i, 8192, 8192) for i in range(13)]
    several = (size for size in sizes if len({build_of(size, sms) for sms in COUNTS}) > 1)
    assert len([*itertools.islice(several, 2)]) == 2


@settings(max_examples=6 * settings.default.max_examples)
@given(st.sampled_from(CHOOSING), some_shape, st.tuples(st.integers(8, 200), st.integers(8, 200)).map(sorted))
def test_more_sms_are_never_predicted_to_be_slower(kind, shape, counts):
    variant, dtype = kind

    def least(sms: int) -> float:
        return min(waves.seconds(each.task) for each in builds(task(variant, shape, dtype, sms=sms)))

    few, many = counts
    # A block of a divided tile has whole steps of k; few_rows_wgmma fits its rows by a simpler estimate than this model
    tolerance = 0.25 if variant.name == "few_rows_wgmma" else 0.02
    assert least(many) <= least(few) * (1 + tolerance)


@settings(max_examples=6 * settings.default.max_examples)
@given(st.sampled_from([*KINDS, *CHOOSING]), some_shape, st.integers(8, 200))
def test_persistent_blocks_are_resident_at_the_same_time(kind, shape, sms):
    """Persistent blocks need no second wave, and blocks that share tiles have memory for their parts."""
    variant, dtype = kind
    picked = task(variant, shape, dtype, sms=sms).picked
    (launch,) = (each for each in launches_of(picked) if not each.function)
    blocks, tiles = math.prod(launch.grid), math.prod(picked.geometry.over_c(picked))
    assert blocks == tiles or blocks <= picked.macros.get("MAX_BLOCKS", blocks)
    if not isinstance(picked.geometry, Tabled) or not dict(picked.geometry.chosen(picked).numbers).get("divided", 1):
        return  # each block has one tile
    if re.match("even|min|CLUSTER", str(picked.geometry.record["grid"][0])):
        assert blocks <= sms * picked.macros.get("RESIDENT", 1) or picked.macros.get("PARTS", 1) > 1


@settings(max_examples=6 * settings.default.max_examples)
@given(
    st.tuples(st.integers(0, 300), st.integers(0, 300), st.integers(0, 300).map(lambda k: 40 * k)),
    st.integers(8, 200),
    st.sampled_from([each for each in MATMUL.variant("split_k_dmma").geometry.builds() if each.choices[0].grouped]),
)
def test_clusters_that_share_a_tile_run_at_once_and_have_memory_for_their_sums(shape, sms, build):
    one = task(dataclasses.replace(MATMUL.variant("split_k_dmma"), geometry=build), shape, "float64", sms=sms)
    if launches := launches_of(one):
        x, y, z = launches[0].grid
        parts = one.macros["PARTS"]
        assert z % parts == 0 and build.suits(one) == (z > parts)
        if z > parts:
            assert x * y * z <= waves.resident_blocks(parts, sms) and x * y * z <= one.macros["MAX_PIECES"]


def test_a_choice_without_an_sm_count_is_refused():
    for name in ("best", "split_k", "stream_k_fma"):
        asked = task(MATMUL.variant(name), (512, 512, 512), "float32", sms=0)
        with pytest.raises(HpcmmError, match=f"matmul {name if name != 'best' else ''}.*depend on the SM count"):
            _ = asked.picked.macros
    assert task(MATMUL.variant("register_2d"), (512, 512, 512), "float32", sms=0).macros["ROWS"] == 128
