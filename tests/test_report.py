"""The report: printed numbers, failures, escaping, and one file without network access."""

import base64
import csv
import gzip
import itertools
import json
import math
import re
import signal
import subprocess
from functools import partial
from html.parser import HTMLParser
from pathlib import Path

import h5py
import pytest
import timings
from hypothesis import example, given
from hypothesis import strategies as st
from timings import FAIL, HOPPER, call_samples, kernel, kernel_samples, measurement, product, timed, took, total

from hpcmm import analysis, report, store
from hpcmm.analysis.why import Known
from hpcmm.bench import profiling
from hpcmm.model import TEXTBOOK, UNCHECKED, Verdict
from hpcmm.model.measurement import Profile
from hpcmm.operations import OPERATIONS, shapes
from hpcmm.report import answer, chapters, drawing, formats, hardware, page, vega
from hpcmm.report.chapters import sizes
from hpcmm.system.text import amount, number, percent

pytestmark = pytest.mark.usefixtures("drawn_here")

RENDERED = drawing._run  # in a process of its own
PROVENANCE = {
    "utc": "2026-03-01T10:00:00Z",
    "host": "node7",
    "revision": "0123456789abcdef",
    "dirty": True,
    "arguments": ["measure.py", "--sweep", "size"],
    "cpu": {"model": "Model T", "cores": 2},
    "mpi": {"library": "MPICH Version:   5.0\nmore", "ranks": 2},
    "gpus": [{"name": "H200", "uuid": "GPU-1", "driver": "580", "cuda": "13.0"}, {"name": "H200", "uuid": "GPU-2"}],
}
UNMEASURED = [{"sweep": "size", "variant": "tiled_padded", "ranks": 2, "reason": "no CUDA device on this machine"}]
VOID = {"meta", "link", "img", "br", "hr", "input"}
# Tags whose begin also ends other tags: HTML does not need the end tags of cells and rows
ENDS = {"td": {"td", "th"}, "th": {"td", "th"}, "tr": {"td", "th", "tr"}}


class Page(HTMLParser):
    """Tags with their attributes, the text outside scripts and styles, and the scripts."""

    def __init__(self, html: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.scripts: list[tuple[dict, str]] = []
        self.styles: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        while tag in ENDS and self.open[-1] in ENDS[tag]:  # end tags that HTML does not need
            self.open.pop()
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        while self.open[-1] != tag and self.open[-1] in ENDS["tr"]:
            self.open.pop()
        assert self.open.pop() == tag

    def handle_data(self, data):
        inside = self.open[-1] if self.open else ""
        if inside == "script":
            self.scripts.append((self.tags[-1][1], data))
        elif inside == "style":
            self.styles.append(data)
        else:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    @property
    def charts(self) -> list[dict]:
        """The specification of each figure, with its data under ``"records"``."""
        figures = {}
        for attributes, text in self.scripts:
            if attributes.get("id") == "stored":
                figures |= json.loads(text)
        places = [a["data-figure"] for tag, a in self.tags if tag == "div" and a.get("class") == "chart"]
        return [figures[place]["spec"] | {"records": records(figures[place]["columns"])} for place in places]


def records(columns: dict) -> list[dict]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def cells(html: str) -> list[tuple[str, str]]:
    """Class and text of each table cell."""
    found = re.findall(r"<(?:td|th scope=row)(?: class=(\w+))?>(.*?)(?=<t[dhr][ >]|</tbody>)", html, re.DOTALL)
    return [(kind, " ".join(re.sub("<[^>]+>", " ", text).split())) for kind, text in found]


def of_rate(point, gflops, **rest):
    """A measurement at an exact rate."""
    return took(point, 2 * point.shape[0] ** 3 / gflops / 1e9, **rest)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A report of products and reductions; returns the results folder."""
    folder = tmp_path_factory.mktemp("built")
    seconds = 2 * 64**3 / 100e9
    call = [[{"scatter": seconds, "kernel": 2 * seconds, "gather": seconds, "total": 5 * seconds}]]
    tiled = product("tiled_padded", tile=16)
    rows = [
        measurement(tiled, samples=(*kernel_samples([seconds] * 6), *call_samples(call))),
        took(tiled, seconds / 4, "cublas"),
        measurement(product("naive", 128, tile=8), verdict=FAIL),
        of_rate(product("cublas"), 400.0),
        of_rate(product("cublas", 128), 51234.5),
        of_rate(product("cublas", 128, "float64", 2), 12.0),
    ]
    ladder = [timed(total(name), t) for name, t in (("divergent", 8e-3), ("sequential", 2e-3), ("cub", 0.5e-3))]
    path = timings.write(folder / "timings.h5", {"size": rows, "sum": ladder}, PROVENANCE, UNMEASURED)
    assert report.build(path, folder / "results")[0] == folder / "results" / "report.html"
    return folder / "results"


def markdown(path: Path) -> str:
    return path.read_text("utf-8").replace("\\_", "_")


def markdown_rows(path: Path) -> list[list[str]]:
    head, _, *rows = timings.cells(markdown(path))
    return [head, *rows]


def html_of(results: Path) -> str:
    return timings.page_of(results / "report.html")


FORMATTED = {
    number: {51234.5: "51,200", 999.6: "1,000", 1.0: "1.00", 0.08504: "0.0850", 9.996: "10.0", 0: "0",
             123456789.0: "123,000,000", 1.5e-5: "1.50e-05", math.nan: "", math.inf: ""},
    formats.duration: {8.054e-3: "8.05 ms", 12.0: "12.0 s", 1e-6: "1.00 µs", 9.9999e-4: "1.00 ms", 2.5e-8: "25.0 ns",
                       math.nan: ""},
    amount: {0: "0 B", 1000: "1000 B", 2048: "2 KiB", 233472: "228 KiB", 50 * 2**20: "50 MiB"},
}  # fmt: skip


@pytest.mark.parametrize("form", FORMATTED, ids=lambda form: form.__name__)
def test_numbers_have_three_significant_digits_and_a_fitting_unit(form):
    assert {value: form(value) for value in FORMATTED[form]} == FORMATTED[form]


POSITIVE = st.floats(1e-9, 1e15)


@given(POSITIVE)
def test_a_number_has_three_digits_at_every_magnitude(value):
    text = number(value)
    digits = re.sub(r"e.*|[^0-9]", "", text)
    assert float(text.replace(",", "")) == pytest.approx(value, rel=5.001e-3)
    assert len(digits.lstrip("0")) == 3 or (value >= 999.5 and set(digits[3:]) == {"0"})
    assert ("e" in text) is (value < 1e-3)


@given(POSITIVE)
@example(2.0)
@example(1.27)
def test_a_percentage_has_no_exponent_and_no_rounded_integers(share):
    text = percent(share)
    assert re.fullmatch(r"[\d,]*\d(\.\d+)? %", text)
    assert float(text[:-2].replace(",", "")) == pytest.approx(100 * share, rel=0.0501)
    digits = re.sub(r"[^0-9]", "", text).lstrip("0")
    assert len(digits) == 2 or (share >= 0.995 and "." not in text)


@pytest.mark.parametrize(
    ("operation", "dtype", "rate", "text"),
    [("matmul", "float32", 999e9, "999 GFLOP/s"), ("matmul", "float32", 1000e9, "1.00 TFLOP/s"),
     ("matmul", "bfloat16", 54.23e12, "54.2 TFLOP/s"), ("matmul", "int8", 999e9, "999 GOP/s"),
     ("matmul", "int8", 1.1e15, "1,100 TOP/s"), ("sum", "float32", 4.1e12, "4,100 GB/s"),
     ("sum", "int32", 4.1e12, "4,100 GB/s")],
)  # fmt: skip
def test_rates_from_a_thousand_gigaflops_on_are_teraflops_and_those_of_integers_are_operations(
    operation, dtype, rate, text
):
    column = formats.rate_column(operation)
    of = {"operation": operation, "dtype": dtype}
    assert formats.rate_text({**of, column: rate}) == text
    small = {**of, column: 0.43e9}
    beside = formats.rate_unit(operation, dtype, 2e12)
    expected = {"TFLOP/s": "0.430 GFLOP/s", "TOP/s": "0.430 GOP/s", "GB/s": "0.430"}
    assert formats.rate(small, unit=beside) == expected[beside.name]
    assert formats.rate(small, unit=formats.rate_unit(operation, dtype, 2e9)) == "0.430"
    rows = [{**of, column: 1e9, f"call_{column}": math.nan}, {**of, column: rate, f"call_{column}": 1e9}]
    assert formats.rate_unit_of(rows).name == text.split()[1]


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ((4096, 4096, 4096), "4096"),
        ((128, 64, 32), "128 × 64 × 32"),
        ((0, 2**22, 0), "2²²"),
        ((0, 1000, 0), "1000"),
        ((0, 3000, 0), "3000"),
    ],
)
def test_sizes(shape, text):
    assert formats.size(dict(zip("mnk", shape, strict=True))) == text


def test_size_table_has_rate_ratio_and_verdict(built):
    shown = cells(html_of(built))
    assert ("", "100 GFLOP/s 0.250× PASS 1e-08") in shown
    assert ("", "400 GFLOP/s baseline PASS 1e-08") in shown
    assert ("", "51.2 baseline PASS 1e-08") in shown
    text = markdown(built / "tables" / "size.md")
    assert ["64", "", "100 GFLOP/s (0.250× PASS 1e-08)", "400 GFLOP/s (baseline PASS 1e-08)"] in timings.cells(text)
    assert "**TFLOP/s, float32, 1 rank, alpha 1.5, beta 0.5; library: cublas**" in text
    assert "**GFLOP/s, float64, 2 ranks, alpha 1.5, beta 0.5**" in text


def test_a_fail_shows_the_wrong_element_and_no_number(built):
    html = html_of(built)
    assert ("fail", f"FAIL {FAIL.where}") in cells(html)
    assert f"FAIL ({FAIL.where})" in markdown(built / "tables" / "size.md")
    (row,) = [row for row in read_csv(built / "tables" / "size.csv") if row["result"] == "FAIL"]
    assert row["where"] == FAIL.where
    for name in ("seconds", "seconds_low", "flops_per_second", "bytes_per_second", "ratio"):
        assert row[name] == ""
    drawn = [record for chart in Page(html).charts for record in chart["records"]]
    assert {"cublas", "divergent", "sequential", "cub"} <= {r["label"] for r in drawn if "label" in r}
    assert all(record["rate"] is None for record in drawn if record.get("label") == "naive 8")


def test_a_point_that_was_not_measured_is_an_empty_cell(built):
    head, *_, row = markdown_rows(built / "tables" / "size.md")[:3]
    assert head == ["n", "naive 8", "tiled_padded 16", "cublas"]
    assert row[0] == "128" and row[2:] == ["", "51.2 (baseline PASS 1e-08)"]


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_csv_has_plain_units_and_every_digit(built):
    rows = {(row["label"], row["n"], row["dtype"]): row for row in read_csv(built / "tables" / "size.csv")}
    row = rows["tiled_padded 16", "64", "float32"]
    assert float(row["seconds"]) == 2 * 64**3 / 100e9
    assert float(row["flops_per_second"]) == pytest.approx(100e9, rel=1e-15)
    assert (row["ratio"], row["repetitions"], row["ranks"]) == ("0.25", "6", "1")


def test_ladder_table(built):
    head, *rows = markdown_rows(built / "tables" / "sum.ladder.md")
    assert head == [
        "n", "Device", "Rung", "Time", "GB/s", "Step", "Cumulative", "Ratio to baseline", "Result",
    ]  # fmt: skip
    assert rows == [
        ["2²²", "cuda", "divergent", "8.00 ms (8.00 ms to 8.00 ms)", "2.10", "", "1.00×", "", "PASS 1e-08"],
        ["", "", "sequential", "2.00 ms (2.00 ms to 2.00 ms)", "8.39", "4.00×", "4.00×", "", "PASS 1e-08"],
        ["", "", "cub", "500 µs (500 µs to 500 µs)", "33.6", "", "16.0×", "baseline", "PASS 1e-08"],
    ]
    cumulative = [float(row["cumulative"]) for row in read_csv(built / "tables" / "sum.ladder.csv")]
    assert cumulative == pytest.approx([1.0, 4.0, 16.0])


def test_phase_table(built):
    head, row = markdown_rows(built / "tables" / "size.phases.md")
    assert head == [
        "n", "Variant", "Scatter", "Kernel", "Gather", "Total", "TFLOP/s, kernel alone", "TFLOP/s, end to end",
    ]  # fmt: skip
    assert row == [
        "64", "tiled_padded 16", "5.24 µs (20 %)", "10.5 µs (40 %)", "5.24 µs (20 %)", "26.2 µs", "100 GFLOP/s",
        "20.0 GFLOP/s",
    ]  # fmt: skip
    assert "End-to-end times, " not in Page(html_of(built)).text, "only chapters about transfers and ranks show it"
    assert not (built / "tables" / "sum.phases.md").exists()


def test_summary_and_conditions_are_at_the_top(built):
    text = Page(html_of(built)).text
    assert "8 points: 7 PASS , 1 FAIL, 0 throttled , 0 not measured , 1 variant not measured" in text
    assert "2 × H200 · 2026-03-01 · revision 0123456" in text
    assert "size tiled_padded 2 no CUDA device on this machine" in text
    known = "node7", "2 × H200", "Model T, 2 cores", "MPICH Version: 5.0", "0123456789ab with uncommitted changes"
    assert all(each in text for each in (*known, "2026-03-01T10:00:00Z", "measure.py --sweep size"))


def test_provenance_may_be_incomplete():
    runs = [{}, {"gpus": None, "cpu": None, "mpi": "x"}, {"host": "h", "gpus": [3]}]
    assert page.conditions(runs) == [("Machine", ["h"])]
    assert len(page.provenance(runs, "aaa")["runs"].rows) == 3


def test_provenance_says_what_is_shared_and_what_differs():
    records = [{"host": "a", "cpu": {"cores": cores}, "utc": str(i)} for i, cores in enumerate((2, 2, 4))]
    found = page.provenance(records, "bbb")
    assert json.loads(found["shared"]) == {"host": "a"}
    assert found["differing"].texts == [["cpu.cores", "(2 (runs: 2) 4 (runs: 1))"]]
    assert [run[1] for run in found["runs"].texts] == ["0", "1", "2"]


def test_gpus_of_several_machines_are_counted_once():
    def run(host, *uuids, name="H200"):
        return {"host": host, "gpus": [{"name": name, "uuid": uuid} for uuid in uuids]}

    assert dict(page.conditions([run("a", "1"), run("a", "1", "2")]))["GPU"] == ["2 × H200"]
    assert dict(page.conditions([run("a", "1", "2"), run("b", "2", "3")]))["GPU"] == ["3 × H200 in total"]
    runs = run("a", "1", "2"), run("b", "3", name="H100")
    assert dict(page.conditions(runs))["GPU"] == ["2 × H200", "1 × H100 in total"]


def test_the_page_is_one_offline_file_under_1_mb(built):
    html = html_of(built)
    assert len(html.encode()) < 1e6
    found = Page(html)
    assert not [tag for tag, _ in found.tags if tag in {"link", "img", "iframe", "object", "embed", "base", "video"}]
    for tag, attributes in found.tags:
        assert "src" not in attributes
        assert attributes.get("href", "#").startswith("#"), tag
        assert not [name for name in attributes if name.startswith("on")]
    assert "url(" not in "".join(found.styles) and "@import" not in "".join(found.styles)
    (policy,) = [a["content"] for _, a in found.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'") and "http" not in policy


def test_links_within_the_page_have_targets(built):
    tags = Page(html_of(built)).tags
    identities = [attributes["id"] for _, attributes in tags if "id" in attributes]
    assert len(identities) == len(set(identities))
    for _, attributes in tags:
        for reference in map(attributes.get, ("href", "aria-labelledby", "data-defined")):
            assert reference is None or reference.removeprefix("#") in identities


def test_the_page_says_which_variants_are_deterministic(built):
    page = Page(html_of(built))
    assert "cublas cuda cuBLAS, without TF32 or sums rounded to 16 bits (baseline) yes" in page.text
    assert "numpy cpu NumPy's BLAS (baseline) not promised" in page.text
    text = "one_launch cuda 16 bytes per load; the last block combines the results of all, in fixed order yes"
    assert text in page.text


def test_each_figure_has_its_rates_and_a_file(built):
    charts = [chart for chart in Page(html_of(built)).charts if "value" in chart["records"][0]]
    rates = {(r["label"], r["n"]): r["rate"] for chart in charts for r in chart["records"] if r["rate"]}
    assert rates["cublas", 128] == pytest.approx(51.2345) and ("cublas", 64) not in rates, "of the largest size"
    drawings = sorted(path.name for path in (built / "figures").iterdir())
    assert drawings == ["size-float32-r1-ladder-cuda.svg", "sum-int32-r1-ladder-cuda.svg"]
    for name in drawings:
        assert (built / "figures" / name).read_text("utf-8").startswith("<svg")


def test_an_interval_is_drawn_only_if_it_exists(tmp_path):
    rows = [took(product("cublas"), [1e-6] * 30), timed(product("cublas", 128), 1e-6, spread=(1.0, 1.1, 1.2))]
    rows.append(took(product("cublas", 256), [1e-6] * 3))
    report.build(timings.write(tmp_path / "timings.h5", {"size": rows}), tmp_path)
    (chart,) = Page(html_of(tmp_path)).charts
    one, three, _ = chart["records"]
    assert one["low"] is None and one["high"] is None
    assert one["rate"] == pytest.approx(2 * 64**3 / 1e-6 / 1e12)
    assert three["low"] < three["rate"] < three["high"]
    assert three["rate"] == pytest.approx(2 * 128**3 / 1.1e-6 / 1e12, rel=1e-4)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("colour", vega.PALETTE)
def test_colours_have_contrast_in_light_and_dark(colour):
    style = (Path(page.__file__).parent / "page.css").read_text("utf-8")
    light, dark = re.findall(r"--paper: (#\w+);", style)[:2]
    assert (luminance(light.replace("#fff", "#ffffff")) + 0.05) / (luminance(colour) + 0.05) >= 3
    assert (luminance(colour) + 0.05) / (luminance(dark) + 0.05) >= 3


def test_a_map_has_a_point_for_each_of_many_shapes_with_the_lead_over_the_faster_library(tmp_path):
    drawn = shapes.drawn("any", sizes.MANY, 1)
    least = 2 * max(map(math.prod, drawn)) / 1e12  # seconds of the largest at 1 TFLOP/s, which the libraries reach
    rows = [
        took(product(v, shape), time * least, contender)
        for shape in drawn
        for v, own in (("best", 1.1), ("cublaslt", 0.88))
        for contender, time in ((v, own), ("cublas", 0.99))
    ]
    (series,) = analysis.series(analysis.measurements(store.read(timings.write(tmp_path / "t.h5", {"atlas": rows}))))
    (drawn,) = sizes.map_of_shapes(series)
    assert drawn.columns["lead"] == [pytest.approx(0.8)] * sizes.MANY and set(drawn.columns["label"]) == {"best"}
    titles = {each["field"]: each.get("title") for each in drawn.spec["layer"][0]["encoding"]["tooltip"]}
    assert titles["rate"] == drawn.shown["rate"] == "TFLOP/s", "of all rates of the series, as in its table"
    found = {(round(side**2), k) for side, k in zip(drawn.columns["side"], drawn.columns["k"], strict=True)}
    assert len(found) == sizes.MANY and "over the faster of cublas and cublaslt" in drawn.caption
    (fewer,) = analysis.series(analysis.measurements(store.read(timings.write(tmp_path / "u.h5", {"atlas": rows[4:]}))))
    assert not list(sizes.map_of_shapes(fewer))


def test_variants_differ_without_colour_and_tiles_share_a_colour(tmp_path):
    rungs = [*itertools.product(("naive", "tiled_padded"), (8, 16, 32)), ("serial", 0), ("numpy", 0), ("cublas", 0)]
    rows = [of_rate(product(name, n, tile=tile), 1.0 + tile) for n in (64, 128, 256) for name, tile in rungs]
    (series,) = analysis.series(timings.derived(*rows))
    (drawn,) = sizes.rate_against_size(series)
    encodings = [layer["encoding"] for layer in drawn.spec["layer"]]
    (shape,) = [e["shape"]["scale"] for e in encodings if "shape" in e]
    color = next(e["color"]["scale"] for e in encodings if "color" in e)
    style = {label: (c, s) for label, c, s in zip(color["domain"], color["range"], shape["range"], strict=True)}
    assert list(style) == [
        "serial", "numpy", "naive 8", "naive 16", "naive 32", "tiled_padded 8", "tiled_padded 16", "tiled_padded 32",
        "cublas",
    ]  # fmt: skip
    assert len(set(style.values())) == len(style)
    assert style["naive 8"][0] == style["naive 32"][0] != style["tiled_padded 8"][0]
    assert style["numpy"][0] == style["cublas"][0] == vega.LINE
    ours = [shape for label, (_, shape) in style.items() if label not in ("numpy", "cublas")]
    assert len(set(ours)) == len(ours)


@pytest.mark.parametrize(
    ("variant", "tile", "count", "chapter"),
    [("naive", 16, 30, "tiles"), ("best", 0, 30, "sizes"), ("naive", 16, 5, "sizes"), ("best", 0, 1, "ladder")],
)
def test_many_sizes_are_in_the_chapter_of_tiles_only_if_variants_have_tiles(variant, tile, count, chapter):
    rows = [took(product(variant, (n, 64, 64), tile=tile), 1e-3) for n in range(1, count + 1)]
    assert chapters.chapter_of(analysis.row_dicts(timings.derived(*rows))) == chapter


def test_each_shape_has_a_row(tmp_path):
    rows = [took(product("cublas", shape), 1e-3) for shape in ((128, 64, 64), (64, 64, 64), (64, 128, 64))]
    report.build(timings.write(tmp_path / "timings.h5", {"shapes": rows}), tmp_path)
    (chart,) = Page(html_of(tmp_path)).charts
    points = next(layer for layer in chart["layer"] if layer["mark"]["type"] == "point")
    assert points["encoding"]["y"]["sort"] == ["64", "64 × 128 × 64", "128 × 64 × 64"]
    assert not [layer for layer in chart["layer"] if layer["mark"]["type"] == "line"]


EVIL = "</script><script>alert(1)</script>"


def test_text_from_a_file_is_escaped(tmp_path):
    where = f"0:0: {EVIL} | `x`"
    rows = [of_rate(product("cublas"), 1.0), measurement(product(), verdict=Verdict(False, 1, 0, "r", where))]
    omitted = [{"sweep": EVIL, "variant": EVIL, "ranks": 1, "reason": EVIL}]
    provenance = {**PROVENANCE, "host": EVIL, "arguments": [EVIL], "slurm": {EVIL: EVIL}, "packages": {EVIL: EVIL}}
    path = timings.write(tmp_path / "timings.h5", {f"../{EVIL}": rows}, provenance, omitted)
    report.build(path, tmp_path / "results")
    html = html_of(tmp_path / "results")
    assert "<script>alert" not in html
    found = Page(html)
    assert len(found.charts) == 1
    assert found.text.count("alert(1)") >= 8
    assert not [text for _, text in found.scripts if text.strip().startswith("alert")]
    text = "".join(path.read_text("utf-8") for path in (tmp_path / "results" / "tables").glob("*.md"))
    assert "\\<script\\>alert" in text and not re.search(r"(?<!\\)<script", text)
    written = [path.parent.name for path in tmp_path.rglob("*") if path.is_file() and path.suffix not in (".h5",)]
    assert set(written) == {"results", "tables", "figures"}


HOSTILE = "=cmd|'/c calc'!A1\x1b[2J\x07"


def test_control_characters_and_formulas_are_removed(tmp_path, monkeypatch):
    provenance = {"host": HOSTILE, "gpus": [{"name": "@H200\x1b[2J", "uuid": "u"}], "cpu": {"model": "+\x9b"}}
    wrong = Verdict(False, 3.0, 1e-7, "componentwise, float64", "-0:640\x1b]0;title\x07: 0 - 1.5 = -1.5")
    rows = [of_rate(product("cublas"), 1.0), measurement(product("naive"), verdict=wrong)]
    with monkeypatch.context() as patch:
        patch.setattr(store.file, "printable", lambda text: text)  # as another program writes it
        path = timings.write(tmp_path / "timings.h5", {HOSTILE: rows}, provenance)
    assert b"\x1b[2J" in path.read_bytes()
    made, _ = report.build(path, tmp_path)
    files = [each for each in tmp_path.rglob("*") if each.is_file() and each.suffix != ".h5"]
    assert {each.suffix for each in files} == {".html", ".svg", ".csv", ".md"}
    steering = {chr(code) for code in [*range(32), 127, *range(128, 160)]} - {"\n"}
    for each in files:
        assert not steering & set(each.name)
        if each != made:  # its script has tabs
            assert not steering & set(each.read_text("utf-8")), each.name
    assert "\x1b" not in html_of(tmp_path) and "\\u001b" not in html_of(tmp_path)
    for each in tmp_path.rglob("*.csv"):
        for row in csv.DictReader(each.read_text("utf-8").splitlines()):
            for name, value in row.items():
                if name in ("sweep", "where", "gpu", "machine", "name", "label"):
                    assert not value.startswith(("=", "+", "-", "@")), (each.name, name)
    (name,) = {row["sweep"] for row in read_csv(next(tmp_path.glob("tables/*A1*2J.csv")))}
    assert name == "'=cmd|'/c calc'!A1[2J"


@pytest.mark.slow
def test_a_drawing_that_aborts_is_an_error_in_its_place(monkeypatch):
    """A control character aborts the renderer; the store would have removed it."""
    monkeypatch.setattr(drawing, "_run", RENDERED)
    spec = {"data": {"values": [{"a": 1}]}, "mark": "text", "encoding": {"x": {"field": "a"}}}
    fine = json.dumps(spec | {"title": {"text": ["fine"]}})
    aborts = json.dumps(spec | {"title": {"text": ["at one", "size \x1b[2J"]}})
    first, failed, last = drawing.svgs([fine, aborts, fine])
    assert first == last and first.startswith("<svg")
    assert re.match(r"the figure 'at one size \[2J' cannot be drawn: .* SIGABRT: ", str(failed))


@pytest.mark.slow
@pytest.mark.parametrize("script", ["kept", "none"])
def test_a_report_without_memory_for_figures_has_everything_else(command, tmp_path, monkeypatch, script):
    """V8 reserves gigabytes of addresses, so ``ulimit -v`` may leave no process that draws."""
    rows = [of_rate(product(name, n), 1.0) for name in ("naive", "cublas") for n in (256, 512)]
    path = timings.write(tmp_path / "timings.h5", {"size": rows})
    assert command("report", path, "--results", tmp_path / "out").returncode == 0
    assert list((tmp_path / "out" / "figures").iterdir())
    aborted = subprocess.CompletedProcess([], -signal.SIGTRAP, "", "# Fatal process out of memory: CagedHeap")
    monkeypatch.setattr(drawing, "_run", lambda specs: aborted)
    if script == "none":
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
        drawing.script.cache_clear()
    done = command("report", path, "--results", tmp_path / "out")
    assert done.returncode == 0 and "figures are not drawn; the first: the figure " in done.stderr
    assert "out of memory" in done.stderr and "raise the limit: ulimit -v" in done.stderr
    assert not list((tmp_path / "out" / "figures").iterdir()), "no figure of an earlier report"
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "Figures are not drawn." in page and ('id="vega"' in page) == (script == "kept")
    drawing.script.cache_clear()


@pytest.mark.slow
def test_the_script_of_a_page_is_kept_in_the_cache_and_made_again_if_it_is_damaged(tmp_path, monkeypatch):
    rendered, runs = RENDERED([]), []

    def run(specs):
        runs.append(specs)
        return rendered

    monkeypatch.setattr(drawing, "_run", run)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    drawing.script.cache_clear()
    made = drawing.script()
    assert "vegaEmbed" in gzip.decompress(base64.b64decode(made)).decode()
    (kept,) = (tmp_path / "hpcmm").iterdir()
    drawing.script.cache_clear()
    assert drawing.script() == made and runs == [[]]
    content = kept.read_bytes()
    kept.write_bytes(content[:1000] + b"x" + content[1001:])
    drawing.script.cache_clear()
    assert drawing.script() == made and kept.read_bytes() == content and runs == [[], []]


@pytest.mark.parametrize(
    "provenance", [100_000 * '{"a":' + "1" + 100_000 * "}", "[" * 100_000, '{"host": ' + "9" * 5000 + "}"]
)
def test_provenance_nested_too_deeply_is_ignored(command, tmp_path, provenance):
    path = timings.write(tmp_path / "timings.h5", {"size": [of_rate(product("cublas"), 1.0)]})
    groups = store.read(path)
    groups["runs"]["provenance"][:] = provenance
    store.write_groups(path, groups)
    done = command("report", path, "--results", tmp_path / "out")
    assert (done.returncode, done.stderr) == (0, "")


def test_many_points_give_an_overview_and_a_page_of_each_sweep(tmp_path, monkeypatch, command):
    rows = [of_rate(product("naive", n, tile=8), 10.0 * n) for n in (64, 128)]
    sums = [timed(total(n=2**n), 2.0) for n in (5, 6)]
    wrong = measurement(product("naive_unguarded", 129, tile=8), verdict=FAIL)
    path = timings.write(tmp_path / "timings.h5", {"size": rows, "sums": sums, "guard": [wrong]}, PROVENANCE)
    warnings = []
    report.build(path, tmp_path / "whole", warnings.append)
    monkeypatch.setattr(report, "MANY", 3)
    page, summary = report.build(path, tmp_path / "over", warnings.append)
    assert warnings == [f"5 points are too many for one page: hpcmm report {path} SWEEP makes the page of a sweep"]
    assert summary.points == 5 and not (tmp_path / "over" / "tables" / "size.csv").exists()
    _, *lines = markdown_rows(tmp_path / "over" / "tables" / "gpu.sweeps.md")
    assert {line[0]: line[5:9] for line in lines} == {  # points, PASS, FAIL, not measured
        "size": ["2", "2", "0", "0"], "sums": ["2", "2", "0", "0"], "guard": ["1", "0", "1", "0"],
    }  # fmt: skip
    assert lines[0][1:4] == ["naive 8 at 128", "1.28 TFLOP/s", ""]
    assert "naive 8 at 128" in Page(timings.page_of(page)).text
    alone, summary = report.build(path, tmp_path / "one", names=["size"])
    assert (alone.name, summary.points, summary.failed) == ("report-size.html", 2, 0)
    files = [tmp_path / folder / "tables" / "size.csv" for folder in ("whole", "one")]
    assert files[0].read_text() == files[1].read_text()
    done = command("report", path, "sise", "--results", tmp_path)
    assert done.returncode == 1
    assert "sweep 'sise' is not in the file; allowed: size, sums, guard; did you mean 'size'?" in done.stderr
    done = command("report", path, path, "--results", tmp_path)
    assert done.returncode == 1 and "not a sweep of the first one; hpcmm merge joins files" in done.stderr


def test_an_empty_file_gives_a_page(tmp_path):
    timings.merge([], tmp_path / "timings.h5", UNMEASURED)
    report.build(tmp_path / "timings.h5", tmp_path)
    found = Page(html_of(tmp_path))
    assert "No measurements. timings.h5 has no measured point" in found.text
    assert "no CUDA device on this machine" in found.text
    assert found.charts == [] and 'id="vega"' not in html_of(tmp_path)


def test_a_file_with_failures_only_gives_a_page(tmp_path):
    report.build(timings.write(tmp_path / "timings.h5", {"size": [measurement(product(), verdict=FAIL)]}), tmp_path)
    found = Page(html_of(tmp_path))
    assert FAIL.where in found.text and found.charts == []
    assert not (tmp_path / "figures").exists()


def test_throttled_points_are_listed(tmp_path):
    rows = [measurement(product("cublas"), samples=kernel_samples([1.0], {"throttle_reasons": 0x4}))]
    report.build(timings.write(tmp_path / "timings.h5", {"size": rows}), tmp_path)
    text = Page(html_of(tmp_path)).text
    assert "1 throttled" in text and "power cap" in text and "PASS 1e-08, throttled" in text


def over_ranks(ranks, seconds, dtype="float32", algorithm=TEXTBOOK, calls=False):
    point = product("cublas", 64, dtype, ranks, algorithm)
    phases = [[{"kernel": seconds / 2, "total": seconds}] * ranks] * 6
    return measurement(point, samples=call_samples(phases)) if calls else took(point, seconds)


@pytest.mark.parametrize(
    ("names", "shown"), [(["ring", "resident"], ""), (["ring", "resident", "summa"], " of the fastest variants")]
)
def test_scaling_figure_shows_the_fastest_variants(tmp_path, names, shown):
    rows = [over_ranks(n, (8.0 + i) / n, algorithm=name) for i, name in enumerate(names) for n in (1, 2, 4)]
    rows += [over_ranks(n, 20.0 / n, algorithm="staged", calls=True) for n in (1, 2, 4)]
    report.build(timings.write(tmp_path / "timings.h5", {"size": rows}), tmp_path)
    found = Page(html_of(tmp_path))
    assert f"Strong scaling{shown} on the GPU, float32" in found.text
    first, chart = [chart for chart in found.charts if "efficiency" in chart["records"][0]]
    records = chart["records"]
    assert first["records"] == records  # that of the first screen
    assert {each["series"] for each in records} == {"cublas ring", "cublas resident", "cublas staged"}
    ring = [(each["ranks"], each["speedup"]) for each in records if each["series"] == "cublas ring"]
    assert ring == [(1, 1.0), (2, 2.0), (4, 4.0)]
    (dash,) = [e["strokeDash"] for e in (layer["encoding"] for layer in chart["layer"]) if "strokeDash" in e]
    assert dash["scale"]["domain"][0] == "kernel alone"


def test_scaling_table_groups_types_and_has_no_empty_column(tmp_path):
    rows = [over_ranks(ranks, 8e-3 / ranks, dtype) for dtype in ("float64", "float32") for ranks in (2, 1, 4)]
    report.build(timings.write(tmp_path / "timings.h5", {"size": rows}), tmp_path)
    head, *lines = markdown_rows(tmp_path / "tables" / "size.scaling.md")
    assert head == ["Scaling", "n", "Variant", "Ranks", "Kernel alone", "Speedup", "Efficiency"]
    assert [line[3] for line in lines] == ["1", "2", "4"] * 2
    assert [line[2] for line in lines] == ["cublas, float32", "", "", "cublas, float64", "", ""]
    assert lines[1][4:] == ["4.00 ms", "2.00×", "100 %"]


EXCHANGES = {"exchanges": {"bytes": [1000, 100_000], "seconds": [1e-3, 1e-1]}}


def spread(algorithm, n=64, dtype="float32", ranks=2):
    """A product by an algorithm and by scatter: n seconds each, half of them for copies."""
    point = product("cublas", n, dtype, ranks, algorithm)
    phases = {"upload": n / 4, "kernel": n / 2, "download": n / 4, "total": n}
    calls = algorithm == "staged"
    samples = call_samples([[phases] * ranks] * 6) if calls else kernel_samples([[n] * ranks] * 6)
    return [measurement(point, samples=samples, algorithm=each) for each in (algorithm, TEXTBOOK)]


def test_each_type_has_predictions_of_its_largest_product(tmp_path):
    rows = []
    for dtype, n in (("float32", 64), ("float32", 128), ("float64", 64)):
        rows += spread("resident", n, dtype, ranks=4)
    report.build(timings.write(tmp_path / "timings.h5", {"size": rows}, EXCHANGES), tmp_path)
    _, *lines = markdown_rows(tmp_path / "tables" / "size.predictions.md")
    assert len(lines) == 12 and {line[4] for line in lines} == {"1", "2", "4", "8", "16", "32"}
    measured = [(line[0], line[3], line[5]) for line in lines if line[5] != "predicted only"]
    assert measured == [("", "", "128 s"), ("", "", "64.0 s")]
    assert [line[0] for line in lines if line[3]] == ["128", "64"]


def test_predictions_are_of_the_kernel_or_end_to_end(tmp_path):
    rows = [*spread("resident", ranks=4), *spread("staged", ranks=4)]
    report.build(timings.write(tmp_path / "timings.h5", {"size": rows}, EXCHANGES), tmp_path)
    head, *lines = markdown_rows(tmp_path / "tables" / "size.predictions.md")
    assert head == ["n", "Variant", "Timed", "Type", "Ranks", "Measured", "Predicted", "Predicted over measured"]
    named = [("cublas staged", "end to end"), ("cublas resident", "kernel alone")]
    assert [(line[1], line[2]) for line in lines if line[1]] == named
    rows = read_csv(tmp_path / "tables" / "size.predictions.csv")
    assert {(row["label"], row["of"]) for row in rows} == set(named)


def test_without_one_rank_there_is_no_efficiency(tmp_path):
    rows = [over_ranks(1, 8.0, algorithm="resident"), over_ranks(4, 3.0, algorithm="staged", calls=True)]
    report.build(timings.write(tmp_path / "timings.h5", {"size": rows}), tmp_path)
    assert not [chart for chart in Page(html_of(tmp_path)).charts if "efficiency" in chart["records"][0]]
    assert not list((tmp_path / "figures").glob("size-strong*"))


def test_settings_of_one_sweep_have_separate_tables(tmp_path):
    rows = [of_rate(product("cublas", n, beta=beta), 1.0) for beta in (0.0, 1.0) for n in (64, 128, 256)]
    report.build(timings.write(tmp_path / "timings.h5", {"size": rows}), tmp_path)
    drawn = sorted(p.name for p in (tmp_path / "figures").iterdir())
    assert drawn == ["size-float32-r1-2-rate.svg", "size-float32-r1-rate.svg"]
    assert (tmp_path / "tables" / "size.md").read_text("utf-8").count("**GFLOP/s") == 2


GPU = {
    "name": "H200", "compute_capability": "90", "multiprocessors": 132, "memory_bytes": 150_000_000_000,
    "max_sm_clock": 1.98e9, "block_dimensions": [1024, 1024, 64], "ecc": True, "sm_shared_bytes": 228 * 1024,
}  # fmt: skip


def test_resource_tables(tmp_path):
    tiled = kernel(HOPPER, (16, 16), 8, registers=40, shared_bytes=2048)
    ring = kernel(HOPPER, (256, 1), 2, registers=128, dynamic_shared_bytes=64 * 1024, local_bytes=16)
    rows = [
        of_rate(product("tiled_padded", 4096, tile=16), 1.0, resources=tiled),
        of_rate(product("tiled_padded", 4096, "float64", tile=16), 1.0, resources=tiled | {"resident_blocks": 5}),
        of_rate(product("asynchronous", 4096), 1.0, resources=ring),
        of_rate(product("cublas", 4096), 1.0),
    ]
    sums = [measurement(total(), resources=kernel(HOPPER, (128, 1), 16, registers=16, shared_bytes=512))]
    provenance = {"gpus": [GPU | {"uuid": "a"}, GPU | {"uuid": "b"}]}
    report.build(timings.write(tmp_path / "timings.h5", {"size": rows, "sum": sums}, provenance), tmp_path)
    head, first, second, third = markdown_rows(tmp_path / "tables" / "matmul.resources.md")
    assert dict(zip(head, first, strict=True)) == {
        "Variant": "tiled_padded 16", "Type": "float32", "Registers": "40", "Shared memory": "2 KiB",
        "Local memory": "0 B", "Block": "16 × 16", "Grid": "4 × 4 (4096)", "Blocks per SM": "8 (computed: 6)",
        "Threads per SM": "2,048", "Occupancy": "100 %", "Limited by": "registers", "Block limit, threads": "8",
        "Block limit, registers": "6", "Block limit, shared memory": "76", "Block limit, hardware": "32",
        "Loads per phase": "512", "Operations per phase": "8,192", "Pending loads per SM": "4,096",
        "Operations per load": "16.0", "Bandwidth bound": "19.2 TFLOP/s",
    }  # fmt: skip
    assert second[:2] == ["", "float64"] and "computed: 6" in second[7] and second[9] == "62 %"
    assert third[3:5] == ["64 KiB (dynamic)", "16 B"] and third[7] == "2" and third[9] == "25 %"
    assert third[15:17] == ["2,048", "262,144"]
    head, only = markdown_rows(tmp_path / "tables" / "sum.resources.md")
    assert head[-1] == "Block limit, hardware" and only[:2] == ["sequential", "int32"] and only[6] == "4 × 4 (2²²)"
    (row,) = [row for row in read_csv(tmp_path / "tables" / "matmul.resources.csv") if row["dtype"] == "float64"]
    assert (row["registers"], row["occupancy"], row["sm_threads"]) == ("40.0", "0.625", "2048.0")
    assert markdown_rows(tmp_path / "tables" / "gpu.properties.md")[:5] == [
        ["Property", "H200"],  # two equal GPUs are one column
        ["Compute capability", "9.0"],
        ["Multiprocessors (SM)", "132"],
        ["FMA units for float32, its cores", "16,896"],
        ["Maximum SM clock", "1,980 MHz"],
    ]
    properties = {row["Property"]: row["H200"] for row in read_csv(tmp_path / "tables" / "gpu.properties.csv")}
    assert properties["Maximum SM clock"] == "1,980 MHz"
    html = html_of(tmp_path)
    assert "Resources and occupancy, matmul" in html and "Limited by</dt>" in html


def with_profile(path: Path, profiles, reasons=()) -> Path:
    """A timings file of a product and a sum, with profiles or the reasons for their absence."""
    rows = {"size": [of_rate(product("cublas"), 1.0)], "sum": [measurement(total("cub", dtype="float32"))]}
    measured = timings.write(path.with_name("measured.h5"), rows)
    store.write_profiles(path.with_name("counted.h5"), "matmul", {}, profiles)
    timings.merge([measured, path.with_name("counted.h5")], path, unprofiled=reasons)
    return path


def test_profile_table_from_real_profiler_output(tmp_path):
    answer = Path(__file__).with_name("nsight_compute.csv").read_text()
    naive, _, uncoalesced, _, _, _, conflict, *_, library = profiling.kernels(answer)
    seen = [("cublas", library), ("naive", naive), ("uncoalesced", uncoalesced), ("bank_conflict", conflict)]
    waits = {"warp_cycles": 10.0, "stall_barrier": 4.0, "stall_wait": 3.0, "stall_membar": 0.0}
    profiles = [
        Profile(product(name, 1024), timings.PASS, kernel.name, 1, kernel.counters | waits) for name, kernel in seen
    ]
    profiles.append(Profile(product("tiled_exact", 1024, tile=16), FAIL))
    reasons = [{"operation": "sum", "reason": "no <ncu>"}]
    results = report.build(with_profile(tmp_path / "t.h5", profiles, reasons), tmp_path)[0].parent
    head, *rows = markdown_rows(tmp_path / "tables" / "matmul.profile.md")
    assert [row[0] for row in rows] == ["naive", "uncoalesced", "tiled_exact 16", "bank_conflict", "cublas"]
    table = {row[0]: dict(zip(head, row, strict=True)) for row in rows}
    assert [table[name]["Sectors per load"] for name in ("naive", "uncoalesced")] == ["2.50", "16.5"]
    assert [table[name]["Sectors per store"] for name in ("naive", "uncoalesced")] == ["4.00", "32.0"]
    assert table["naive"]["Achieved occupancy"] == "94 % (of 100 %)"
    assert table["naive"]["Global loads GB/s"] == "15,800"
    assert table["naive"]["Waiting for"] == "other warps at a barrier 40 %, the fixed latency of an instruction 30 %"
    assert table["tiled_exact 16"]["Waiting for"] == ""
    assert table["naive"]["Conflict factor of shared loads"] == ""
    assert table["bank_conflict"]["Conflict factor of shared loads"] == "4.50"
    assert table["bank_conflict"]["Bank conflicts"] == "300,115,167"
    assert table["cublas"]["Achieved occupancy"] == "6.2 % (of 12 %)"
    assert table["cublas"]["Type"] == "float32 (sm80_xmma_gemm_f32f32_f32f32_f3…)"  # the kernel that the library chose
    assert table["tiled_exact 16"]["Achieved occupancy"].startswith("FAIL (0:640")
    page_text = Page(html_of(results)).text
    assert "Profile, matmul at 1024" in page_text
    assert "Not profiled: sum. Reason: no <ncu>." in page_text
    (row,) = [row for row in read_csv(tmp_path / "tables" / "matmul.profile.csv") if row["label"] == "naive"]
    assert float(row["global_load_bytes_per_second"]) == 15777413268182.67
    assert float(row["achieved_occupancy"]) == pytest.approx(0.9359)


def test_without_a_profile_the_page_has_the_reason(tmp_path):
    reasons = [{"operation": name, "reason": "no GPU"} for name in ("matmul", "sum", "vector_add")]
    text = Page(html_of(report.build(with_profile(tmp_path / "t.h5", [], reasons), tmp_path)[0].parent)).text
    assert "Not profiled: matmul, sum. Reason: no GPU." in text  # vector_add was not measured
    assert not list((tmp_path / "tables").glob("*.profile.*"))


def test_invalid_gpu_properties_are_left_out():
    wrong = {"name": "X", "multiprocessors": 2, "compute_capability": 90, "memory_bytes": "much", "max_sm_clock": None}
    table = hardware.device_table([wrong])
    assert [[cell.text for cell in row] for row in table.rows] == [["Multiprocessors (SM)", "2"]]


def of_schema(version, path):
    with h5py.File(path, "a") as file:
        file.attrs["schema_version"] = version


def without(path, names=()):
    """Remove the marks of the format, and some groups."""
    with h5py.File(path, "a") as file:
        file.attrs.clear() if not names else [file.pop(name) for name in names]


UNUSABLE = {  # by fault: the change of the file, and the error message
    "missing": (Path.unlink, "no such file"),
    "header": (lambda path: path.write_bytes(b"\x89HDF\r\n\x1a\n"), "truncated or damaged"),
    "text": (lambda path: path.write_text("GFLOP/s\n1\n"), "not an HDF5 file"),
    "folder": (lambda path: (path.unlink(), path.mkdir()), "no timings.h5 in this folder"),
    "truncated": (lambda path: path.write_bytes(path.read_bytes()[:9999]), "truncated or damaged"),
    "foreign": (without, "not a file of hpcmm timings"),
    "newer": (partial(of_schema, store.SCHEMA_VERSION + 1), f"reads {store.SCHEMA_VERSION}: upgrade hpcmm"),
    "older": (partial(of_schema, 1), f"reads {store.SCHEMA_VERSION}: read it with the hpcmm that wrote it"),
    "without visits": (partial(without, names=["visits"]), "no group visits: an earlier hpcmm wrote it, which can"),
}


@pytest.mark.parametrize(("change", "text"), UNUSABLE.values(), ids=UNUSABLE)
def test_command_reports_an_unusable_file_in_one_line(command, tmp_path, change, text):
    path = timings.write(tmp_path / "timings.h5", {"size": [of_rate(product("cublas"), 1.0)]})
    change(path)
    done = command("report", path, "--results", tmp_path / "out")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"hpcmm: error: {path}: ") and text in done.stderr
    assert len(done.stderr.splitlines()) == 1 and not (tmp_path / "out").exists()


def test_pinned_and_pageable_copies_are_in_adjacent_rows(tmp_path):
    rows = []
    for pinned, upload in ((False, 4e-3), (True, 1e-3)):
        phases = {"upload": upload, "kernel": 3e-3, "download": 1e-3, "total": upload + 5e-3}
        slow = phases | {"upload": 2 * upload}
        point = product("naive", 640, tile=32, pinned=pinned)
        rows.append(measurement(point, samples=(*kernel_samples([1e-3]), *call_samples([[phases], [slow]]))))
    report.build(timings.write(tmp_path / "timings.h5", {"transfer": rows}), tmp_path)
    head, *body = markdown_rows(tmp_path / "tables" / "transfer.activities.md")
    assert head == ["n", "Variant", "Activity", "Host memory", "Share", "Sum", "Calls", "Mean", "Min", "Max"]
    assert body[:3] == [
        ["640", "naive 32", "host to device", "pinned", "25 %", "3.00 ms", "2", "1.50 ms", "1.00 ms", "2.00 ms"],
        ["", "", "", "pageable", "67 %", "12.0 ms", "2", "6.00 ms", "4.00 ms", "8.00 ms"],
        ["", "", "kernel", "pinned", "50 %", "6.00 ms", "2", "3.00 ms", "3.00 ms", "3.00 ms"],
    ]
    assert [row[2] for row in body] == ["host to device", "", "kernel", "", "device to host", ""]
    first, *_ = read_csv(tmp_path / "tables" / "transfer.activities.csv")
    assert (first["activity"], first["memory"], first["calls"]) == ("upload", "pageable", "2")
    text = Page(html_of(tmp_path)).text
    assert "Copies and kernel, float32" in text and "Speedup of pinned over pageable host memory" in text


def test_each_rate_has_its_fraction_of_the_limit(tmp_path):
    rows = [of_rate(product(v, 64, tile=8), rate) for v, rate in (("naive", 64.0), ("tiled_padded", 128.0))]
    report.build(timings.write(tmp_path / "timings.h5", {"one": rows}, {"gpus": [timings.SMALL]}), tmp_path)
    head, first, second = markdown_rows(tmp_path / "tables" / "one.ladder.md")
    assert (head[7], first[7], second[7]) == ("Of limit", "25 % (float32 FMA units)", "50 % (float32 FMA units)")
    assert "64.0 (25 % PASS 1e-08)" in (tmp_path / "tables" / "one.md").read_text("utf-8")
    row, _ = read_csv(tmp_path / "tables" / "one.csv")
    assert (float(row["fraction"]), row["ceiling"]) == (pytest.approx(0.25), "float32 FMA units")
    html = html_of(tmp_path)
    assert 'id="hardware-limit"' in html and "64 GFLOP/s" not in html
    assert "Peak float32 rate at the maximum clock" in html


def test_other_arithmetic_is_named_with_the_result(tmp_path):
    rows = [of_rate(product(v, 64), 64.0) for v in ("swizzled", "tensor_core")]
    report.build(timings.write(tmp_path / "timings.h5", {"one": rows}), tmp_path)
    _, own, other = markdown_rows(tmp_path / "tables" / "one.ladder.md")
    assert (own[-1], other[-1]) == ("PASS 1e-08", "PASS 1e-08, three TF32 products")
    assert [row["arithmetic"] for row in read_csv(tmp_path / "tables" / "one.csv")] == ["", "three TF32 products"]
    text = Page(html_of(tmp_path)).text
    assert "PASS 1e-08, three TF32 products" in text


def test_findings_and_reasons_are_on_the_page_and_nothing_about_an_unknown_gpu(built):
    text = Page(html_of(built)).text
    assert "Not profiled: matmul, sum. Reason: the timings file has no profile." in text
    assert not [each for each in ("Of limit", "Limit of the hardware", "Resources and occupancy") if each in text]
    assert not [each for kind in ("*.resources.*", "gpu.*") for each in (built / "tables").glob(kind)]
    assert "FAIL at 128: naive 8." in text
    assert "At 2²² in int32 the fastest rung of the GPU is sequential: 8.39 GB/s." in text  # 2^22 * 4 B in 2 ms
    assert "On the GPU at 2²²" not in text  # two rungs are no ladder


def test_a_merged_file_is_shown_by_machine_with_the_newest_points(tmp_path):
    runs = []
    for day, (model, rate) in enumerate((("T", 101.0), ("T", 200.0), ("S", 300.0)), 1):
        run = {"cpu": {"model": f"Model {model}", "cores": 2}, "utc": f"2026-01-0{day}", "gpus": [{"name": "H200"}]}
        runs.append((run, {"size": [of_rate(product(), rate)]}))
    store.write_groups(tmp_path / "timings.h5", timings.merged(*runs))
    made, _ = report.build(tmp_path / "timings.h5", tmp_path)
    text = Page(html_of(made.parent)).text
    assert "The runs are from 2 kinds of machine." in text
    assert "2 points have one visit only. Intervals of such points use the spread" in text
    assert "spread between visits of one job unknown, between jobs unknown" in text
    assert "1 point was measured again by a later run on the same kind of machine. The newest is shown" in text
    assert "Size matmul, machine with Model T" in text and "Size matmul, machine with Model S" in text
    shown = [f"{text} " for _, text in cells(html_of(made.parent))]
    assert any(cell.startswith("200 ") for cell in shown) and any(cell.startswith("300 ") for cell in shown)
    assert not any(cell.startswith("101 ") for cell in shown)


def test_a_missing_point_is_not_a_wrong_result(tmp_path):
    lost = Verdict(False, math.nan, math.nan, UNCHECKED, "not measured, tried 2 times: no room")
    rows = [measurement(product(), verdict=lost), of_rate(product("cublas"), 100.0)]
    made, _ = report.build(timings.write(tmp_path / "timings.h5", {"size": rows}), tmp_path)
    text = Page(html_of(made.parent)).text
    assert "0 FAIL" in text and "1 not measured" in text and "Wrong results" not in text
    assert "not measured tried 2 times: no room" in text and "No measurements" not in text
    path = timings.write(tmp_path / "none.h5", {"size": rows[:1]})  # more visits would not help either
    made, _ = report.build(path, tmp_path)
    assert "No measurements. none.h5 has no measured point; the reasons ." in Page(html_of(made.parent)).text
    (line,) = answer.answer(*timings.analysed(({}, {"size": rows[:1]})))
    assert line == "1 point: 0 PASS, 1 not measured: tried 2 times: no room."


def first_sweeps(columns) -> dict[str, str]:
    """The sweep that each chapter shows first."""
    frame = analysis.measurements(columns)
    counters = Known.of(columns, frame).counters
    members: dict[str, list] = {}
    for series in analysis.series(analysis.split_by_machine(frame)):
        members.setdefault(series.sweep, []).append(series)
    sweeps = chapters.in_order(members, counters)
    order = {name: chapters.chapter_of([row for each in own for row in each.rows]) for name, own in sweeps.items()}
    return {chapter: name for name, chapter in reversed(order.items())}


@pytest.mark.slow
def test_a_merged_sweep_of_one_visit_does_not_displace_the_first_views():
    published, _ = timings.published_run()
    before = first_sweeps(published)
    assert {"ladder", "reductions", "ranks", "sizes"} <= set(before)
    assert before["ladder"].startswith("ladder")  # not the small products whose bits are compared
    assert before["ranks"].startswith("distributed")  # not the small products that CPUs compute on the most ranks

    def once(point):
        return took(point, [1e-3 * (1 + 0.01 * i) for i in range(6)])

    rungs = [each.name for each in OPERATIONS["matmul"].ladder if each.device == "cuda" and "float32" in each.dtypes]
    sums = [each.name for each in OPERATIONS["sum"].ladder if each.device == "cuda" and not each.library]
    of_sum = [total(name, 2**24, ranks=ranks) for name in sums for ranks in (1, 2, 4)]
    ring = [product("best", 4096, "float32", n, "ring") for n in (2, 4)]
    second = {
        "rungs_of_ranks": [once(product(name, 2048, ranks=ranks)) for name in rungs for ranks in (1, 2, 4)],
        "rungs_alone": [once(product(name, 2048)) for name in rungs],
        "rungs_of_sizes": [once(product(name, n)) for name in rungs for n in (512, 1024, 2048, 4096)],
        "a_sum_of_ranks": [once(each) for each in of_sum],
        "a_sum": [once(each) for each in of_sum if each.ranks == 1],
        "a_ring": [once(each) for each in ring],
    }
    gpus = [{"name": "NVIDIA H100 80GB HBM3"}] * 4
    other = {"utc": "2026-12-01", "cpu": {"model": "Model T", "cores": 64}, "gpus": gpus}
    assert first_sweeps(store.merged([published, timings.columns(second, other)], [])) == before
