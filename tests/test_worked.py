"""The page "Worked by hand" against independent computations; ``answers.yaml`` has what ``hpcmm occupancy`` prints."""

import math
import operator
import re

import numpy as np
import pytest
import timings

from hpcmm.model.capabilities import CAPABILITIES, capability


def table(*heads: str) -> list[list[str]]:
    """Return the cells of a table of the page, by the first of its heads, and those of the tables behind it."""
    cells = timings.cells((timings.ROOT / "docs" / "by-hand.md").read_text("utf-8"))
    (first,) = (i for i, line in enumerate(cells) if line[: len(heads)] == list(heads))
    return cells[first + 2 :]


def test_the_products_in_both_orders_differ():
    a, b, ab, ba = (np.array([cell.split() for cell in row[1:]], int) for row in table("matrix")[:4])
    assert (ab == a @ b).all() and (ba == b @ a).all() and (ab != ba).any()


def test_the_phases_of_a_block_add_up_to_the_product():
    a, b = np.random.default_rng(1).integers(-9, 9, (2, 4, 4))
    values = {f"A{i}{j}": a[i, j] for i in range(4) for j in range(4)}
    values |= {f"B{i}{j}": b[i, j] for i in range(4) for j in range(4)}
    rows = table("thread (y, x)")[:4]
    for thread, *phases in rows:
        y, x = map(int, re.findall(r"\d", thread))
        assert sum(eval(text.replace("·", "*"), {}, values) for text in phases[1::2]) == (a @ b)[y, x]
    for phase in (0, 1):  # what the threads load in a phase is what they use in it
        loaded = {name for row in rows for name in row[1 + 2 * phase].split(", ")}
        assert loaded == {name for row in rows for name in re.findall(r"[AB]\d\d", row[2 + 2 * phase])}


def test_the_steps_of_a_reduction_keep_the_sum():
    steps = table("rung", "step")[:12]
    assert [len(row[2].split()) for row in steps] == [8, 4, 2, 1] * 3
    assert [int(row[3].split()[0]) for row in steps[3::4]] == [sum(range(1, 17))] * 3


def test_the_hand_count_of_a_reduction_is_that_of_the_published_counters():
    rows = timings.published_run()[0]["profiles"]
    by_hand = {row[0].strip("`"): int(row[3]) for row in table("rung", "warps, over all steps")[:3]}
    for name, loads, factor in (("divergent", 47, 1.015), ("strided", 17, 2.833), ("sequential", 17, 1.030)):
        (at,) = np.flatnonzero((rows["variant"] == name) & (rows["operation"] == "sum") & (rows["dtype"] == "float32"))
        counted = rows["shared_load_wavefronts"][at] - rows["shared_load_conflicts"][at]
        assert by_hand[name] == loads
        assert rows["n"][at] == 2**22 and counted == pytest.approx(loads * 2**15)
        assert rows["shared_load_wavefronts"][at] / counted == pytest.approx(factor, abs=0.02)


def test_a_warp_touches_the_sectors_of_its_bytes():
    for stride, sectors, _, ways in table("stride in elements")[:8]:
        touched = np.zeros(40 * 32 * 4, bool)
        for lane in range(32):
            touched[4 * lane * int(stride) : 4 * lane * int(stride) + 4] = True
        assert int(sectors) == touched.reshape(-1, 32).any(axis=1).sum()
        assert int(ways) == np.bincount(np.arange(32) * int(stride) % 32).max()


def test_grids_are_rounded_up_and_rows_are_pitched_to_whole_units():
    for size, tile, grid, beyond in table("C", "block")[:6]:
        n, width = (int(each.split(" x ")[0]) for each in (size, tile))
        assert grid.startswith(f"{math.ceil(n / width)} x")
        assert int(beyond.replace(",", "")) == (math.ceil(n / width) * width) ** 2 - n**2
    for row in table("columns")[:5]:
        columns, itemsize, nbytes, pitch, ld = (int(cell.replace(",", "")) for cell in row)
        assert nbytes == columns * itemsize <= pitch < nbytes + 512 and pitch % 512 == 0 and ld == pitch // itemsize


@pytest.mark.parametrize(
    ("name", "limits"),
    [  # the table of 004, unit 1
        ("1.0", (512, 8, 24, 768, 8 * 1024, 128, 16)),
        ("1.3", (512, 8, 32, 1024, 16 * 1024, 128, 16)),
        ("2.0", (1024, 8, 48, 1536, 32 * 1024, 63, 48)),
        ("3.0", (1024, 16, 64, 2048, 64 * 1024, 63, 48)),
        ("3.5", (1024, 16, 64, 2048, 64 * 1024, 255, 48)),
        ("5.0", (1024, 32, 64, 2048, 64 * 1024, 255, 64)),
    ],
)
def test_limits_are_those_of_the_document(name, limits):
    names = ("block_threads", "blocks", "warps", "threads", "registers", "thread_registers", "shared")
    assert operator.attrgetter(*names)(capability(name)) == limits


def test_a_compute_capability_has_one_entry():
    names = " ".join(each.names for each in CAPABILITIES).split()
    assert len(names) == len(set(names))
