"""What to see: each sentence follows from the points, and turns round when they do."""

from __future__ import annotations

import pandas as pd
import pytest
import timings
from timings import FAIL, HOPPER, call_samples, kernel, kernel_samples, measurement

from hpcmm import analysis, store
from hpcmm.analysis import occupancy, scaling
from hpcmm.model import TEXTBOOK, Point
from hpcmm.report import findings

MATMUL = {"alpha": 1.5, "beta": 0.5}
FLAT = (0.99, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.01)  # the interval of nine is the second and the eighth
WIDE = (0.9, 0.9, 0.95, 1.0, 1.0, 1.0, 1.05, 1.1, 1.1)


def product(variant="naive", shape=64, dtype="float32", ranks=1, tile=0, pinned=None, **scalars):
    shape = (shape,) * 3 if isinstance(shape, int) else shape
    return Point("matmul", variant, shape, dtype, ranks, {**MATMUL, **scalars}, tile=tile, pinned=pinned)


def timed(point, seconds, spread=FLAT, **rest):
    return measurement(point, samples=kernel_samples([seconds * factor for factor in spread]), **rest)


def seen(tmp_path, *rows, sweep="size", **provenance):
    columns = store.read(timings.write(tmp_path / "timings.h5", {sweep: rows}, provenance))
    frame = analysis.measurements(columns)
    members = [series.points for series in analysis.series(frame)]
    return findings.what_to_see(pd.concat(members), occupancy.resources(frame), analysis.profiles(columns))


def about(sentences, *words):
    """The one sentence that has all of the words."""
    (found,) = [text for text in sentences if all(word in text for word in words)]
    return found


def test_a_ladder_that_rises_is_said_to(tmp_path):
    rows = [timed(product(v, tile=8), t) for v, t in (("naive", 4.0), ("tiled_padded", 3.0), ("tiled_unrolled", 2.0))]
    text = about(seen(tmp_path, *rows), "rungs")
    assert (
        text
        == "On the GPU at 64, each of the 3 rungs is faster than the one before it: the order in which they are taught."
    )


def test_steps_that_do_not_gain_are_named_with_ratio_interval_and_reason(tmp_path):
    held = kernel(HOPPER, (8, 8), 32, registers=32)
    fewer = kernel(HOPPER, (8, 8), 8, registers=128, local_bytes=24)
    rows = [
        timed(product("naive", tile=8), 4.0, resources=held),
        timed(product("uncoalesced", tile=8), 8.0, resources=fewer),
        timed(product("tiled_padded", tile=8), 3.0),
        timed(product("tiled_unrolled", tile=8), 3.0, WIDE),
        measurement(product("register_1d"), samples=kernel_samples([1.0] * 3)),
    ]
    text = about(seen(tmp_path, *rows), "steps")
    assert text.startswith("On the GPU at 64, 1 of 4 steps up the ladder gain for certain. The others: ")
    assert "slower: uncoalesced 8 after naive 8 (0.500×, 0.500 to 0.500; a warp's threads take different rows; " in text
    assert "24 B a thread are spilled to local memory; occupancy 25 % instead of 100 %, limited by registers)" in text
    assert "no difference seen: tiled_unrolled 8 after tiled_padded 8 (1.00×, 0.909 to 1.11)" in text
    assert "too few repetitions to tell: register_1d after tiled_unrolled 8 (3.00×)." in text


def test_a_rung_that_is_no_more_has_a_ratio_without_a_reason(tmp_path):
    rows = [timed(product(v), t) for v, t in (("register_1d", 1.0), ("register_2d", 2.0), ("vectorized", 3.0))]
    columns = store.read(timings.write(tmp_path / "timings.h5", {"size": rows}))
    for name in ("variant", "contender"):
        columns["measurements"][name][2] = "retired"
    frame = analysis.measurements(columns)
    sentences = findings.what_to_see(frame, occupancy.resources(frame), analysis.profiles(columns))
    assert "retired after register_2d (0.667×, 0.667 to 0.667)" in about(sentences, "steps")


def test_a_profile_explains_a_step_that_does_not_gain(tmp_path):
    rows = [timed(product(v, tile=8), t) for v, t in (("naive", 4.0), ("bank_conflict", 5.0), ("conflict_free", 3.0))]
    columns = store.read(timings.write(tmp_path / "timings.h5", {"size": rows}))
    frame = analysis.measurements(columns)
    counters = {"shared_wavefronts_per_load": 1.0, "load_sectors": 4.0, "active_threads": 32.0}
    worse = {"shared_wavefronts_per_load": 8.0, "load_sectors": 4.2, "active_threads": 16.0, "achieved_occupancy": 0.4}
    profiles = pd.DataFrame(
        [
            {
                "operation": "matmul",
                "dtype": "float32",
                "gpu": "",
                "rung": rung,
                "achieved_occupancy": 0.8,
                **counters,
                **own,
            }
            for rung, own in (("naive 8", {}), ("bank_conflict 8", worse), ("conflict_free 8", {}))
        ]
    )
    points = analysis.points(frame)
    text = about(findings.what_to_see(points, occupancy.resources(frame), profiles), "steps")
    assert "bank_conflict 8 after naive 8 (0.800×, 0.800 to 0.800; tiles stored by columns, against the banks; " in text
    assert "a load from shared memory takes 8.00 wavefronts instead of 1.00; 16.0 threads of a warp take part" in text
    assert "the occupancy reached is 40 % instead of 80 %)" in text and "sectors" not in text


def test_the_fastest_rung_stands_beside_baseline_and_limit(tmp_path):
    gpu = {"compute_capability": "90", "multiprocessors": 1, "max_sm_clock": 1e9, "memory_bytes_per_second": 1e15}
    seconds = 2 * 64**3 / 128e9
    rows = [
        timed(product("naive", tile=8), seconds),
        timed(product("naive", tile=8), seconds / 2, contender="cublas"),
        timed(product("naive", 32, tile=8), seconds),
    ]
    text = about(seen(tmp_path, *rows, gpus=[gpu]), "fastest rung")
    assert text == (
        "At 64 in float32 the fastest rung of the GPU is naive 8 with 128 GFLOP/s; its speed over cublas: "
        "0.500×, 0.500 to 0.500; of the limit (float32 FMA units): 50 %."
    )


def test_a_rung_of_other_arithmetic_says_so(tmp_path):
    gpu = {"compute_capability": "90", "multiprocessors": 1, "max_sm_clock": 1e9, "memory_bytes_per_second": 1e15}
    rows = {dtype: timed(product("tensor_core", dtype=dtype), 2 * 64**3 / 128e9) for dtype in ("float32", "float64")}
    beginning = "At 64 in float{} the fastest rung of the GPU is tensor_core{} with 128 GFLOP/s"
    assert about(seen(tmp_path, rows["float32"], gpus=[gpu]), "fastest rung") == (
        beginning.format(32, " (three TF32 products)") + "."
    )
    assert about(seen(tmp_path, rows["float64"], gpus=[gpu]), "fastest rung") == (
        beginning.format(64, "") + "; of the limit (float64 tensor cores): 50 %."
    )
    slower = timed(product("naive", tile=8), 2 * 64**3 / 64e9)
    assert about(seen(tmp_path, rows["float32"], slower, gpus=[gpu]), "fastest rung") == (
        beginning.format(32, " (three TF32 products)")
        + ". In float32 arithmetic itself it is naive 8 with 64.0 GFLOP/s; "
        "of the limit (float32 FMA units): 25 %."
    )


def test_failures_come_first(tmp_path):
    rows = [
        timed(product("naive", 641, tile=32), 1.0),
        measurement(product("naive_unguarded", 641, tile=32), verdict=FAIL),
        measurement(product("tiled_exact", 641, tile=32), verdict=FAIL),
    ]
    first = seen(tmp_path, *rows)[0]
    assert first == (
        "FAIL at 641: naive_unguarded 32 and tiled_exact 32. In naive_unguarded 32 the first wrong element is 0:640."
    )


def test_the_fastest_tile(tmp_path):
    rows = [timed(product("naive", tile=t), s) for t, s in ((8, 2.0), (16, 1.0), (32, 1.5))]
    rows += [timed(product("tiled_padded", tile=t), s, WIDE) for t, s in ((8, 1.0), (16, 1.01))]
    assert about(seen(tmp_path, *rows), "tile at") == (
        "The fastest tile at 64 is 16 for naive (beside tile 32: 1.50×, 1.50 to 1.50), "
        "8 for tiled_padded (beside tile 16: no difference seen: 1.01×, 0.826 to 1.23)."
    )


def test_what_a_remainder_costs_and_where_the_peaks_are(tmp_path):
    rows = [timed(product("naive", n, tile=8), 2 * n**3 / (100e9 if n % 8 == 0 else 80e9)) for n in range(60, 78)]
    rows += [timed(product("naive", n, tile=32), 2 * n**3 / 100e9, WIDE) for n in (64, 65)]
    text = about(seen(tmp_path, *rows), "multiple")
    assert "naive 8 (0.800× in the median of 2, from 0.800 to 0.800) with its peaks at 2 of 2 multiples" in text
    assert "naive 32 (no difference seen: 1.00×, 0.818 to 1.22)" in text


def test_pitch(tmp_path):
    phases = {"kernel": 1.0, "pitch": 1.0, "total": 4.0}
    rows = []
    for n, gain in ((50, 2.0), (100, 0.5), (150, 1.0)):
        rows.append(timed(product("tiled_padded", n, tile=8), 1.0))
        fast = timed(product("pitched", n, tile=8), 1.0 / gain)
        samples = (*fast.samples, *call_samples([[phases]] * 6))
        rows.append(measurement(fast.point, samples=samples))
    assert about(seen(tmp_path, *rows), "Of 3 points") == (
        "Of 3 points pitched is faster than tiled_padded at 1 and slower at 1; the most is pitched 8 at 50 "
        "(2.00×, 2.00 to 2.00). The copies take 25 % of the end-to-end time."
    )


def test_narrow_shapes_stand_beside_the_square_of_equal_work(tmp_path):
    shapes = {(64, 64, 64): 1.0, (16, 256, 64): 2.0, (256, 16, 64): 4.0, (64, 64, 65): 9.0, (32, 32, 32): 1.0}
    rows = [timed(product("packed", shape), seconds) for shape, seconds in shapes.items()]
    assert about(seen(tmp_path, *rows), "square") == (
        "Rate beside that of the square of equal work (64): packed 0.250× (256 × 16 × 64) to 0.500× (16 × 256 × 64)."
    )


def test_host_memory(tmp_path):
    def whole(pinned, upload):
        phases = {"upload": upload, "kernel": 1.0, "download": 1.0, "total": upload + 2}
        point = product("naive", tile=8, pinned=pinned)
        return measurement(point, samples=(*kernel_samples([1.0] * 9), *call_samples([[phases]] * 9)))

    assert about(seen(tmp_path, whole(True, 2.0), whole(False, 6.0)), "pinned") == (
        "Speed from pinned over pageable memory, naive 8 at 64: end to end 2.00×, 2.00 to 2.00; upload 3.00×; "
        "download 1.00×; kernel alone no difference seen: 1.00×, 1.00 to 1.00."
    )


def test_more_ranks(tmp_path):
    rows = [timed(product("packed", ranks=ranks), seconds) for ranks, seconds in ((1, 4.0), (2, 2.5))]
    assert (
        about(seen(tmp_path, *rows), "ranks")
        == "Speed on 2 ranks over 1, packed at 64: kernel alone 1.60×, 1.60 to 1.60."
    )


def test_from_which_length_on_half_of_the_rate(tmp_path):
    lengths = {2**10: 1.0, 2**20: 60.0, 2**22: 100.0}
    rows = [
        timed(Point("sum", "sequential", (n,), "int32", 1), 4 * (n + 1) / rate / 1e9) for n, rate in lengths.items()
    ]
    assert about(seen(tmp_path, *rows), "half") == "sequential has half of its highest rate from n = 2²⁰ on."


def test_nothing_is_said_where_nothing_is_known(tmp_path):
    assert seen(tmp_path, measurement(product("naive", tile=8))) == []


@pytest.mark.parametrize(("low", "high", "text"), [(1.1, 1.3, "1.20×, 1.10 to 1.30"), (0.9, 1.3, "no difference seen")])
def test_a_difference_within_the_interval_is_none(low, high, text):
    assert str(findings.Ratio(1.2, low, high)).startswith(text)


def test_every_sweep_of_the_config_has_something_to_see(modelled):
    columns = store.read(modelled)
    frame = analysis.measurements(columns)
    by_sweep = {}
    for series in analysis.series(frame):
        by_sweep.setdefault(series.sweep, []).append(series.points)
    for sweep, members in by_sweep.items():
        told = findings.what_to_see(pd.concat(members), occupancy.resources(frame), analysis.profiles(columns))
        assert told and not [text for text in told if "nan" in text], sweep


def test_algorithms_stand_beside_the_textbooks(tmp_path):
    rows = []
    for algorithm, call, seconds, textbook in (("staged", True, 0.5, 10.0), ("ring", False, 2.0, 1.0)):
        point = Point("matmul", "cublas", (8, 8, 8), "float32", 4, {"alpha": 1.0, "beta": 0.0}, algorithm)
        for name, time in ((algorithm, seconds), ("scatter", textbook)):
            samples = timings.call_samples([[{"total": time}]] * 7) if call else kernel_samples([time] * 7)
            rows.append(measurement(point, samples=samples, algorithm=name))
    expected = "(float32, 8, ranks: 4): cublas staged 20.0× (end to end) and cublas ring 0.500×."
    assert about(seen(tmp_path, *rows), "Beside").endswith(expected)


def test_products_over_ranks_stand_beside_the_librarys_own(tmp_path):
    took = [
        *(("cublas", "cublasmp", 4, 4.0), ("cublas", "resident", 4, 5.0), ("cublas", "ring", 4, 8.0)),
        *(("warpgroup", "resident", 4, 2.0), ("cublas", "cublasmp", 2, 1.0), ("cublas", "staged", 4, 1.0)),
    ]
    rows = []
    for variant, algorithm, ranks, seconds in took:
        point = Point("matmul", variant, (8, 8, 8), "float32", ranks, {"alpha": 1.0, "beta": 0.0}, algorithm)
        call = timings.call_samples([[{"total": seconds}] * ranks] * 7)
        samples = call if algorithm == "staged" else kernel_samples([[seconds] * ranks] * 7)
        rows.append(measurement(point, samples=samples, algorithm=algorithm))
    for algorithm, seconds in (("cublasmp", 3.0), ("ring", 1.0)):  # something else was asked of them
        other = Point("matmul", "cublas", (8, 8, 8), "float32", 4, {"alpha": 2.0, "beta": 0.0}, algorithm)
        rows.append(measurement(other, samples=kernel_samples([[seconds] * 4] * 7), algorithm=algorithm))
    expected = (
        "8 in float32: warpgroup resident 2.00×, 2.00 to 2.00 and cublas resident 0.800×, 0.800 to 0.800; "
        "8 in float32: cublas ring 3.00×, 3.00 to 3.00."
    )
    assert about(seen(tmp_path, *rows), "Beside cublasmp on 4 ranks").endswith(expected)
    assert not [text for text in seen(tmp_path, *rows[1:4]) if "cublasmp" in text]


def test_an_algorithm_around_the_library_is_no_fastest_rung(tmp_path):
    library = Point("matmul", "cublas", (64, 64, 64), "float32", 1, {"alpha": 1.5, "beta": 0.5}, "resident")
    rows = [timed(product("naive"), 4.0), timed(library, 1.0)]
    columns = store.read(timings.write(tmp_path / "timings.h5", {"size": rows}))
    frame = analysis.measurements(columns)
    (headline,) = findings.headlines(frame, scaling.speedups(frame))
    assert headline.name == "Fastest product" and headline.text.startswith("naive on the GPU at 64 in float32")
    assert "the fastest rung of the GPU is naive" in about(seen(tmp_path, *rows), "fastest rung")


def test_kernels_that_exchange_nothing_are_no_scaling(tmp_path):
    rows = []
    for ranks, algorithm, seconds in ((1, TEXTBOOK, 8.0), (2, TEXTBOOK, 4.0), (2, "ring", 5.0)):
        point = Point("matmul", "cublas", (64, 64, 64), "float32", ranks, {"alpha": 1.5, "beta": 0.5}, algorithm)
        rows.append(measurement(point, samples=kernel_samples([[seconds] * ranks] * 7)))
    frame = analysis.measurements(store.read(timings.write(tmp_path / "timings.h5", {"size": rows})))
    headline = findings.headlines(frame, scaling.speedups(frame))[-1]
    assert headline.value == "80 %" and "cublas ring on 2 ranks" in headline.text


def test_the_headline_of_scaling_is_of_the_fastest_beside_one_rank_at_the_same_size(tmp_path):
    took = [
        *(("cublas", 1, TEXTBOOK, 64, 8.0), ("cublas", 2, "ring", 64, 4.1), ("cublas", 1, TEXTBOOK, 32, 0.7)),
        *(("tensor_core", 1, TEXTBOOK, 64, 4.0), ("tensor_core", 2, "ring", 64, 2.5)),
        *(("cublas", 2, "ring", 128, 90.0), ("cublas", 1, TEXTBOOK, 90, 100.0)),  # as many bytes for each rank
    ]
    rows = []
    for variant, ranks, algorithm, n, seconds in took:
        point = Point("matmul", variant, (n, n, n), "float32", ranks, {"alpha": 1.0, "beta": 0.0}, algorithm)
        rows.append(measurement(point, samples=kernel_samples([[seconds] * ranks] * 7)))
    frame = analysis.measurements(store.read(timings.write(tmp_path / "timings.h5", {"size": rows})))
    gains = scaling.speedups(frame)
    assert {"strong", "memory-constrained"} <= set(gains["kind"])
    headline = findings.headlines(frame, gains)[-1]
    assert headline.value == "80 %" and "tensor_core ring on 2 ranks at 64 in float32" in headline.text
    assert "(strong scaling)" in headline.text


def test_of_several_machines_a_headline_names_its_own(tmp_path):
    path = timings.write(tmp_path / "timings.h5", {"size": [timed(product("naive"), 4.0)]})
    one = analysis.measurements(store.read(path))
    text = "naive on the GPU at 64 in float32"
    assert findings.headlines(one, scaling.speedups(one))[0].text == text
    slower = one.assign(machine="S", flops_per_second=one["flops_per_second"] / 2)
    both = pd.concat([slower, one.assign(machine="T")], ignore_index=True)
    assert findings.headlines(both, scaling.speedups(both))[0].text == f"{text}; T"
