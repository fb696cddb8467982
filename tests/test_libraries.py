"""Ratios to the library and to the tuned library, with their versions and arithmetics, in tables and sentences."""

import dataclasses
import math

import pytest
import timings
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from timings import FAIL, measurement, product, timed, total

from hpcmm import analysis
from hpcmm.analysis import libraries, scaling, why
from hpcmm.operations import OPERATIONS
from hpcmm.report import answer, chapters, formats, headlines, opening, page, tables
from hpcmm.report.ratio import Ratio

MATMUL, SUM = OPERATIONS["matmul"], OPERATIONS["sum"]
GPU = {"name": "H", "cublas": 130100, "cupy": "14.2.0"}


def beside(seconds, n=64, dtype="float32", library=1.0, **rest):
    """Points of variants with cublas beside each, and cublas alone."""
    rows = [timed(product("cublas", n, dtype), library, **rest)]
    for name, own in seconds.items():
        point = product(name, n, dtype)
        rows += [timed(point, own, **rest), timed(point, library, "cublas", **rest)]
    return rows


def measured(*rows):
    return timings.derived(*rows, gpus=[GPU])


def by_variant(frame):
    return {row["variant"]: row for row in analysis.row_dicts(analysis.points(frame))}


TIMES = st.floats(1e-3, 10.0)


@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(own=TIMES, tuned=TIMES, library=TIMES)
def test_the_ratio_to_the_tuned_library_is_the_quotient_of_the_times(own, tuned, library):
    rows = by_variant(measured(*beside({"naive": own, "cublaslt": tuned}, library=library)))
    assert rows["naive"]["tuned_ratio"] == pytest.approx(tuned / own)
    assert rows["cublas"]["tuned_ratio"] == pytest.approx(tuned / library)
    assert rows["cublaslt"]["tuned_ratio"] == 1.0
    assert rows["naive"]["tuned_ratio_low"] <= rows["naive"]["tuned_ratio"] <= rows["naive"]["tuned_ratio_high"]
    assert rows["naive"]["lead"] == pytest.approx(min(library, tuned) / own)


def test_a_pooled_ratio_is_the_mean_of_the_sweeps_that_compare_with_the_same_libraries():
    def sweep(naive, visits=9):
        return beside({"naive": naive, "cublaslt": 0.8}, spread=[1.0] * visits)

    newer = {"gpus": [GPU | {"cublas": 140000}]}, {"three": sweep(1.0)}
    _, frame = timings.analysed(({"gpus": [GPU]}, {"one": sweep(2.0), "two": sweep(1.25, 3)}), newer)
    frame = analysis.points(frame)
    rows = analysis.pooled(frame[frame["variant"] == "naive"]).set_index("sweep")
    mean = (2.0**9 * 1.25**3) ** (-1 / 12)  # weighted by visits
    for sweep, ratio in (("one", mean), ("two", mean), ("three", 1.0)):
        assert rows.loc[sweep, "ratio"] == pytest.approx(ratio)
        assert rows.loc[sweep, "tuned_ratio"] == rows.loc[sweep, "lead"] == pytest.approx(0.8 * ratio)


def test_the_tuned_library_is_of_the_same_problem_in_the_same_job():
    other = [*beside({"cublaslt": 0.5}, 128), *beside({"cublaslt": 0.5}, dtype="float64")]
    wrong = measurement(product("cublaslt"), verdict=FAIL)
    row = by_variant(measured(*beside({"naive": 2.0}), *other, wrong))["naive"]
    assert math.isnan(row["tuned_ratio"]) and row["tuned_library"] == "cublaslt 13.1"
    assert row["lead"] == row["ratio"] == 0.5
    runs = [({"gpus": [GPU]}, {"one": beside({"naive": 2.0})}), ({"gpus": [GPU]}, {"two": beside({"cublaslt": 0.5})})]
    _, frame = timings.analysed(*runs)
    assert math.isnan(by_variant(frame)["naive"]["tuned_ratio"])


def test_the_tuned_library_is_a_fact_of_its_record():
    assert MATMUL.tuned("cuda", "float32").name == "cublaslt"
    assert MATMUL.tuned("cpu", "float32") is None and SUM.tuned("cuda", "float32") is None
    for operation in OPERATIONS.values():
        for each in operation.ladder:
            if each.tunes:
                assert each.context and operation.variant(each.tunes).baseline
            assert bool(each.provider) == bool(each.library), f"{operation.name}/{each.name}: its version is not shown"
            assert each.provider in ("", *libraries.VERSIONS)
    other = {"cublaslt": "autotuned"}
    ladder = tuple(dataclasses.replace(each, name=other.get(each.name, each.name)) for each in MATMUL.ladder)
    assert dataclasses.replace(MATMUL, ladder=ladder).tuned("cuda", "float32").name == "autotuned"


@pytest.mark.parametrize(
    ("name", "provider", "provenance", "text"),
    [
        ("cublas", "cublas", {"gpus": [{"cublas": 131002}]}, "cublas 13.10.2"),
        ("geam", "cublas", {"gpus": [{"cublas": 120800}]}, "geam of cuBLAS 12.8"),
        ("cub", "cupy", {"gpus": [{"cupy": "14.2.0"}]}, "cub of CuPy 14.2"),
        ("numpy", "numpy", {"packages": {"numpy": "2.4.6"}}, "numpy 2.4.6"),
        ("numpy", "blas", {"cpu": {"blas": "openblas 0.3.31.188.0 (SkylakeX)"}}, "numpy with OpenBLAS 0.3.31"),
        ("cublasmp", "cublasmp", {"installed": {"nvidia-cublasmp-cu13": "0.10.0.120"}}, "cublasmp 0.10"),
        ("cublas", "cublas", {"gpus": ["?"]}, "cublas"),
        ("cublas", "cublas", {}, "cublas"),
        ("mine", "", {}, "mine"),
    ],
)
def test_a_library_is_named_with_its_version(name, provider, provenance, text):
    assert libraries.named(name, provider, provenance) == text


def test_sentences_give_both_ratios_with_versions_and_arithmetics():
    frame = measured(*beside({"naive": 4.0, "tensor_core": 0.4, "cublaslt": 0.5}))
    (series,) = analysis.series(frame)
    text = chapters.ladder.best(series.rows)
    both = "three TF32 products against float32; "
    assert f"2.50× cublas 13.1 ({both}95 % CI 2.50 to 2.50), 1.25× cublaslt 13.1 ({both}95 % CI " in text
    assert "naive: " in text and "0.250× cublas 13.1 (95 % CI 0.250 to 0.250), 0.125× cublaslt 13.1 (95 % CI" in text


def test_every_ratio_of_two_points_names_both_arithmetics_if_they_differ():
    rows = by_variant(measured(*beside({"naive": 4.0, "coalesced": 3.0, "tensor_core": 1.0, "three_fp16": 0.5})))
    alike, emulated = Ratio.of(rows["coalesced"], rows["naive"]), Ratio.of(rows["tensor_core"], rows["naive"])
    assert (alike.short, emulated.short) == ("1.33×", "4.00× (three TF32 products against float32)")
    assert "three FP16 products against three TF32 products; " in str(Ratio.of(rows["three_fp16"], rows["tensor_core"]))
    assert Ratio.of(rows["naive"], rows["tensor_core"]).short.endswith("(float32 against three TF32 products)")
    (series,) = analysis.series(measured(*beside({"naive": 4.0, "tensor_core": 0.5})))
    shown = [cell for row in chapters.ladder.ladder_table(series).rows for cell in row if "against" in cell.text]
    assert [cell.text for cell in shown] == ["2.00× (three TF32 products against float32)"]
    (ladder,) = chapters.figures_of(series, "ladder")
    assert "2.00× (three TF32 products)" in ladder.columns["text"] and "float32" in ladder.caption


def test_a_table_has_both_ratios_or_the_reason_of_a_dash():
    for known in (True, False):
        rows = beside({"naive": 4.0, **({"cublaslt": 0.5} if known else {})})
        (series,) = analysis.series(measured(*rows))
        table = chapters.ladder.ladder_table(series)
        cell = table.rows[0][table.head.index("Ratio to tuned library")]
        shown = ("0.125×", "0.125 to 0.125") if known else ("–", "cublaslt was not measured beside it")
        assert (cell.text, cell.note) == shown
        assert "library: cublas 13.1" in table.caption and ("tuned: cublaslt 13.1" in table.caption) is known
        sizes = chapters.sizes.size_table(series)
        assert ("0.250×, 0.125× tuned" in sizes.rows[0][1].note) is known and "cublas 13.1" in sizes.caption
    (series,) = analysis.series(measured(*(timed(total(name), 1.0) for name in ("divergent", "cub"))))
    assert "Ratio to tuned library" not in chapters.ladder.ladder_table(series).head


def test_tables_of_bits_and_of_sweeps_have_both_ratios_and_name_what_they_are_of():
    frame = measured(*beside({"naive": 4.0, "tensor_core": 0.4, "cublaslt": 0.5}))
    bits = chapters.same_bits.bits_table(analysis.points(frame).assign(first_run=-1.0))
    assert bits.caption.endswith("library: cublas 13.1; tuned: cublaslt 13.1")
    (line,) = (line for line in bits.texts if "tensor_core" in line)
    of_type = "three TF32 products against float32"
    assert line[-2:] == [f"2.50× ({of_type})", f"1.25× ({of_type})"]
    (line,) = tables.sweeps_table([("size", "Sizes", analysis.row_dicts(analysis.points(frame)))]).rows
    assert [cell.text for cell in line[3:5]] == [f"2.50× ({of_type})", f"1.25× ({of_type})"]
    assert [cell.note for cell in line[3:5]] == ["cublas 13.1", "cublaslt 13.1"]


def test_ahead_means_faster_than_both_libraries():
    rows = []
    for n, tuned, library in ((128, 0.8, 1.0), (256, 0.9, 1.0), (512, 1.2, 1.0), (1024, 2.0, 1.2)):
        rows += beside({"split_k": 0.95, "cublaslt": tuned}, n, library=library)
    (series,) = analysis.series(measured(*rows))
    found = headlines.by_size(series.rows)
    assert found.value == "2 of 4" and found.text == (
        "sizes where the fastest rung is ahead of cublas 13.1 and of cublaslt 13.1, behind at 2. Over the faster one: "
        "0.842× at 128, 0.947× at 256, 1.05× at 512, 1.26× at 1024."
    )
    text = chapters.sizes.over_sizes(series.rows)
    means = [formats.times(each**0.25 / 0.95) for each in (1.2, 0.8 * 0.9 * 1.2 * 2.0)]
    assert text == (
        f"Over 4 sizes in float32, split_k has {means[0]} cublas 13.1 and {means[1]} cublaslt 13.1 (geometric means). "
        "Relative to the faster of both it is from 0.842× at 128 to 1.26× at 1024; significantly slower at 128 and 256."
    )


def test_headlines_begin_with_float32_at_the_largest_size():
    rows = [*beside({"tf32": 1e-4}, 2048), *beside({"split_k": 0.5, "three_fp16": 0.1, "cublaslt": 0.9}, 4096)]
    rows += [*beside({"split_k": 9.0, "warpgroup": 4.0}, 8192, library=8.0)]
    rows += [*beside({"persistent_dmma": 0.4}, 4096, "float64"), *beside({"persistent": 0.01}, 4096, "bfloat16")]
    frame = measured(*rows)
    (found,) = headlines.headlines(frame, scaling.speedups(frame))
    assert found.value == "122 GFLOP/s"
    library, tuned = found.more
    assert found.text == "split_k on the GPU at 8192 in float32; split_k 275 GFLOP/s at 4096."
    of_library = "0.889× (95 % CI 0.889 to 0.889) at 8192; 2.00× (95 % CI 2.00 to 2.00) at 4096."
    assert library == f"Speed over cublas 13.1: {of_library}"
    assert tuned == "Speed over cublaslt 13.1: not measured at 8192; 1.80× (95 % CI 1.80 to 1.80) at 4096."
    assert not {"warpgroup", "three_fp16"} & set(" ".join([found.text, library, tuned]).split())


def panels_of(frame):
    series = list(analysis.series(frame))
    known = why.Known({}, {}, [{}])
    return {each.title: each for each in opening.panels(frame, series, scaling.speedups(frame), known)}


def test_the_first_screen_answers_and_noise_withholds_all():
    ladder = beside({"naive": 4.0, "split_k": 1.0}, 4096)
    sizes = [row for n in (256, 512, 1024, 4096) for row in beside({"split_k": 1.0}, n, library=1.1)]
    _, frame = timings.analysed(({"gpus": [GPU]}, {"ladder": ladder, "size": sizes}))
    found = panels_of(frame := frame.assign(spread=0.01))
    (over,) = found["Speed over size"].figures
    # the sweep ladder has a ratio of 1 at 4096, and both sweeps have one visit
    assert over.columns["ratio"] == pytest.approx([1.1] * 3 + [math.sqrt(1.1)], rel=1e-5)
    assert "relative to cublas" in over.caption
    (told,) = found["Fastest rung"].headlines
    assert told.value == "137 GFLOP/s" and told.text.startswith("split_k on the GPU at 4096 in float32")
    library, *_, why_, belief = told.more
    assert library.startswith("Speed over cublas 13.1: 1.05× (") and library.endswith(".")
    assert why_.startswith("Why: the limit is not known")
    assert belief.startswith("Visits of a point differ by 1.0 %. 11 points have no unexpected wrong results.")
    lines = [each for panel in found.values() for each in panel.headlines]
    assert len(lines) == 2 and not [each for each in lines if each.value == headlines.WITHHELD]
    noisy = panels_of(frame.assign(spread=0.5))
    lines = [each for panel in noisy.values() for each in panel.headlines]
    assert [each.value for each in lines] == [headlines.WITHHELD] * 2
    shown = " ".join(sentence for each in lines for sentence in (each.text, *each.more))
    said = "This machine is too noisy: visits of a point differ by 50 % (limit 5 %). "
    assert shown.startswith(said) and shown.lower().count("visits of a point differ") == 1


def test_the_baseline_of_an_algorithm_is_scatter_with_the_same_variant():
    point = product("naive", ranks=2, algorithm="ring")
    row = by_variant(measured(timed(point, 1.0), timed(point, 2.0, algorithm="scatter")))["naive"]
    assert (row["ratio"], row["library"]) == (pytest.approx(2.0), "scatter with naive")


def test_the_first_screen_explains_the_point_that_it_names():
    """Not the fastest one of all ranks and shapes. A rate of several ranks has their number."""
    second = 2 * 64**3 / 256e9  # at half the rate of the FMA units of both GPUs
    rows = [timed(product("naive", 64), 4 * second), timed(product("naive", (64, 640, 64)), 16 * second)]
    two = timed(product("split_k", 64, ranks=2), second)
    for points, number, share in (([*rows, two], "64.0 GFLOP/s", "12 %"), ([two], "256 GFLOP/s", "50 %")):
        gpus = [GPU | timings.SMALL | {"uuid": uuid} for uuid in "ab"]
        columns, frame = timings.analysed(({"gpus": gpus}, {"size": points}))
        (told,) = panels_of(frame)["Fastest rung"].headlines
        text = " ".join([told.text, *told.more])
        assert told.value == number and f"Why: it reaches {share} of the limit of float32 FMA units." in text
        assert ("at 64 on 2 ranks in float32." in text) == (points == [two])
        assert answer.answer(columns, frame)[0].startswith("float32 at 64 on 2 ranks on the H") == (points == [two])


@pytest.mark.parametrize("dirty", [False, True])
def test_the_revision_of_a_tree_without_git_is_the_hash_of_its_sources(dirty):
    runs = [{"revision": "sha256:fd6e9e2728ff869dc63d", "dirty": dirty}]
    assert page.machine_line(page.conditions(runs)) == "revision sources fd6e9e2"
    runs[0]["revision"] = "38151edd276661e5d49484d8"
    assert page.machine_line(page.conditions(runs)) == "revision 38151ed"


def test_each_measurement_on_a_gpu_has_its_sm_count():
    rows = [timed(product(name), 1.0) for name in ("naive", "numpy")]
    frame = timings.derived(*rows, gpus=[GPU | {"multiprocessors": 114}])
    assert dict(zip(frame["contender"], frame["multiprocessors"], strict=True)) == {"naive": 114, "numpy": 0}
