"""What a multiprocessor has room for; ``answers.yaml`` has those of the course documents."""

import dataclasses
import math

import pytest
from timings import FAIL, HOPPER, derived, kernel, measurement, product

from hpcmm.analysis.occupancy import resources
from hpcmm.model.capabilities import block_limits


@pytest.mark.parametrize(
    ("registers", "threads", "blocks"), [(32, 1024, 2), (33, 1024, 1), (64, 256, 4), (65, 256, 3), (255, 256, 1)]
)
def test_registers_go_to_warps_in_units(registers, threads, blocks):
    """65536 registers: 33 a thread are 40, 65 are 72 and 255 are 256, in units of 256 a warp."""
    assert block_limits(kernel(HOPPER, (threads, 1), 0, registers=registers))["registers"] == blocks


def test_the_system_takes_shared_memory_of_each_block():
    limits = block_limits(kernel(HOPPER, (32, 1), 0, shared_bytes=0))
    assert limits["shared memory"] == 228
    limits = block_limits(kernel(HOPPER, (256, 1), 0, dynamic_shared_bytes=113 * 1024))
    assert limits["shared memory"] == 2


def test_a_block_of_part_of_a_warp_takes_a_whole_one():
    assert block_limits(kernel(HOPPER, (33, 1), 0))["threads"] == 32


def test_resources_of_a_file():
    needs = {"registers": 32, "shared_bytes": 2048}
    tiled = kernel(HOPPER, (16, 16), 8, **needs)
    rows = [
        measurement(product("naive", tile=8), resources=kernel(HOPPER, (8, 8), 32, registers=32)),
        measurement(product("tiled_padded", tile=16), resources=tiled),
        measurement(product("tiled_padded", n=128, tile=16), resources=tiled | {"grid_x": 3, "grid_y": 16}),
        measurement(product("tiled_padded", tile=16, dtype="float64"), verdict=FAIL, resources=tiled),
        measurement(product("tiled_padded", tile=16), "cublas"),
        measurement(product("serial")),
    ]
    found = resources(derived(*rows))
    assert list(found["label"]) == ["naive 8", "tiled_padded 16", "tiled_padded 16"]
    assert list(found["dtype"]) == ["float32", "float32", "float64"]
    assert list(found["grid_y"]) == [4, 16, 4]  # that of the most blocks
    assert list(found["n"]) == [64, 128, 64]
    assert list(found["occupancy"]) == [1.0, 1.0, 1.0]
    assert list(found["limited_by"]) == ["threads, registers, blocks", "threads, registers", "threads, registers"]
    assert list(found["computed_blocks"]) == list(found["resident_blocks"]) == [32, 8, 8]
    assert list(found["phase_loads"]) == [2, 512, 512]
    assert list(found["phase_flops"]) == [2, 8192, 8192]
    assert list(found["pending_loads"]) == [2 * 2048, 8 * 512, 8 * 512]  # 002: 4,096
    # 4 bytes an operation without tiles, T times better with them, half as good in float64
    assert list(found["bound_flops_per_second"]) == pytest.approx([1.2e12, 16 * 1.2e12, 8 * 1.2e12])


def test_a_kernel_with_tiles_of_its_own_loads_these():
    """A phase of large_thread_tile: 256 and 128 rows and columns of float32 and 128 of each of float64, eight deep."""
    needs = kernel(HOPPER, (256, 1), 1, registers=255, dynamic_shared_bytes=48 * 1024)
    rows = [measurement(product("large_thread_tile", dtype=dtype), resources=needs) for dtype in ("float32", "float64")]
    found = resources(derived(*rows))
    assert list(found["phase_loads"]) == list(found["pending_loads"]) == [8 * (256 + 128), 8 * (128 + 128)]
    assert list(found["phase_flops"]) == [2 * 256 * 128 * 8, 2 * 128 * 128 * 8]
    assert list(found["bound_flops_per_second"]) == pytest.approx([1.2e12 * 512 / 3, 0.6e12 * 128])


def test_without_recorded_resources_there_are_none():
    assert resources(derived(measurement(product("naive", tile=8)))).empty


def test_a_phase_is_that_of_the_build_that_ran():
    """Not of the one that the model ranks first today; that of a build that was removed since is unknown."""
    needs = kernel(HOPPER, (128, 1), 1, registers=128, dynamic_shared_bytes=48 * 1024)
    picks = ["64x128, slices 4, parts 1, by trial of 12", "96x96, slices 2, parts 1", "60x60, slices 4, parts 1"]
    found = []
    for pick in picks:
        point = measurement(product("split_k", n=2048), resources=needs)
        found.append(float(resources(derived(dataclasses.replace(point, pick=pick)))["phase_loads"].iloc[0]))
    assert found[:2] == [(64 + 128) * 16, (96 + 96) * 32] and math.isnan(found[2])  # phases of 16 and 32 terms
