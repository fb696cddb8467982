"""The levels of memory: which points measure them, their table, and the ceilings of the roofline."""

import pytest
import timings
from tasks import machine
from timings import kernel_samples, measurement

from hpcmm import analysis, kernels, report, store
from hpcmm.experiment import plan
from hpcmm.model.measurement import Point
from hpcmm.operations import OPERATIONS
from hpcmm.operations.memory import PIECE_BYTES

GPU = {"name": "H200", "compute_capability": "90", "multiprocessors": 132, "max_sm_clock": 2e9}
GPU["memory_bytes_per_second"] = 4.8e12
SECONDS = 1e-3


def of(operation: str, variant: str, shape: tuple[int, ...], seconds: float = SECONDS, dtype: str = "int32"):
    scalars = OPERATIONS[operation].scalars | ({"alpha": 1.0, "beta": 0.0} if operation == "matmul" else {})
    point = Point(operation, variant, shape, dtype, 1, scalars, tile=32 if variant == "naive" else 0)
    return measurement(point, samples=kernel_samples([seconds] * 8), clock=1.5e9)


@pytest.fixture
def file(tmp_path):
    latency = [
        of("latency", "registers", (8, 10**6)),
        of("latency", "shared", (512, 10**5)),
        of("latency", "shared", (4096, 10**5), 2 * SECONDS),  # slower: not the row of the level
        of("latency", "cached", (8192, 10**5)),
        of("latency", "cached", (8193, 10**5)),  # more than fits into L1 for certain
        of("latency", "uncached", (2**17, 10**4)),
        of("latency", "cached", (2**24, 10**3)),
        of("latency", "serial", (2**10, 10**5)),
    ]
    bandwidth = [
        of("bandwidth", "cached", (2**14, 2**16)),
        of("bandwidth", "uncached", (2**18, 2**12)),
        of("bandwidth", "cached", (2**28, 1)),
        of("bandwidth", "stride_8", (2**28, 1), 8 * SECONDS),
        of("bandwidth", "constant_serialised", (512, 2**10)),
    ]
    copied = [of("copy", "cupy", (2**27,), dtype="float64"), of("copy", "cupy", (2**20,), 4e-6, dtype="float64")]
    product = [of("matmul", "naive", (64,) * 3, dtype="float32")]
    sweeps = {"latency": latency, "bandwidth": bandwidth, "copy": copied, "size": product}
    return timings.write(tmp_path / "timings.h5", sweeps, {"gpus": [GPU]})


def test_the_fastest_point_of_each_level_is_its_row(file):
    rows = analysis.levels(analysis.measurements(store.read(file)))
    assert list(rows[rows["device"] == "cuda"]["level"]) == [
        *("registers", "shared memory", "constant memory, an address for each lane", "L1 cache", "L2 cache", "DRAM"),
        *("DRAM, copy", "DRAM, neighbours 8 elements apart"),
    ]
    known = {row["level"]: row for row in rows.to_dict("records")}
    assert known["registers"]["latency_seconds"] == pytest.approx(SECONDS / 10**6)
    assert known["shared memory"]["latency_seconds"] == pytest.approx(SECONDS / 10**5)
    assert known["shared memory"]["latency_cycles"] == pytest.approx(SECONDS / 10**5 * 1.5e9)
    assert known["L1 cache"]["latency_bytes"] == 65536  # pointers
    assert known["DRAM"]["latency_bytes"] == 2**26  # in place
    assert known["L1 cache"]["bytes_per_second"] == pytest.approx(2**30 * 4 / SECONDS)
    assert known["DRAM"]["bytes_per_second"] == pytest.approx(2**30 / SECONDS)
    assert known["DRAM, copy"]["bytes_per_second"] == pytest.approx(2 * 2**30 / SECONDS)
    assert known["DRAM, neighbours 8 elements apart"]["bytes_per_second"] == pytest.approx(2**30 / 8 / SECONDS)
    assert known[""]["device"] == "cpu" and known[""]["latency_bytes"] == 4096


def test_measured_bandwidths_are_ceilings_of_the_roofline(file):
    frame = analysis.measurements(store.read(file))
    (roof,) = analysis.rooflines(frame)
    names, _, rates = zip(*roof.ceilings, strict=True)
    levels = [f"{level}, measured" for level in ("L1 cache", "L2 cache", "DRAM")]
    assert list(names) == ["float32 arithmetic", *levels, "highest rates of this run"]
    assert rates == pytest.approx([4.8e12, 2**32 / SECONDS, 2**32 / SECONDS, 2**30 / SECONDS, 2**24 / 4e-6])
    assert set(roof.rungs["operation"]) == {"matmul"}
    assert frame[frame["operation"].isin(["latency", "bandwidth"])]["fraction"].isna().all()


def test_the_report_has_the_table(file, tmp_path):
    page, _ = report.build(file, tmp_path / "results")
    assert 'id="levels"' in page.read_text("utf-8")
    table = (tmp_path / "results/tables/memory.levels.md").read_text("utf-8")
    assert "| shared memory" in table and "shared, 2 KiB" in table and "cached, 1 GiB" in table
    assert (tmp_path / "results/tables/memory.levels.csv").is_file()


def test_the_piece_of_a_block_is_that_of_the_sources():
    for name in ("cached", "uncached"):
        source = kernels.FOLDER / "bandwidth" / "lessons" / f"{name}.cu"
        assert "IN_FLIGHT = 8, PIECE = IN_FLIGHT * BLOCK;" in source.read_text("utf-8")
    assert PIECE_BYTES == 8 * 16 * 512


def test_points_that_do_not_fit_are_not_planned():
    sweep = {"operation": "latency", "shapes": [[8, 5], [9, 5], [16385, 5]]}
    planned = plan.make({"sweeps": {"latency": sweep}, "backends": "auto"}, machine(gpus=1))
    found = {(point.variant, point.shape[0]) for batch in planned.batches for point in batch.points}
    assert ("registers", 8) in found and ("registers", 9) not in found
    assert ("constant", 9) in found and ("constant", 16385) not in found
    assert ("cached", 16385) in found
