"""The page "Worked by hand" and ``hpcmm occupancy``, against the documents' numbers and independent computations."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))
import worked

from hpcmm import store
from hpcmm.cli.main import main
from hpcmm.model.capabilities import CAPABILITIES, capability


def test_the_products_in_both_orders_differ():
    rows = [re.findall(r"-?\d+", line)[-4:] for line in worked.order().splitlines()[2:]]
    a, b, ab, ba = (np.array(row, int).reshape(2, 2) for row in rows)
    assert (ab == [[sum(a[i] * b[:, j]) for j in (0, 1)] for i in (0, 1)]).all()
    assert (ba == [[sum(b[i] * a[:, j]) for j in (0, 1)] for i in (0, 1)]).all()
    assert (ab != ba).any()


@pytest.mark.parametrize(("n", "tile"), [(4, 2), (9, 3)])
def test_the_phases_of_a_block_add_up_to_the_product(n, tile):
    a, b = np.random.default_rng(1).integers(-9, 9, (2, n, n))
    values = {f"A{i}{j}": a[i, j] for i in range(n) for j in range(n)}
    values |= {f"B{i}{j}": b[i, j] for i in range(n) for j in range(n)}
    rows = worked.phases(n, tile)
    for thread, *phases in rows:
        y, x = map(int, re.findall(r"\d", thread))
        sums = [eval(text.replace("·", "*"), {}, values) for text in phases[1::2]]
        assert sum(sums) == (a @ b)[y, x]
    for phase in range(n // tile):  # what the threads load in a phase is what they use in it
        loaded = {name for row in rows for name in row[1 + 2 * phase].split(", ")}
        used = {name for row in rows for name in re.findall(r"[AB]\d\d", row[2 + 2 * phase])}
        assert loaded == used


@pytest.mark.parametrize("name", ["divergent", "strided", "sequential"])
def test_the_steps_of_a_reduction_keep_the_sum(name):
    steps = worked.reductions()[name]
    assert [len(active) for _, active in steps] == [8, 4, 2, 1]
    assert steps[-1][0][0] == sum(range(1, 17))
    warps = [len({t // 4 for t in active}) for _, active in steps]
    assert warps == ([4, 4, 2, 1] if name == "divergent" else [2, 1, 1, 1])


def test_the_hand_count_of_a_reduction_is_that_of_the_published_counters():
    path = Path(__file__).parents[1] / "results" / "reference" / "timings.h5"
    if not path.exists():
        pytest.skip("no run is published")
    rows = store.read(path)["profiles"]
    for name, loads, factor in (("divergent", 47, 1.015), ("strided", 17, 2.833), ("sequential", 17, 1.030)):
        (at,) = np.flatnonzero((rows["variant"] == name) & (rows["operation"] == "sum") & (rows["dtype"] == "float32"))
        counted = rows["shared_load_wavefronts"][at] - rows["shared_load_conflicts"][at]
        warps, threads = worked.combining(name)
        assert (2 * warps + 1, threads) == (loads, 127)
        assert rows["n"][at] == 2**22 and counted == pytest.approx(loads * 2**15)
        assert rows["shared_load_wavefronts"][at] / counted == pytest.approx(factor, abs=0.02)


def test_a_warp_touches_the_sectors_of_its_bytes():
    for stride in range(1, 40):
        touched = np.zeros(40 * 32 * 4, bool)
        for lane in range(32):
            touched[4 * lane * stride : 4 * lane * stride + 4] = True
        assert worked.sectors(stride) == touched.reshape(-1, 32).any(axis=1).sum()
        banks = np.bincount(np.arange(32) * stride % 32)
        assert worked.ways(stride) == banks.max()


def test_the_elements_of_all_tiles_are_those_of_the_matrices():
    for m, n, k, tile in ((10, 11, 12, 4), (10, 11, 10, 4), (641, 641, 640, 32)):
        found = list(worked.ragged(m, n, k, tile))
        across, down = worked.blocks(n, tile), worked.blocks(m, tile)
        assert sum(a for _, _, a, _, _ in found) == m * k * across
        assert sum(b for _, _, _, b, _ in found) == k * n * down
        assert sum(c for _, phase, _, _, c in found if phase == 0) == m * n


def test_rows_are_pitched_to_whole_units():
    assert [worked.pitch(width, 4) for width in (1, 128, 129)] == [512, 512, 1024]


@pytest.mark.parametrize(
    ("name", "block", "blocks", "warps", "threads", "registers", "of_a_thread", "shared"),
    [  # the table of 004, unit 1
        ("1.0", 512, 8, 24, 768, 8, 128, 16),
        ("1.3", 512, 8, 32, 1024, 16, 128, 16),
        ("2.0", 1024, 8, 48, 1536, 32, 63, 48),
        ("3.0", 1024, 16, 64, 2048, 64, 63, 48),
        ("3.5", 1024, 16, 64, 2048, 64, 255, 48),
        ("5.0", 1024, 32, 64, 2048, 64, 255, 64),
    ],
)
def test_limits_are_those_of_the_document(name, block, blocks, warps, threads, registers, of_a_thread, shared):
    like = capability(name)
    assert (like.block_threads, like.blocks, like.warps, like.threads) == (block, blocks, warps, threads)
    assert (like.registers, like.thread_registers, like.shared) == (registers * 1024, of_a_thread, shared)


def test_a_compute_capability_has_one_entry():
    names = " ".join(each.names for each in CAPABILITIES).split()
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        # 004 unit 2: which block for a product on Fermi; 002: tiles on an SM with 16 KB and 1,536 threads
        ("--tile 8 --like 2.0", "8 blocks per SM, limited by blocks: 512 threads, 16 warps, occupancy 33%"),
        ("--tile 16 --like 2.0", "6 blocks per SM, limited by threads: 1536 threads, 48 warps, occupancy 100%"),
        ("--tile 32 --like 2.0", "1 block per SM, limited by threads: 1024 threads, 32 warps, occupancy 67%"),
        ("--tile 16 --like 2.0 --sm-shared 16384", "shared memory           2048 B      16384 B                8"),
        ("--tile 32 --like 2.0 --sm-shared 16384", "shared memory           8192 B      16384 B                2"),
        ("--tile 32 --like 2.0", "shared memory           8192 B      49152 B                6"),
        ("--tile 32", "a block loads 2048 elements for 65536 operations, 32 per load"),
        ("--tile 16", "a block loads 512 elements for 8192 operations, 16 per load"),
        ("--threads 256 --registers 33", "6 blocks per SM, limited by registers: 1536 threads"),
        ("--threads 256 --registers 11 --like 1.0", "2 blocks per SM, limited by registers"),  # 10 registers: 3 blocks
        ("--threads 256 --registers 10 --like 1.0", "3 blocks per SM, limited by threads and registers"),
        ("--threads 64 --shared 116000", "1 block per SM, limited by shared memory"),
    ],
)
def test_occupancy_names_the_limit(capsys, arguments, shown):
    assert main(["occupancy", *arguments.split()]) == 0
    assert shown in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--tile 64", "4096 threads per block are too many: compute capability 9.0 allows 1024"),
        ("--tile 16 --like 4.0", "compute capability 4.0 is not in the table; allowed: 1.0, "),
        ("--threads 32 --registers 256", "256 registers per thread are too many: compute capability 9.0 allows 255"),
        (
            "--threads 1024 --registers 255",
            "no block fits on an SM of compute capability 9.0; it has too few registers",
        ),
    ],
)
def test_a_block_that_cannot_be_launched_is_an_error(capsys, arguments, message):
    assert main(["occupancy", *arguments.split()]) == 1
    assert message in capsys.readouterr().err
