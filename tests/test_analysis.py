"""Derived numbers, compared with independent arithmetic."""

import dataclasses
import itertools
import math
from statistics import median

import numpy as np
import pandas as pd
import pytest
import timings
from timings import FAIL, call_samples, derived, kernel_samples, measurement, merged, product, timed, took, total

from hpcmm import analysis, report, store
from hpcmm.model import UNCHECKED, Verdict
from hpcmm.model.measurement import Sample
from hpcmm.operations import dimensions
from hpcmm.report import chapters, export, headlines
from hpcmm.report.ratio import Ratio


@pytest.mark.parametrize("name", ["operation", "dtype", "algorithm", "device"])
def test_unknown_names_are_refused(name):
    columns = timings.columns({"size": [measurement(total("serial"))]})
    columns["measurements"][name][0] = "newer"
    with pytest.raises(store.StoreError, match=r"newer.* unknown to this version: upgrade"):
        analysis.measurements(columns)


def test_kernel_seconds_are_the_median_over_repetitions_of_the_slowest_rank():
    times = [(1.0, 4.0), (5.0, 2.0), (3.0, 3.5)]
    (row,) = derived(took(product(ranks=2), times)).to_dict("records")
    assert row["seconds"] == 4.0
    assert row["repetitions"] == 3
    assert np.isnan(row["seconds_low"]) and np.isnan(row["seconds_high"])
    assert row["flops_per_second"] == 2 * 64**3 / 4.0
    assert row["bytes_per_second"] == 4 * 64**2 * 4 / 4.0
    assert np.isnan(row["call_seconds"])
    assert row["result"] == "PASS"


def test_interval_of_the_rate_is_the_inverted_interval_of_the_time():
    (row,) = derived(timed(product(), 1.0, spread=(5.0, 4.5, 5.5))).to_dict("records")
    assert row["seconds_low"] < row["seconds"] < row["seconds_high"] and row["seconds"] == pytest.approx(5.0)
    rates = (row["flops_per_second_low"], row["flops_per_second"], row["flops_per_second_high"])
    assert rates == tuple(2 * 64**3 / row[name] for name in ("seconds_high", "seconds", "seconds_low"))


def test_phases_are_of_the_end_to_end_time_only():
    calls = [
        [{"scatter": 1.0, "kernel": 2.0, "total": 6.0}, {"scatter": 1.5, "kernel": 1.0, "total": 6.5}],
        [{"scatter": 0.5, "kernel": 4.0, "total": 9.0}, {"scatter": 0.4, "kernel": 1.0, "total": 8.0}],
        [{"scatter": 1.0, "kernel": 3.0, "total": 7.0}, {"scatter": 1.1, "kernel": 1.0, "total": 7.5}],
    ]
    samples = (*kernel_samples([(0.25, 0.125)]), *call_samples(calls))
    rows = derived(measurement(product(ranks=2), samples=samples))
    (row,) = analysis.phases(analysis.row_dicts(rows))
    assert row["seconds"] == 0.25
    assert row["call_seconds"] == 7.5
    assert row["call_repetitions"] == 3
    assert (row["call_scatter"], row["call_kernel"]) == (1.1, 3.0)
    assert row["share_scatter"] == pytest.approx(1.1 / 7.5)
    assert np.isnan(row["call_upload"]) and np.isnan(row["share_upload"])
    assert row["call_flops_per_second"] == 2 * 64**3 / 7.5


def test_ratio_is_the_median_over_pairs_of_repetitions():
    point = product("tiled_padded", tile=16)
    own, library = [2.0, 4.0, 10.0], [1.0, 8.0, 5.0]
    rows = derived(took(point, own), took(point, [*library, 100.0], "cublas"))
    row = rows[rows["contender"] == "tiled_padded"].iloc[0]
    assert row["ratio"] == median([1 / 2, 8 / 4, 5 / 10])
    assert row["ratio"] != median(library) / median(own)
    assert np.isnan(rows[rows["contender"] == "cublas"].iloc[0]["ratio"])
    assert list(rows["label"]) == ["tiled_padded 16", "cublas"]


def test_ratio_is_to_the_baseline_of_the_same_point():
    rows = []
    for i, (tile, n, dtype, ranks) in enumerate([(8, 64, "float32", 1), (16, 64, "float32", 1), (8, 128, "float32", 1),
                                                 (8, 64, "float64", 1), (8, 64, "float32", 2)]):  # fmt: skip
        point = product("tiled_padded", n, dtype, ranks, tile=tile)
        rows += [took(point, 1.0), took(point, i + 2.0, "cublas")]
    found = analysis.points(derived(*rows))
    assert sorted(found["ratio"]) == [2.0, 3.0, 4.0, 5.0, 6.0]
    assert found.set_index(["tile", "n", "dtype", "ranks"])["ratio"][16, 64, "float32", 1] == 3.0


def test_a_fail_with_samples_has_no_number():
    samples = kernel_samples([1.0] * 9, {"throttle_reasons": 0x8}) + call_samples([[{"kernel": 1.0, "total": 1.0}]])
    wrong = measurement(product(), verdict=FAIL, samples=samples)
    rows = derived(wrong, took(product(), 1.0, "cublas"), took(product("cublas"), 1.0, verdict=FAIL))
    failed = rows[rows["result"] == "FAIL"]
    assert len(failed) == 2
    assert list(failed["where"]) == [FAIL.where] * 2
    columns = [c for c in rows if c.startswith(("seconds", "call_seconds", "call_kernel", "flops_", "bytes_", "ratio"))]
    assert failed[columns].isna().all().all()
    assert (failed["repetitions"] == 0).all() and not failed["throttled"].any()


def test_a_failed_baseline_gives_no_ratio():
    rows = derived(took(product(), 1.0), took(product(), 1.0, "cublas", verdict=FAIL))
    assert rows.iloc[0]["seconds"] == 1.0
    assert np.isnan(rows.iloc[0]["ratio"])


@pytest.mark.parametrize(
    ("reasons", "flagged"),
    [(0x0, False), (0x1, False), (0x2, False), (0x100, False), (0x4, True), (0x8, True), (0x20, True), (0x40, True),
     (0x80, True), (0x1 | 0x4, True), (float("nan"), False)],
)  # fmt: skip
def test_throttled_samples_are_flagged_and_kept(reasons, flagged):
    samples = kernel_samples([1.0, 2.0, 3.0])
    last = Sample(2, 0, False, {"kernel": 3.0}, {"throttle_reasons": reasons})
    (row,) = derived(measurement(product(), samples=(*samples[:2], last))).to_dict("records")
    assert row["throttled"] == flagged
    assert row["seconds"] == 2.0


def test_series_are_split_by_dtype_and_ranks_in_ladder_order():
    points = [product(v, n, dtype, ranks, **({"tile": tile} if tile else {}))
              for dtype in ("float64", "float32") for ranks in (2, 1) for n in (128, 64)
              for v, tile in (("cublas", 0), ("tiled_padded", 32), ("tiled_padded", 8), ("serial", 0))]  # fmt: skip
    frame = derived(*(took(point, 1.0) for point in points))
    found = list(analysis.series(frame))
    assert [(s.sweep, s.dtype, s.ranks, s.setting) for s in found] == [
        ("size", dtype, ranks, "alpha 1.5, beta 0.5") for dtype in ("float32", "float64") for ranks in (1, 2)
    ]
    assert list(found[0].points["label"]) == ["serial", "tiled_padded 8", "tiled_padded 32", "cublas"] * 2
    assert list(found[0].points["n"]) == [64] * 4 + [128] * 4


def test_shapes_that_differ_in_one_dimension_are_different_sizes():
    for changed in dimensions():
        sizes = [dict.fromkeys(dimensions(), 8) | {changed: length} for length in (8, 16, 16)]
        rows = [size | {"operation": "matmul", "flops": math.prod(size.values())} for size in sizes]
        assert list(analysis.by_size(rows).values()) == [rows[:1], rows[1:]]
        assert analysis.largest(rows) == rows[1:] and analysis.largest([]) == []


def test_ladder_steps_are_within_a_device_and_a_length():
    seconds = {"serial": 8.0, "openmp": 2.0, "numpy": 1.0, "divergent": 12.0, "sequential": 3.0, "cub": 0.5}
    rows = [took(total(v, n), t * n) for n in (1024, 4096) for v, t in seconds.items()]
    (found,) = analysis.series(derived(*rows))
    table = pd.DataFrame(analysis.ladder(found.rows)).set_index(["n", "label"])
    for n in (1024, 4096):
        at = table.loc[n]
        assert np.isnan(at.loc["serial", "step"]) and np.isnan(at.loc["divergent", "step"])
        assert at.loc["openmp", "step"] == 4.0 and at.loc["sequential", "step"] == 4.0
        assert at["cumulative"].to_dict() == {
            "serial": 1.0, "openmp": 4.0, "numpy": 8.0, "divergent": 1.0, "sequential": 4.0, "cub": 24.0,
        }  # fmt: skip
        assert np.isnan(at.loc["numpy", "step"]) and np.isnan(at.loc["cub", "step"])
        assert at.loc["cub", "bytes_per_second"] == (n + 1) * 4 / (0.5 * n)


def test_the_rung_after_a_fail_has_no_step():
    wrong = measurement(total("divergent"), verdict=FAIL)
    (found,) = analysis.series(derived(wrong, *(took(total(name), 1.0) for name in ("sequential", "cub"))))
    assert all(math.isnan(row[name]) for row in analysis.ladder(found.rows) for name in ("step", "cumulative"))


@pytest.mark.parametrize("tiles", [(32,), (16, 32)])
def test_a_step_compares_no_two_tiles(tiles):
    points = [product("tiled_padded", tile=tile) for tile in tiles] + [product("tiled_four_blocks", tile=16)]
    rows = [took(each, 1.0 + each.tile) for each in [*points, product("register_1d")]]
    (found,) = analysis.series(derived(*rows))
    counterpart = {row["variant"]: row["counterpart"] for row in analysis.ladder(found.rows)}
    assert counterpart["tiled_four_blocks"] == ("tiled_padded 16" if 16 in tiles else "")
    assert counterpart["register_1d"] == f"tiled_padded {tiles[0]}"  # register_1d has no tile


def test_summary_counts_points_and_keeps_the_reasons():
    point = product()
    throttled = kernel_samples([1.0], {"throttle_reasons": 0x4})
    rows = [measurement(point, verdict=FAIL), took(point, 1.0, "cublas"), took(product("cublas"), 1.0)]
    rows.append(measurement(product("tiled_padded", tile=8), samples=throttled))
    omitted = [{"sweep": "size", "variant": "cublas", "ranks": 2, "reason": "no CUDA device"}]
    columns = timings.columns({"size": rows}, omitted=omitted)
    found = analysis.summary(columns, analysis.measurements(columns))
    assert found.line == "3 points: 2 PASS, 1 FAIL, 1 throttled; 1 variant of sweeps not measured"
    assert list(found.alarms["contender"]) == ["naive"]
    assert list(found.throttlings["label"]) == ["tiled_padded 8"]
    assert found.unplanned.to_dict("records") == [omitted[0] | {"points": 0}]


def test_points_of_failed_jobs_count_as_not_measured(tmp_path):
    """Each point counts, not each group of points with one reason."""
    lost = Verdict(False, math.nan, math.nan, UNCHECKED, "not measured, tried 2 times: no")
    rows = [took(product(), 1.0), measurement(product("cublas"), verdict=lost)]
    failed = {"sweep": "size", "variant": "tiled_padded", "ranks": 1, "reason": "failed: its job", "points": 13}
    omitted = [failed, failed | {"ranks": 2, "reason": "no GPU", "points": 0}]
    columns = store.read(timings.write(tmp_path / "timings.h5", {"size": rows}, omitted=omitted))
    found = analysis.summary(columns, analysis.measurements(columns))
    assert found.line == "15 points: 1 PASS, 14 not measured; 1 variant of sweeps not measured"
    assert found.unmeasured_of(["size"]) == 14 and found.unmeasured_of(["other"]) == 0
    made, _ = report.build(tmp_path / "timings.h5", tmp_path / "report")
    assert "14 <a" in made.read_text() and "13" in made.read_text().partition('id="without-result"')[2]
    assert '"unmeasured": 14,' in export.export(columns, "json")
    assert "hpcmm_unmeasured_points 14\n" in export.export(columns, "prometheus")


def of_run(naive: float, cublas: float) -> dict:
    return {"size": [took(product(), naive), took(product(), cublas, "cublas")]}


CPU = {"cpu": {"model": "Model T", "cores": 2}}
H200, A100 = CPU | {"gpus": [{"name": "H200"}]}, CPU | {"gpus": [{"name": "A100"}] * 2}


def test_the_newest_run_on_a_machine_counts():
    old, new = (H200 | {"host": host, "utc": f"2026-0{month}-01"} for host, month in (("n1", 1), ("n2", 2)))
    columns = merged((new, of_run(4.0, 1.0)), (old, of_run(2.0, 1.5)))
    frame = analysis.measurements(columns)
    (row,) = analysis.points(frame).to_dict("records")
    assert row["seconds"] == 4.0 and row["ratio"] == 0.25
    assert len(frame) == 4 and analysis.summary(columns, frame).superseded == 1
    assert set(analysis.split_by_machine(frame)["sweep"]) == {"size"}


def test_kinds_of_machines_are_separate():
    only = {"here": [took(product(ranks=2), 1.0)]}
    runs = (H200 | {"utc": "2026-01-01"}, of_run(4.0, 1.0)), (A100 | {"utc": "2026-01-02"}, of_run(2.0, 1.5) | only)
    columns = merged(*runs)
    frame = analysis.split_by_machine(analysis.measurements(columns))
    found = {series.sweep: series.points["seconds"].tolist() for series in analysis.series(frame)}
    a100, h200 = "Model T, 2 cores, A100", "Model T, 2 cores, H200"
    assert found == {f"size ({h200})": [4.0], f"size ({a100})": [2.0], "here": [1.0]}
    assert analysis.summary(columns, frame).superseded == 0 and analysis.summary(columns, frame).machines == 2


HOT, PART = {"measuring": {"cache": "hot"}}, {"surroundings": {"limits": {"CPU affinity": "8 of 64 CPUs"}}}
LARGE = PART | {"cpu": {"model": "Model T", "cores": 64}}


@pytest.mark.parametrize(
    ("runs", "machines"),
    [
        (
            [H200 | HOT, CPU, {"cpu": {"model": "Model S"}}],
            ["Model T, 2 cores, H200, hot caches", "Model T, 2 cores, H200", "Model S"],
        ),
        (
            [gpu | {"revision": of} for of, gpu in (("a", A100), ("b", H200), ("a", CPU), ("b", CPU), ("c", CPU))],
            [f"Model T, 2 cores{gpu}" for gpu in (", A100", ", H200", ", A100", ", H200", "")],
        ),
        (
            [PART | {"cpu": {"model": "Model S", "cores": 64}}, LARGE | {"gpus": [{"name": "H200"}]}, LARGE],
            ["Model S, 8 of 64 CPUs", *["Model T, 64 cores, H200"] * 2],
        ),
    ],
    ids=["the same CPU", "the same revision", "a part of a CPU"],
)
def test_a_cpu_run_belongs_to_the_machine_with_its_cpu_of_its_revision_and_is_named_by_its_part(runs, machines):
    gpus = [run.get("gpus", [{"name": ""}])[0]["name"] for run in runs]
    found = analysis.machines(merged(*((run, of_run(1, 1)) for run in runs)))
    assert found == list(zip(gpus, machines, strict=True))


def test_unreadable_provenance_is_empty():
    columns = {"runs": {"batch": ["a", "b", "c"], "provenance": ['{"host": "h"}', "{", "[]"]}}
    assert analysis.runs(columns) == [{"host": "h"}, {}, {}]


def test_a_pitched_rung_is_paired_with_the_same_kernel_without_pitch():
    times = [5.0, 4.5, 5.5]
    rows = [
        timed(product("tiled_padded", tile=8), 1.0, spread=times),
        timed(product("pitched", tile=8), 0.25, spread=times),
        *(took(product("pitched", **other), times) for other in ({"tile": 16}, {"tile": 8, "dtype": "float64"})),
        took(product("pitched", n=128, tile=8), times),
        measurement(product("tiled_padded", n=128, tile=8), verdict=FAIL),
    ]
    ((row, plain),) = analysis.pitch_pairs(analysis.row_dicts(analysis.points(derived(*rows))))
    gain = Ratio.of(row, plain)
    assert (row["variant"], row["n"], row["tile"], row["dtype"]) == ("pitched", 64, 8.0, "float32")
    half = math.log(row["seconds_high"] / row["seconds"])
    assert gain.value == pytest.approx(4.0)
    assert [gain.low, gain.high] == pytest.approx([4 * math.exp(-2 * half), 4 * math.exp(2 * half)])


def test_a_roofline_has_the_fastest_points_and_highest_rates():
    vector = total(n=1024, dtype="float32")
    times = [
        *((product(), 2.0), (product(n=128), 8.0), (product("cublas", n=128), 4.0), (product(n=128, ranks=2), 0.001)),
        *((vector, 1e-6), (dataclasses.replace(vector, variant="divergent"), 2e-6)),
    ]
    rows = [took(point, seconds) for point, seconds in times]
    rows.append(measurement(product("tiled_padded", dtype="float64", tile=8), verdict=FAIL))
    assert list(analysis.rooflines(derived(*rows))) == []  # a hardware limit is not known
    (roof,) = analysis.rooflines(analysis.measurements(timings.columns({"size": rows}, {"gpus": [CHIP]})))
    assert (roof.device, roof.dtype) == ("cuda", "float32")
    assert roof.ceilings[1:] == [("highest rates of this run", 2 * 128**3 / 4.0, pytest.approx(4 * 1025 / 1e-6))]
    assert roof.rungs[["rung", "n", "seconds"]].to_numpy().tolist() == [
        *(["naive", 128, 8.0], ["cublas", 128, 4.0], ["divergent", 1024, 2e-6], ["sequential", 1024, 1e-6])
    ]


def test_states_are_medians_of_neighbours_on_rank_0(monkeypatch):
    def clocked_at(clocks):
        return tuple(
            Sample(i, rank, False, {"kernel": 1.0}, {"sm_clock": clock + 100 * rank, "power": 2 * clock})
            for i, clock in enumerate(clocks)
            for rank in (0, 1)
        )

    sweeps = {
        "cold": [measurement(product(ranks=2), samples=clocked_at([1.0, 9.0, 2.0]))],
        "none": [took(product("serial", ranks=2), [(1.0, 1.0)])],
        "warm": [measurement(product(ranks=2), samples=clocked_at([5.0, 7.0]))],
    }
    columns = timings.columns(sweeps)
    frame = analysis.measurements(columns)
    columns_of = ["sample", "sweep", "sm_clock", "power"]
    each = analysis.clock_samples(columns, frame)[columns_of].to_numpy().tolist()
    assert each == [[0, "cold", 1, 2], [2, "cold", 9, 18], [4, "cold", 2, 4], [8, "warm", 5, 10], [10, "warm", 7, 14]]
    monkeypatch.setattr("hpcmm.analysis.views.MOST_STATES", 2)
    few = analysis.clock_samples(columns, frame)[columns_of].to_numpy().tolist()
    assert few == [[0, "cold", 2.0, 4.0], [8, "warm", 6.0, 12.0]]


# --- limits and activities ---------------------------------------------------------------------------------------

CHIP = {"compute_capability": "90", "multiprocessors": 10, "max_sm_clock": 2e9, "memory_bytes_per_second": 1e12}


def limited(*rows, gpus=(CHIP,), **provenance):
    return derived(*rows, gpus=list(gpus), **provenance)


def test_the_arithmetic_limit_is_at_the_maximum_clock():
    rows = limited(
        timed(product(n=512), 1e-3, clock=1.5e9),
        measurement(product(n=512, dtype="float64"), samples=kernel_samples([1e-3] * 3, {"sm_clock": 1e9})),
    )
    work = 2 * 512**3 / 1e-3
    assert list(rows["peak_flops_per_second"]) == [10 * 256 * 2e9] * 2
    assert list(rows["fraction"]) == pytest.approx([work / 5.12e12] * 2)
    assert list(rows["ceiling"]) == ["float32 FMA units", "float64 tensor cores"]
    assert rows["clock"][0] == 1.5e9 and math.isnan(rows["clock"][1])
    ladder, _ = (chapters.ladder.ladder_table(each) for each in analysis.series(rows))
    assert [row[ladder.head.index("SM clock")].text for row in ladder.rows] == ["1.50 GHz"]


def test_a_library_for_context_is_no_rung_and_no_baseline():
    names = ("naive", "large_thread_tile", "cublas", "cublaslt", "cublas_tf32")
    seconds = dict(zip(names, (4e-3, 2e-3, 1e-3, 0.5e-3, 0.25e-3), strict=True))
    rows = [timed(product(name, n=512), seconds[name]) for name in names]
    rows += [timed(product(name, n=512), seconds["cublas"], "cublas") for name in names if name != "cublas"]
    points = analysis.points(limited(*rows)).set_index("variant")
    assert list(points["role"]) == ["rung", "rung", "baseline", "context", "context"]
    assert list(points["ratio"]) == pytest.approx([0.25, 0.5, 1.0, 2.0, 4.0])
    assert list(points["ceiling"]) == ["float32 FMA units"] * 4 + ["TF32 on tensor cores"]
    (series,) = analysis.series(points.reset_index())
    ladder = pd.DataFrame(analysis.ladder(series.rows)).set_index("variant")
    assert ladder["step"].dropna().to_dict() == pytest.approx({"large_thread_tile": 2.0})
    assert "fastest rung of the GPU is large_thread_tile" in chapters.ladder.best(series.rows)
    found = headlines.by_size(series.rows)
    assert found.value == "0 of 1" and found.text == (
        "sizes where the fastest rung is ahead of cublas and of cublaslt, behind at 1. "
        "Over the faster one: 0.250× at 512."
    )


def test_the_headline_over_sizes_names_the_arithmetic_of_the_library_apart():
    rows = []
    for name, n in itertools.product(("naive", "tensor_core"), (128, 256, 512)):
        rows.append(timed(product(name, n), 2e-3 if name == "naive" else 0.5e-3))
        rows.append(timed(product(name, n), 1e-3, "cublas"))
    (series,) = analysis.series(limited(*rows))
    found = headlines.by_size(series.rows)
    both = " (three TF32 products against float32)"
    assert found.value == "0 of 3" and found.text == (
        "sizes where the fastest rung in float32 arithmetic is ahead of cublas, behind at 3. Over it: "
        "0.500× at 128, 0.500× at 256, 0.500× at 512. "
        f"In any arithmetic 3 of 3. Over it: 2.00×{both} at 128, 2.00×{both} at 256, 2.00×{both} at 512."
    )


def test_other_arithmetic_has_its_own_limit():
    pairs = itertools.product(("tensor_core", "swizzled"), ("float32", "float64"))
    points = [product(variant, n=512, dtype=dtype) for variant, dtype in pairs]
    rows = limited(*(timed(point, 1e-3) for point in points))
    assert list(rows["arithmetic"]) == ["three TF32 products", "", "", ""]
    emulated = "three TF32 products on tensor cores"
    assert list(rows["ceiling"]) == [emulated, "float64 tensor cores", "float32 FMA units", "float64 tensor cores"]
    (roof, _) = analysis.rooflines(rows)
    assert roof.ceilings[0] == ("float32 arithmetic", 10 * 256 * 2e9, 1e12)
    assert roof.ceilings[1] == ("three TF32 products", pytest.approx(10 * 2048 / 3 * 2e9), 1e12)


@pytest.mark.parametrize(
    ("point", "uuids", "nbytes"),
    [(product("naive", (4096, 1, 4096)), "a", 4 * (4096 * 4096 + 3 * 4096)), (total(n=1024, ranks=2), "ab", 4 * 1025)],
    ids=["a thin product", "a reduction on all GPUs"],
)
def test_the_limit_is_that_of_the_memory_where_it_takes_longer(point, uuids, nbytes):
    (row,) = limited(timed(point, 1e-3), gpus=[CHIP | {"uuid": each} for each in uuids]).to_dict("records")
    assert (row["ceiling"], row["fraction"]) == ("memory", pytest.approx(nbytes / len(uuids) / 1e12 / 1e-3))


def test_an_unknown_limit_is_nan():
    old = {key: value for key, value in CHIP.items() if key != "memory_bytes_per_second"}
    rows = [
        limited(took(product("serial"), 1.0)),
        limited(timed(product(), 1e-6), gpus=()),
        limited(timed(product(), 1e-6), gpus=(old,)),
        limited(timed(total(), 1e-6), measuring={"cache": "hot"}),
        limited(measurement(product(), verdict=FAIL)),
    ]
    assert all(np.isnan(frame["fraction"].iloc[0]) for frame in rows)
    assert [frame["ceiling"].iloc[0] for frame in rows[:4]] == [""] * 4


def test_with_hot_caches_a_product_has_only_the_arithmetic_limit():
    rows = limited(timed(product(), 1e-6), measuring={"cache": "hot"})
    assert rows["ceiling"].iloc[0] == "float32 FMA units"


def test_activities_are_sums_over_all_samples():
    calls = [
        [{"upload": 1.0, "kernel": 2.0, "total": 4.0}, {"upload": 3.0, "kernel": 2.0, "total": 6.0}],
        [{"upload": 2.0, "kernel": 4.0, "total": 8.0}, {"upload": 2.0, "kernel": 2.0, "total": 8.0}],
    ]
    point = product(ranks=2, tile=8)
    samples = (*kernel_samples([(9.0, 9.0)]), *call_samples(calls))
    rows = [
        measurement(point, samples=samples),
        measurement(point, "cublas", samples=samples),
        measurement(product("tiled_padded", ranks=2, tile=8), verdict=FAIL, samples=samples),
        took(product("cublas", ranks=2), 9.0),
    ]
    columns = timings.columns({"size": rows})
    found = analysis.activities(columns, analysis.measurements(columns))
    assert list(found["label"]) == ["naive 8", "naive 8"]
    names = ["activity", "calls", "total", "mean", "least", "most"]
    assert found[names].to_dict("records") == [
        {"activity": "upload", "calls": 4, "total": 8.0, "mean": 2.0, "least": 1.0, "most": 3.0},
        {"activity": "kernel", "calls": 4, "total": 10.0, "mean": 2.5, "least": 2.0, "most": 4.0},
    ]
    assert list(found["share"]) == pytest.approx([8 / 26, 10 / 26])
