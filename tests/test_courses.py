"""The tables of the course documents: their numbers, the points that answer them, and what the pages show."""

import itertools
import math

import covered
import modelled_run
import pandas as pd
import pytest
import timings
from hypothesis import given
from hypothesis import strategies as st
from timings import FAIL, HOPPER, ROOT, call_samples, kernel, kernel_samples, measurement, product

from hpcmm import analysis, store
from hpcmm.analysis import documents
from hpcmm.analysis.documents import NOT_MEASURED, NOT_TIMED, Answered, Column, Pair
from hpcmm.experiment.config import read_config
from hpcmm.model.measurement import Point
from hpcmm.report.chapters import courses

REFERENCE = ROOT / "results" / "reference"
WRITTEN = documents.written()


def table_of(number: str, caption: str):
    return next(table for table in WRITTEN[number]["tables"] if table["caption"].startswith(caption))


def written(number: str, caption: str) -> dict[str, dict[str, float | str]]:
    """The numbers of a table of a document, by row and column."""
    table = table_of(number, caption)
    found = {}
    for j, row in enumerate(table["rows"]):
        found[row["name"]] = {
            column["name"]: (row["document"][i] if "document" in row else column.get("document", {j: None})[j])
            for i, column in enumerate(table["columns"])
        }
    return found


@pytest.mark.parametrize(("number", "table"), [(n, t) for n, each in WRITTEN.items() for t in each["tables"]])
def test_each_number_of_a_document_has_a_cell(number, table):
    for row in table["rows"]:
        assert len(row.get("document", table["columns"])) == len(table["columns"])
    for column in table["columns"]:
        assert len(column.get("document", column.get("text", table["rows"]))) == len(table["rows"])
        assert not (column.get("document") and any("document" in row for row in table["rows"]))


def test_the_numbers_of_the_documents_agree_with_each_other():
    """A rate, a bandwidth and a speedup follow from the times beside them, so an error of copying would show."""
    runs = written("003", "Runs of the kernels")
    for name, row in runs.items():
        n = int(name.split(", ")[1]) if "first" not in name else 0
        for time, rate in (("global time", "global rate"), ("kernel time", "kernel rate")):
            if row[time] is not None:
                assert row[rate] == pytest.approx(2 * n**3 / row[time] / 1e6, rel=2e-3)
    by_nvprof = written("003", "Copies and kernel")
    for kernel_name, memory in itertools.product(("kernel00", "kernel10"), ("pageable", "pinned")):
        own, whole = by_nvprof[f"{kernel_name}, {memory}"], runs[f"{kernel_name}, 640, 32x32, {memory}"]
        assert own["kernel"] / 1e3 == pytest.approx(whole["kernel time"], rel=0.05)
        assert sum(own.values()) / 1e3 < whole["global time"]
    steps = list(written("004", "Unit 5").values())
    for before, row in itertools.pairwise(steps):
        assert row["step"] == pytest.approx(before["time"] / row["time"], rel=0.01)
        assert row["cumulative"] == pytest.approx(steps[0]["time"] / row["time"], rel=0.01)
    assert all(row["bandwidth"] == pytest.approx(4 * 2**22 / row["time"] / 1e6, rel=2e-3) for row in steps)
    for row in written("002", "A tile and its block").values():
        assert row["operations per phase"] == row["operations per load"] * row["loads per phase"]
    cpu, gpu = written("000", "Seconds on the CPU"), written("000", "Seconds on the CPU and")
    assert [row["CPU"] for row in cpu.values()] == [row["CPU"] for row in gpu.values()]
    limits = written("004", "Units 1 and 3")
    assert all(32 * limits["resident warps per SM"][name] == threads
               for name, threads in limits["resident threads per SM"].items() if threads)  # fmt: skip


def point(variant: str, n: int, tile: int = 0, **more) -> Point:
    return product(variant, n, tile=tile, **more)


def timed(of: Point, seconds: float, call: float = 0.0, **more):
    calls = call_samples([[{"kernel": seconds, "total": call or 2 * seconds}]] * 9)
    return measurement(of, samples=kernel_samples([seconds] * 9) + calls, **more)


def answered(number: str, caption: str, *runs) -> Answered:
    found = documents.documents(*timings.analysed(*runs))
    (document,) = (each for each in found if each.number == number)
    return next(table for table in document.tables if table.caption.startswith(caption))


def ours(table: Answered) -> dict[tuple[str, str], float | str]:
    shown = [(column.name, zip(table.rows, column.pairs, strict=False)) for column in table.columns]
    return {(row, name): pair.ours for name, pairs in shown for row, pair in pairs}


CPU = {"utc": "2026-01-01", "cpu": {"model": "X", "cores": 2}}
GPU = {"utc": "2026-01-02", "cpu": {"model": "Y", "cores": 16}, "gpus": [{"name": "H100", "multiprocessors": 132}]}


def test_a_cell_has_the_time_of_its_point_and_says_if_there_is_none():
    rows = [timed(point("naive_unguarded", 256, 16), 1e-3, call=0.25), timed(point("naive_unguarded", 256, 32), 1e-6)]
    rows += [timed(point("tiled_unrolled", 256, 16), 2e-3, call=0.5)]
    table = answered("000", "Seconds on the CPU and", (GPU, {"steps": rows}))
    found = ours(table)
    assert [found.pop(("256", name)) for name in ("Initial", "Loop unrolling")] == pytest.approx([0.25, 0.5])
    assert set(found.values()) == {NOT_MEASURED}


def test_a_table_has_the_numbers_of_one_machine():
    """That with the most of them: numbers of two machines are not compared in one table."""
    one = [timed(point("serial", 256), 1.0, call=1.0)]
    two = [timed(point(name, 512), 3.0, call=3.0) for name in ("serial", "pthread")]
    other = CPU | {"cpu": {"model": "Z", "cores": 4}}
    table = answered("000", "Seconds on the CPU", (CPU, {"a": one}), (other, {"a": two}))
    found = ours(table)
    assert table.machine == "Z, 4 cores"
    assert found["512", "CPU"] == pytest.approx(3) and found["512", "pthread"] == pytest.approx(3)
    assert found["256", "CPU"] == NOT_MEASURED


OTHER = GPU | {"gpus": [{"name": "H200", "multiprocessors": 132}]}


def test_a_kernel_that_another_gpu_alone_measured_has_its_numbers_and_its_name():
    own = [timed(point(name, n, 16), 1e-3) for name in ("naive_unguarded", "conflict_free") for n in (256, 512)]
    other = [timed(point(name, 256, 16), 2e-3) for name in ("tiled_uncoalesced_b", "conflict_free")]
    table = answered("000", "Kernel alone", (GPU, {"steps": own}), (OTHER, {"steps": other}))
    found, where = ours(table), {column.name: column.gpu for column in table.columns if column.gpu}
    assert where == {"Tiling": "H200"} and table.machine == "H100"
    assert found["256", "Tiling"] == pytest.approx(2) and found["512", "Tiling"] == NOT_MEASURED
    assert found["256", "Bank conflict"] == pytest.approx(1) and found["1024", "Bank conflict"] == NOT_MEASURED
    assert "Tiling on H200" in courses.course_table(table, "000").head
    own = [timed(point("naive", n, 32, pinned=True), 1e-3) for n in (640, 641)]
    other = [timed(point("tiled_unclamped", 641, 16, pinned=True), 2e-3)]
    table = answered("003", "Runs of the kernels", (GPU, {"guard": own}), (OTHER, {"guard": other}))
    assert [row for row in table.rows if "H200" in row] == ["kernel11, 641, 16x16, pinned (hpcmm: H200)"]
    assert ours(table)["kernel11, 641, 16x16, pinned (hpcmm: H200)", "kernel time"] == pytest.approx(2)


@pytest.mark.parametrize(
    ("part", "caption", "named"),
    [
        ("", "Seconds on the CPU", "Y, 16 cores, H100"),
        ("4 of 16 CPUs", "Seconds on the CPU", "Y, 16 cores, H100; on the CPU 4 of 16 CPUs"),
        ("4 of 16 CPUs", "Kernel alone", "H100"),
    ],
)
def test_a_table_names_the_part_of_the_cpu_that_its_points_had(part, caption, named):
    own = GPU | {"gpus": [], "surroundings": {"limits": {"CPU affinity": part} if part else {}}}
    rows, kernels = [timed(point("serial", 512), 3.0, call=3.0)], [timed(point("naive_unguarded", 512, 16), 1.0)]
    assert answered("000", caption, (GPU, {"a": kernels}), (own, {"b": rows})).machine == named


def test_wrong_results_have_no_time_and_memories_are_apart():
    resources = kernel(HOPPER, (32, 32), 2, grid_x=20, grid_y=20)
    rows = [
        timed(point("naive_unguarded", 640, 32, pinned=True), 1e-3, call=3e-3),
        timed(point("naive_unguarded", 640, 32, pinned=False), 1e-3, call=8e-3),
        measurement(point("naive_unguarded", 641, 32), verdict=FAIL, resources=resources),
    ]
    table = answered("003", "Runs of the kernels", (GPU, {"guard": rows}))
    found, label = ours(table), "kernel00, {}, 32x32, {}"
    assert found[label.format(640, "pinned"), "global time"] == pytest.approx(3)
    assert found[label.format(640, "pageable"), "global time"] == pytest.approx(8)
    assert found[label.format(640, "pinned"), "kernel rate"] == pytest.approx(2 * 640**3 / 1e-3 / 1e9)
    wrong = label.format(641, "pinned")
    assert [found[wrong, name] for name in ("kernel time", "blocks", "test")] == [NOT_TIMED, "20x20", "FAIL"]


@pytest.mark.parametrize(("measured", "drawn"), [((1, 1), 0), ((1, 2), 1), ((2, 1), 0)])
def test_a_figure_of_several_variants_is_of_the_one_with_the_most_points_and_names_it(measured, drawn):
    names = ("tiled_unclamped", "tiled_remainder")
    sizes = [(name, 32 * (4 + i)) for name, n in zip(names, measured, strict=True) for i in range(n)]
    rows = [timed(point(*each, 32), 1e-3) for each in sizes]
    found = documents.documents(*timings.analysed((GPU, {"multiples": rows})))
    (curve,) = (curve for each in found for curve in each.curves if curve.name == "kernel11-blocks")
    assert len(curve.lines["32x32"]) == measured[drawn]
    assert curve.caption.startswith(f"kernel11, {names[drawn]}: ")


def test_speedups_are_over_the_fastest_baseline_and_over_the_step_before():
    rows = [timed(point("naive", 1024, tile), seconds) for tile, seconds in ((8, 4e-3), (32, 2e-3))]
    rows.append(timed(point("tiled_padded", 1024, 16), 1e-3))
    table = answered("001", "Speedup over", (GPU, {"tile": rows}))
    assert ours(table)["16", "float"] == pytest.approx(2)
    names = ("divergent", "strided", "sequential", "first_add", "last_warp")
    sums = [timed(timings.total(name), 1e-3 / 3**i) for i, name in enumerate(names)]
    found = ours(answered("004", "Unit 5", (GPU, {"reduction_ladder": sums})))
    rows = table_of("004", "Unit 5")["rows"]
    assert [found[row["name"], "step"] for row in rows] == ["", *[pytest.approx(3)] * 4]
    assert [found[row["name"], "cumulative"] for row in rows] == [pytest.approx(3.0**i) for i in range(5)]
    assert found[rows[0]["name"], "bandwidth"] == pytest.approx(2**24 / 1e-3 / 1e9)


def test_resources_follow_from_the_launch():
    resources = kernel(HOPPER, (16, 16), 8, shared_bytes=2048, grid_x=33, grid_y=8)
    rows = [timed(point("tiled_padded", 512, 16), 1e-3, resources=resources)]
    found = ours(answered("002", "A tile and its block", (GPU, {"tile": rows})))
    names = [column["name"] for column in table_of("002", "A tile and its block")["columns"]]
    assert [found["16", name] for name in names] == [256, 512, 8192, 16, 2]
    held = {128: resources, 64: resources | {"grid_x": 66}}
    rows = [timed(point("tiled_padded", (m, 4096, 4096), 32), 1e-3 * m, resources=own) for m, own in held.items()]
    found = ours(answered("001", "Figure 4", (GPU, {"shape": rows})))
    assert [found[f"{m} × 4096 × 4096", "blocks per SM"] for m in (128, 64)] == [2.0, 4.0]


def test_the_throughput_of_shared_memory_is_its_share_of_the_wavefronts():
    """Half of the wavefronts of the peak, three quarters of them loads: 128 bytes each."""
    counted = {"shared_pipe": 0.5, "sm_clock": 1e9, "shared_load_wavefronts": 300.0, "shared_store_wavefronts": 100.0}
    rate, of = documents.COUNTED["shared_load_bytes_per_second"], {"multiprocessors": 10}
    assert rate(counted, of) == pytest.approx(0.5 * 10 * 1e9 * 0.75 * 128)
    assert rate(counted | {"shared_load_wavefronts": 0.0}, of) == 0
    assert math.isnan(rate(counted | {"shared_load_wavefronts": math.nan}, of))


def made(*pairs: Pair, why: str = "Because.") -> Answered:
    return Answered("Caption", "N", [str(i) for i in range(len(pairs))], [Column("time", pairs)], True, "H100", why)


def test_a_sentence_says_how_far_the_numbers_are_apart():
    pairs = Pair(8.0, 2.0, "ms"), Pair(3.0, 1.0, "ms")
    assert courses.sentence(made(*pairs)) == "hpcmm is 3.00× to 4.00× as fast. Because."
    assert courses.sentence(made(Pair(100, 250.0, "GFLOP/s"))) == "hpcmm is 2.50× as fast. Because."
    assert courses.sentence(made(Pair(2.0, 1.0, "×"))) == "Its speedups are 0.500× those of the document. Because."
    assert courses.sentence(made(Pair(16, 16.0, ""), Pair(8, 6.0, ""))) == "1 of 2 counts are equal. Because."
    assert courses.sentence(made(Pair("about 5", 23.0, ""), Pair(8.0, NOT_MEASURED, "ms"))) == "Because."
    assert courses.sentence(made(Pair(100, 250.0, "GB/s", compared=False))) == "Because."


def test_a_table_shows_both_numbers_in_one_unit():
    table = courses.course_table(made(Pair(8.5, 0.0012345, "ms"), Pair(None, NOT_MEASURED, "ms")), "003")
    assert table.head == ["N", "time, 003", "time, hpcmm"]
    assert [[cell.text for cell in row] for row in table.rows] == [["0", "8.5", "0.00123"], ["1", "", "not measured"]]
    assert " [ms]; hpcmm: " in table.caption and "H100" in table.caption
    without = courses.course_table(made(Pair(None, 12.0, "")), "003")
    assert without.head == ["N", "time"] and without.rows[0][1].text == "12"
    most = courses.course_table(made(Pair(2**31 - 1, 2.0**31 - 1, "")), "004")
    assert [cell.text for cell in most.rows[0][1:]] == ["2³¹ - 1", "2³¹ - 1"]


def test_the_page_shows_a_document_that_the_file_answers():
    def document(*pairs):
        computed = Answered("c", "N", ["0"], [Column("x", [Pair(1, 1.0, "")])], False, "", "")
        return documents.Document("9", "", "", "", [made(*pairs), computed], [])

    half = (Pair(1.0, 1.0, "s"), Pair(1.0, NOT_MEASURED, "s"))
    assert courses.is_shown(document(*half))
    assert not courses.is_shown(document(*half, Pair(1.0, NOT_MEASURED, "s")))


@pytest.mark.slow
def test_the_configs_of_the_published_run_measure_every_cell(tmp_path):
    """All but the counters, which need a profiler, and serial at 4096, a call of which takes minutes."""
    paths = []
    for name in ("courses", "courses_cpu", "curves", "counters", "memory", "lessons", "config"):
        config = read_config(REFERENCE / f"{name}.yaml") | {"backends": "auto"}
        paths.append(modelled_run.write(tmp_path / f"{name}.h5", config))
    timings.merge(paths, tmp_path / "all.h5")
    columns = store.read(tmp_path / "all.h5")
    missing = []
    for document in documents.documents(columns, analysis.measurements(columns)):
        for table in document.tables:
            missing += [(table.caption, *cell) for cell, value in ours(table).items() if value == NOT_MEASURED]
        for written_curve, curve in zip(WRITTEN[document.number].get("figures", ()), document.curves, strict=True):
            sizes = written_curve["sizes"]
            expected = list(range(sizes["start"], sizes["stop"] + 1, sizes["step"]))
            assert all([n for n, _ in line] == expected for line in curve.lines.values())
        assert courses.is_shown(document)
    without_profiler = [cell for cell in missing if cell[0] in ("Counters at 2048", "Barriers at 2048 and tile 32")]
    assert len(without_profiler) == 12 + 2
    serial = [cell[1:] for cell in missing if cell not in without_profiler]
    assert serial == [("4096", "CPU")] * 2


AXES = {
    "variant": ["naive", "tiled_padded", "cublas"], "dtype": ["float32", "float64"], "tile": [0, 8, 16],
    "ranks": [1, 2], "memory": [""], "algorithm": ["scatter"], "n": [64, 128, 192, 256],
}  # fmt: skip


@given(st.sets(st.tuples(*map(st.sampled_from, AXES.values())), min_size=1))
def test_the_products_of_the_coverage_page_are_the_points(points):
    """Read back, the lines are the points, each once."""
    rows = pd.DataFrame(sorted(points), columns=list(AXES))
    rows = rows.assign(m=rows["n"], k=rows["n"], size=rows["n"].astype(str))
    read = []
    for line in covered.products(rows):
        names, *parts = line.split(" × ")
        tiles = parts.pop(0).removeprefix("tile ") if parts[0][:4] == "tile" else "0"
        sizes, dtypes, *ranks = parts
        counts = ranks[0].removesuffix(" ranks") if ranks else "1"
        tiles, counts, sizes = (map(int, each.split(", ")) for each in (tiles, counts, sizes))
        variants = [name.strip("`") for name in names.split(", ")]
        read += itertools.product(variants, dtypes.split(", "), tiles, counts, [""], ["scatter"], sizes)
    assert sorted(read) == sorted(points)
