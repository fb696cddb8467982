"""Findings: each sentence follows from the points, and changes when they do."""

import math

import modelled_run
import pandas as pd
import pytest
import timings
from timings import FAIL, HOPPER, SMALL, call_samples, kernel, kernel_samples, measurement, product, timed

from hpcmm import analysis, store
from hpcmm.analysis import scaling
from hpcmm.model import TEXTBOOK
from hpcmm.report import chapters, formats, headlines
from hpcmm.report.ratio import UNKNOWN, Ratio

WIDE = (0.9, 0.9, 0.95, 1.0, 1.0, 1.0, 1.05, 1.1, 1.1)


def seen(*rows, **provenance):
    found = analysis.series(timings.derived(*rows, **provenance))
    return [each.text for each in chapters.what_to_see([row for series in found for row in series.rows])]


def about(sentences, *words):
    """Return the only sentence that has all of these words."""
    (found,) = [text for text in sentences if all(word in text for word in words)]
    return found


def test_a_ladder_whose_steps_are_all_faster():
    rows = [timed(product(v, tile=8), t) for v, t in (("naive", 4.0), ("tiled_padded", 3.0), ("tiled_unrolled", 2.0))]
    assert about(seen(*rows), "steps") == (
        "On the GPU at 64, tiled_unrolled 8 is 2.00× naive 8, in 2 steps, 2 of them significantly faster. "
        "The largest: tiled_unrolled 8 1.50×, tiled_padded 8 1.33×."
    )


def test_a_branch_is_no_step_of_the_climb():
    held = kernel(HOPPER, (8, 8), 32, registers=32)
    fewer = kernel(HOPPER, (8, 8), 8, registers=128, local_bytes=24)
    rows = [
        timed(product("naive", tile=8), 4.0, resources=held),
        timed(product("uncoalesced", tile=8), 8.0, resources=fewer),
        timed(product("tiled_padded", tile=8), 3.0),
        timed(product("tiled_unrolled", tile=8), 3.0, spread=WIDE),
        measurement(product("register_1d"), samples=kernel_samples([1.0] * 3)),
    ]
    assert about(seen(*rows), "steps") == (
        "On the GPU at 64, register_1d is 4.00× naive 8, in 2 steps, 1 of them significantly faster (1 without an "
        "interval). The largest: register_1d 3.00×, tiled_padded 8 1.33×."
    )


def test_the_fastest_rung_with_its_ratio_to_baseline_and_limit():
    seconds = 2 * 64**3 / 128e9
    rows = [
        timed(product("naive", tile=8), seconds),
        timed(product("naive", tile=8), seconds / 2, contender="cublas"),
        timed(product("naive", 32, tile=8), seconds),
    ]
    assert about(seen(*rows, gpus=[SMALL]), "only rung") == (
        "At 64 in float32 the only rung timed on the GPU is naive 8: 128 GFLOP/s, "
        "0.500× cublas (95 % CI 0.500 to 0.500), 50 % of the limit (float32 FMA units)."
    )


def test_the_arithmetic_of_the_fastest_rung_is_named():
    rows = {dtype: timed(product("tensor_core", dtype=dtype), 2 * 64**3 / 128e9) for dtype in ("float32", "float64")}
    beginning = "At 64 in float{} the {} is tensor_core{}: 128 GFLOP/s"
    alone, fastest, three = "only rung timed on the GPU", "fastest rung of the GPU", " (three TF32 products)"
    limit = ", 19 % of the limit (three TF32 products on tensor cores)."
    assert about(seen(rows["float32"], gpus=[SMALL]), alone) == beginning.format(32, alone, three) + limit
    double = ", 50 % of the limit (float64 tensor cores)."
    assert about(seen(rows["float64"], gpus=[SMALL]), alone) == beginning.format(64, alone, "") + double
    slower = timed(product("naive", tile=8), 2 * 64**3 / 64e9)
    assert about(seen(rows["float32"], slower, gpus=[SMALL]), "fastest rung") == (
        beginning.format(32, fastest, three)
        + f"{limit} In float32 arithmetic the fastest rung is naive 8: 64.0 GFLOP/s, "
        "25 % of the limit (float32 FMA units)."
    )


def test_the_ratio_over_all_sizes():
    """Of a rung that was measured at each size, and in the arithmetic of the type."""
    rows, sizes = [], (64, 128, 256, 512)
    for dtype, library in (("float32", (0.5, 2.0, 4.0, 8.0)), ("float64", (2.0, 2.0, 2.0, 2.0))):
        for size, seconds in zip(sizes, library, strict=True):
            rungs = {"split_k_dmma" if dtype == "float64" else "split_k": 1.0, "skinny": 1.5, "tensor_core": 0.5}
            if size > 64:
                rungs["large_thread_tile"] = 0.5
            if dtype == "float64":
                del rungs["tensor_core"]  # its arithmetic is that of the type
            for name, each in rungs.items():
                rows.append(timed(product(name, size, dtype), each))
                rows.append(timed(product(name, size, dtype), seconds, contender="cublas"))
    assert about(seen(*rows), "Over") == (
        "Over 4 sizes in float32, split_k has 2.38× cublas (geometric mean), from 0.500× at 64 to 8.00× at 512; "
        "significantly slower at 64. "
        "Over 4 sizes in float64, split_k_dmma has 2.00× cublas (geometric mean), from 2.00× at 64 to 2.00× at 512."
    )
    few = [row for row in rows if row.point.shape[0] < 512]
    assert not any("Over" in text for text in seen(*few))


def test_failures_come_first():
    rows = [
        timed(product("naive", 641, tile=32), 1.0),
        measurement(product("naive_unguarded", 641, tile=32), verdict=FAIL),
        measurement(product("tiled_exact", 641, tile=32), verdict=FAIL),
    ]
    assert seen(*rows)[0] == (
        "FAIL at 641: naive_unguarded 32 and tiled_exact 32, as expected: without bounds checks the tile must "
        "divide the size. First wrong element of naive_unguarded 32: 0:640."
    )


def test_the_fastest_tile():
    rows = [timed(product("naive", tile=t), s) for t, s in ((8, 2.0), (16, 1.0), (32, 1.5))]
    rows += [timed(product("tiled_padded", tile=t), s, spread=WIDE) for t, s in ((8, 1.0), (16, 1.01))]
    assert about(seen(*rows), "tile at") == (
        "Fastest tile at 64: 16 for naive, 1.50× tile 32 (1.50 to 1.50); "
        "8 for tiled_padded, 1.01× tile 16 (0.877 to 1.16, no significant difference)."
    )


def test_the_cost_of_a_remainder_and_the_peaks_at_multiples():
    rows = [timed(product("naive", n, tile=8), 2 * n**3 / (100e9 if n % 8 == 0 else 80e9)) for n in range(60, 78)]
    rows += [timed(product("naive", n, tile=32), 2 * n**3 / 100e9, spread=WIDE) for n in (64, 65)]
    text = about(seen(*rows), "multiple")
    assert "(median, range): naive 8 0.800× (0.800 to 0.800), naive 32 1.00× (0.872 to 1.15, no sig" in text
    assert text.endswith(" The multiple is the fastest size within half a tile: naive 8 at 2 of 2.")


def test_pitch():
    phases = {"kernel": 1.0, "pitch": 1.0, "total": 4.0}
    rows = []
    for n, gain in ((50, 2.0), (100, 0.5), (150, 1.0)):
        rows.append(timed(product("tiled_padded", n, tile=8), 1.0))
        fast = timed(product("pitched", n, tile=8), 1.0 / gain)
        rows.append(measurement(fast.point, samples=fast.samples + timings.in_visits(call_samples([[phases]] * 6))))
    assert about(seen(*rows), "of 3 points") == (
        "pitched is significantly faster than tiled_padded at 1 of 3 points and significantly slower at 1. Largest "
        "speedup: pitched 8 at 50, 2.00× (2.00 to 2.00). The copies take 25 % of the end-to-end time."
    )


def test_narrow_shapes_are_compared_with_the_square_of_equal_work():
    shapes = {(64, 64, 64): 1.0, (16, 256, 64): 2.0, (256, 16, 64): 4.0, (64, 64, 65): 9.0, (32, 32, 32): 1.0}
    rows = [timed(product("packed", shape), seconds) for shape, seconds in shapes.items()]
    assert about(seen(*rows), "square") == (
        "Rate relative to the square product of equal work (64): "
        "packed 0.250× (256 × 16 × 64) to 0.500× (16 × 256 × 64)."
    )


def test_host_memory():
    def whole(pinned, upload):
        phases = {"upload": upload, "kernel": 1.0, "download": 1.0, "total": upload + 2}
        samples = timings.in_visits((*kernel_samples([1.0] * 9), *call_samples([[phases]] * 9)))
        return measurement(product("naive", tile=8, pinned=pinned), samples=samples)

    assert about(seen(whole(True, 2.0), whole(False, 6.0)), "pinned") == (
        "Speedup of pinned over pageable host memory, naive 8 at 64: end to end 2.00× (2.00 to 2.00), upload 3.00×, "
        "download 1.00×, kernel alone 1.00× (1.00 to 1.00, no significant difference)."
    )


def test_more_ranks():
    rows = [timed(product("packed", ranks=ranks), seconds) for ranks, seconds in ((1, 4.0), (2, 2.5))]
    text = "Speedup of 2 ranks over 1, packed at 64: local kernels without exchange 1.60× (1.60 to 1.60)."
    assert about(seen(*rows), "ranks") == text


def test_the_speedup_over_ranks_is_of_an_algorithm_that_exchanges():
    took = ((1, TEXTBOOK, 8.0), (2, TEXTBOOK, 4.0), (1, "ring", 8.0), (2, "ring", 5.0))
    rows = [timed(product("cublas", ranks=ranks, algorithm=of), seconds) for ranks, of, seconds in took]
    text = "Speedup of 2 ranks over 1, cublas ring at 64: kernel alone 1.60× (1.60 to 1.60)."
    assert about(seen(*rows), "Speedup of 2 ranks") == text


def test_no_times_give_no_findings():
    assert seen(measurement(product("naive", tile=8))) == []


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (1.1, 1.3, "1.20× naive (95 % CI 1.10 to 1.30)"),
        (0.9, 1.3, "1.20× naive (95 % CI 0.900 to 1.30, no significant difference)"),
        (math.nan, math.nan, "1.20× naive (no interval: the spread between visits is unknown or too large)"),
    ],
)
def test_an_interval_around_1_is_no_significant_difference(low, high, text):
    assert Ratio(1.2, low, high).over("naive", "95 % CI ") == text


@pytest.mark.slow
def test_every_sweep_of_the_config_has_findings(tmp_path):
    columns = store.read(modelled_run.write(tmp_path / "timings.h5"))
    frame = analysis.measurements(columns)
    by_sweep = {}
    for series in analysis.series(frame):
        by_sweep.setdefault(series.sweep, []).extend(series.rows)
    for sweep, rows in by_sweep.items():
        sentences = [each.text for each in chapters.what_to_see(rows)]
        levels = {row["operation"] for row in rows} <= {"latency", "bandwidth"}  # which have a table of the levels
        assert bool(sentences) != levels and not [text for text in sentences if "nan" in text], sweep


def test_products_over_ranks_are_compared_with_the_library():
    took = [
        *(("cublas", "cublasmp", 4, 4.0), ("cublas", "resident", 4, 5.0), ("cublas", "ring", 4, 8.0)),
        *(("warpgroup", "resident", 4, 2.0), ("cublas", "cublasmp", 2, 1.0), ("cublas", "staged", 4, 1.0)),
    ]
    rows = []
    for variant, algorithm, ranks, seconds in took:
        point = product(variant, 8, ranks=ranks, algorithm=algorithm)
        call = timings.call_samples([[{"total": seconds}] * ranks] * 7)
        staged = measurement(point, samples=timings.in_visits(call))
        rows.append(staged if algorithm == "staged" else timed(point, seconds))
    for algorithm, seconds in (("cublasmp", 3.0), ("ring", 1.0)):  # another operation parameter
        rows.append(timed(product("cublas", 8, ranks=4, algorithm=algorithm, alpha=2.0), seconds))
    expected = (
        "8 in float32: warpgroup resident 2.00× (three TF32 products against float32; 2.00 to 2.00), "
        "cublas resident 0.800× (0.800 to 0.800); "
        "8 in float32: cublas ring 3.00× (3.00 to 3.00)."
    )
    assert about(seen(*rows), "Speedup over cublasmp on 4 ranks").endswith(expected)
    assert not [text for text in seen(*rows[1:4]) if "cublasmp" in text]


def test_the_fastest_rung_is_no_algorithm_with_a_library_kernel():
    library = product("cublas", 64, "float32", 1, "resident")
    rows = [timed(product("naive"), 4.0), timed(library, 1.0)]
    frame = timings.derived(*rows)
    (headline,) = headlines.headlines(frame, scaling.speedups(frame))
    assert headline.name == "Fastest product" and headline.text.startswith("naive on the GPU at 64 in float32")
    assert "the only rung timed on the GPU is naive" in about(seen(*rows), "only rung")


def test_the_headline_of_scaling_has_the_fastest_strong_scaling_with_an_exchange():
    took = [
        *(("cublas", 1, TEXTBOOK, 64, 8.0), ("cublas", 2, "ring", 64, 4.1), ("cublas", 1, TEXTBOOK, 32, 0.7)),
        *(("tensor_core", 1, TEXTBOOK, 64, 4.0), ("tensor_core", 2, "ring", 64, 2.5)),
        ("tensor_core", 2, TEXTBOOK, 64, 2.0),
        *(("cublas", 2, "ring", 128, 90.0), ("cublas", 1, TEXTBOOK, 102, 100.0)),  # as much work for each rank
    ]
    rows = [timed(product(name, n, ranks=ranks, algorithm=of), seconds) for name, ranks, of, n, seconds in took]
    frame = timings.derived(*rows)
    gains = scaling.speedups(frame)
    assert {"strong", "weak"} <= set(gains["kind"])
    headline = headlines.headlines(frame, gains)[-1]
    assert headline.value == "80 %" and "tensor_core ring on 2 ranks at 64 in float32" in headline.text
    assert headline.text.startswith("strong scaling efficiency of ")


def test_a_headline_names_its_machine_if_there_are_several():
    one = timings.derived(timed(product("naive"), 4.0))
    text = "naive on the GPU at 64 in float32"
    assert headlines.headlines(one, scaling.speedups(one))[0].text == f"{text}."
    slower = one.assign(machine="S", pooled_seconds=2 * one["pooled_seconds"])
    both = pd.concat([slower, one.assign(machine="T")], ignore_index=True)
    assert headlines.headlines(both, scaling.speedups(both))[0].text == f"{text}; machine with T."


def test_a_headline_is_the_median_over_the_visits_of_all_sweeps():
    seconds = {"first": 1.0, "second": 2.0, "third": 2.01}
    sweeps = {name: [timed(product(), each)] for name, each in seconds.items()}
    frame = analysis.measurements(timings.columns(sweeps))
    assert list(frame["pooled_seconds"]) == pytest.approx([2.0] * 3)
    steady = frame.assign(spread=0.01)
    (headline,) = headlines.headlines(steady, scaling.speedups(steady))
    row = steady.iloc[0]
    ends = {"_low": "high", "": "seconds", "_high": "low"}
    median = {f"flops_per_second{end}": 2 * 64**3 / row[f"pooled_{of_time}"] for end, of_time in ends.items()}
    text = formats.rate_text({"operation": "matmul", "dtype": "float32", **median})
    assert headline.value == text, "the largest of three is luck"


@pytest.mark.parametrize(
    ("spread", "visits", "told"),
    [
        (0.04, 9, ""),
        (0.06, 9, "This machine is too noisy: visits of a point differ by 6.0 % (limit 5 %). End other processes"),
        (math.nan, 9, ""),
        (math.nan, 1, f"N{UNKNOWN[1:]}. Measure with three or more visits."),
    ],
)
def test_an_uncertain_headline_is_withheld(spread, visits, told):
    points = product("cublas"), product("cublas", ranks=2, algorithm="ring"), product()
    rows = [
        timed(point, seconds, spread=[1.0] * visits) for point, seconds in zip(points, (8.0, 5.0, 9.0), strict=True)
    ]
    frame = timings.derived(*rows).assign(spread=spread)
    found = headlines.headlines(frame, scaling.speedups(frame))
    assert [each.name for each in found] == ["Fastest product", "Scaling"]
    for each in found:
        assert (each.value == headlines.WITHHELD) is bool(told)
        # the first one alone has the number
        assert each.text.startswith(told if each is found[0] else told.partition(": visits")[0])
