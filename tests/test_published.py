"""What README.md and docs/ show of the published run is what the file of that run says."""

import dataclasses
import functools
import re
import shutil
import subprocess
from pathlib import Path
from statistics import median

import modelled_run
import numpy as np
import published
import pytest
import timings
import yaml
from timings import ROOT, analysed, cells, kernel_samples, product, took

from hpcmm import analysis, store
from hpcmm.experiment import plan
from hpcmm.experiment.config import read_config
from hpcmm.operations import OPERATIONS
from hpcmm.report import drawing, formats
from hpcmm.report.chapters import sizes

PAGES = published.pages()
EMPTY = store.joined([])
RENDERED = drawing._run  # in a process of its own


def texts(root: Path) -> str:
    """The text of all pages that show the published run."""
    return "\n".join((root / path.relative_to(ROOT)).read_text("utf-8") for path in PAGES)


@pytest.mark.slow
def test_the_pages_agree_with_the_published_run():
    file = published.REFERENCE / "timings.h5"
    columns = store.read(file) if file.exists() else EMPTY  # without a file they must not show a number
    frame = analysis.measurements(columns)
    for path in PAGES:
        assert published.filled(path, columns, frame) == path.read_text("utf-8"), f"{path.name}: run make reference"


def test_every_part_is_on_a_page():
    marks = re.findall(r"^<!-- published: (\w+) -->", texts(ROOT), re.MULTILINE)
    assert sorted(marks) == sorted(published.SECTIONS)


def test_report_and_figures_agree_with_the_published_run():
    kept = {path.name for path in published.REFERENCE.glob("*")}
    if "timings.h5" not in kept:
        assert not kept and "results/reference/ladder.svg" not in texts(ROOT)
        return
    shown = re.findall(r"\((?:\.\./)?results/reference/([^)]+)\)", texts(ROOT))
    assert {"timings.h5", "report.html", "ladder.svg"} <= set(shown) <= kept
    assert sum(path.stat().st_size for path in published.REFERENCE.glob("*")) < 12e6
    points, passed = re.search(r"(\d+) points: (\d+) PASS", texts(ROOT)).groups()
    page = (published.REFERENCE / "report.html").read_text("utf-8")
    assert f"{int(points):,} points: {int(passed):,} <a" in page
    drawn = (published.REFERENCE / "ladder.svg").read_text("utf-8")
    assert all(re.search(rf">{rung}( \d+)?<", drawn) for rung in ("naive", "vectorized", "asynchronous", "cublas"))


def test_every_rung_has_its_line():
    for name in ("matmul", "sum", "vector_add"):
        text = re.search(rf"published: {name} -->(.*?)<!-- end -->", texts(ROOT), re.DOTALL)[1]
        listed = re.findall(r"^\| `(\w+)` +\| (CPU|GPU)", text, re.MULTILINE)
        assert listed == [(each.name, formats.device(each.device)) for each in OPERATIONS[name].ladder]


def copy_of_pages(root: Path) -> None:
    for path in (*PAGES, ROOT / published.covered.PAGE):
        copy = root / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)


def undrawn(specs: list) -> subprocess.CompletedProcess:
    """Stand in for the renderer, which takes the longest; the tests of the report draw."""
    return subprocess.CompletedProcess([], 0, '"<svg></svg>"\n' * len(specs), "") if specs else RENDERED(specs)


SWEEPS = (
    "ladder", "cpu_ladder", "reduction_ladder", "vector_add", "transfer", "distributed", "guard", "multiples",
    "remainders", "tile", "best", "one_thread",
)  # fmt: skip


@pytest.fixture(scope="module")
def modelled(tmp_path_factory) -> Path:
    """A timings file of sweeps of config.yaml with modelled times."""
    config = modelled_run.thinned(yaml.safe_load(modelled_run.CONFIG.read_text()))
    config["sweeps"] = {name: config["sweeps"][name] for name in SWEEPS}
    return modelled_run.write(tmp_path_factory.mktemp("modelled") / "timings.h5", config)


@pytest.fixture(scope="module")
def done(modelled, tmp_path_factory):
    """A copy of the pages, after a modelled run was published."""
    root = tmp_path_factory.mktemp("root")
    copy_of_pages(root)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(published, "ROOT", root)
        patch.setattr(published, "REFERENCE", root / "results" / "reference")
        patch.setattr(drawing, "_run", undrawn)
        published.main([str(modelled)])
    return root


def test_the_atlas_has_the_lead_over_the_faster_library_by_kind_of_shape(tmp_path):
    rows = []
    for m, best, cublas, cublaslt in ((100, 1.0, 1.2, 1.1), (200, 1.0, 0.9, 2.0), (300, 1.0, 1.1, 1.1)):
        for name, seconds in (("best", best), ("cublaslt", cublaslt)):
            point = product(name, (m, 50, 70))
            rows += [took(point, seconds), took(point, cublas, "cublas")]
    assert published.atlas.section(tmp_path, published._table) == ""
    columns = timings.merged(({"gpus": [{"name": "H200"}]}, {"any_size": rows}))
    store.write_groups(tmp_path / published.atlas.FILE, columns)
    text = published.atlas.section(tmp_path, published._table)
    assert cells(text, "| float") == [
        ["float32", "`best`", "any", "3 of 3", "1.03", "0.900", "33 %"],
        ["float32", "200 × 50 × 70", "0.900", ""],
    ]
    assert "H200" in text and "1 of 3" in text


@pytest.mark.slow
def test_a_map_of_the_atlas_has_the_shapes_of_all_hosts(tmp_path):
    runs = []
    for cores in (16, 64):
        points = [product("best", (cores, 50, n)) for n in range(70, 70 + sizes.MANY // 2)]
        rows = [took(point, *given) for point in points for given in ((1.0,), (2.0, "cublas"))]
        runs.append(({"gpus": [{"name": "H200"}], "cpu": {"model": "T", "cores": cores}}, {"layers": rows}))
    store.write_groups(tmp_path / published.atlas.FILE, timings.merged(*runs))
    (tmp_path / "atlas-float32.svg").write_text("of an earlier run")
    published.atlas.draw(tmp_path)
    assert f"at {sizes.MANY} shapes" in (tmp_path / "atlas-float32.svg").read_text()


def ladder_of(dtype: str, n: int = 8192, **seconds: float) -> list:
    """Measurements of rungs at a size, each with cuBLAS beside it."""
    own = [took(product(name, n, dtype), each) for name, each in seconds.items()]
    return own + [took(row.point, seconds["cublas"], "cublas") for row in own if not row.baseline]


def test_the_table_of_the_16_bit_ladder_has_the_gain_of_each_rung():
    rows = ladder_of("bfloat16", warp_mma=8.0, mma_tiled=2.0, best=1.0, cublas=1.6)
    text = published.sixteen_bit(*analysed(({"gpus": [{"name": "H200"}]}, {"ladder_16_bit": rows})))
    names, _, _, steps, ratios, *_ = zip(*cells(text, "| `"), strict=True)
    assert names == ("`warp_mma`", "`mma_tiled`", "`best`", "`cublas`")
    assert steps == ("", "4.00", "", ""), "best and the library are no steps"
    assert [cell.split()[0] for cell in ratios] == ["0.200", "0.800", "1.60", "1.00"]
    assert text.endswith("in bfloat16 at 8192. GPU: H200.")
    assert published.sixteen_bit(EMPTY, analysis.measurements(EMPTY)) == ""


def test_the_fastest_rungs_name_their_gpu_and_libraries():
    own = ladder_of("float32", naive=8.0, tensor_core=2.0, cublaslt=0.8, cublas=1.0)
    other = ladder_of("bfloat16", persistent=1.0, cublas=1.6)
    runs = [({"gpus": [{"name": "H200", "cublas": 131002}], "utc": "1"}, {"ladder": own})]
    runs += [({"gpus": [{"name": "H100"}], "utc": "2"}, {"ladder_16_bit": other})]
    small = ladder_of("bfloat16", 2048, tma=1e-2, cublas=1e-2)  # the largest size of its sweep, not of the type
    runs += [({"gpus": [{"name": "H200"}], "utc": "3"}, {"size_16_bit": small})]
    _, _, *rows = cells(published.fastest(*analysed(*runs)))
    found = sorted((row[1], row[4], *row[-1].split()[-2:]) for row in rows)
    assert [each[:2] for each in found] == [("H100", "`persistent`"), ("H200", "`naive`"), ("H200", "`tensor_core`")]
    assert found[1][2:] == ("cublaslt", "13.10.2")


@pytest.mark.slow
def test_publishing_writes_a_small_folder(done):
    kept = {path.name: path.stat().st_size for path in (done / "results" / "reference").iterdir()}
    drawn = {f"{name}.svg" for name in published.FIGURES} | {name for name in kept if name.startswith("course-")}
    assert set(kept) - {"report.png"} == {"timings.h5", "report.html", *drawn}
    assert drawn >= {f"course-003-kernel{kernel}{what}.svg" for kernel in ("01", "11") for what in ("", "-remainders")}
    assert ("report.png" in kept) is bool(shutil.which("chromium-headless-shell"))
    assert sum(kept.values()) < 12e6
    assert kept["report.html"] < 2.5e6


def test_publishing_keeps_the_newest_measurement_of_a_point():
    """Of the same kind of machine; a point that was not measured again stays."""
    old, new = ({"utc": f"2026-01-0{day}", "gpus": [{"name": "H100"}]} for day in (1, 2))
    both, once = (took(product(n=n, tile=8), 1.0) for n in (64, 128))
    again = dataclasses.replace(both, samples=kernel_samples([3.0]))
    columns = timings.merged((old, {"tile": [both, once]}), (new, {"tile": [again]}))
    frame = analysis.measurements(published.newest(columns))
    assert dict(zip(frame["n"], frame["seconds"], strict=True)) == {64: 3.0, 128: 1.0}
    assert len(analysis.measurements(columns)) == 3


@pytest.mark.slow
def test_publishing_renews_what_is_open(done):
    lines = published.covered.lines((done / published.covered.PAGE).read_text())
    still = {name for *_, still in lines for name in published.covered.named(still)}
    assert "profiles.stall_barrier" in still and not {"matmul/best", "one_thread"} & still


@pytest.mark.slow
def test_the_numbers_are_from_the_file(done, modelled):
    text = texts(done)
    columns = store.read(modelled)
    rows, samples = columns["measurements"], columns["samples"]

    def seconds(sweep, contender, call=0, **where):
        here = (rows["sweep"] == sweep) & (rows["contender"] == contender) & (rows["variant"] == contender)
        for name, value in where.items():
            here &= rows[name] == value
        (found,) = np.flatnonzero(here)
        own = samples["measurement"] == found
        times = samples["total" if call else "kernel"][own & (samples["call"] == call)]
        return median(times)

    def line(pattern):
        """The cells of the first line that begins like this."""
        return re.search(rf"^\| {pattern}.*", text, re.MULTILINE)[0].split("|")

    fast, steps = seconds("ladder", "asynchronous", dtype="float32"), line("`asynchronous` +\\| product")
    shown = line("`asynchronous` +\\| GPU")
    assert "float32 TFLOP/s" in text and float(shown[4]) == pytest.approx(2 * 4096**3 / fast / 1e12, rel=6e-3)
    (ratio,) = re.findall(r"[\d.]+", shown[5])  # a point with one visit has no interval
    assert 0 < float(ratio) < 1
    step, of = steps[4].split("×")
    assert float(step) == pytest.approx(seconds("ladder", "warp_tiled", dtype="float32") / fast, rel=6e-3)
    assert of.strip() == "`warp_tiled`"

    slow, fast = (seconds("reduction_ladder", name, dtype="int32") for name in ("divergent", "one_launch"))
    assert float(line("`one_launch`")[5]) == pytest.approx(slow / fast, rel=6e-3)

    pinned, pageable = (seconds("transfer", "cublas", 1, n=2048, pinned=float(kind)) for kind in (True, False))
    assert float(line("cublas +\\| +2048 ")[6]) == pytest.approx(pageable / pinned, rel=6e-3)

    rungs = [each.name for each in OPERATIONS["vector_add"].ladder if each.device == "cuda" and not each.library]
    best = min(rungs, key=lambda name: seconds("vector_add", name, n=2**28, dtype="int32"))
    assert any(f"`{best}`" in cell for cell in line("vector_add"))  # the GPU's is first

    head, *_ = (head for head in cells(text) if "1 GPU" in head and "float32 TFLOP/s" in " ".join(head))
    assert head[3:] == ["1 GPU", "2 GPUs", "4 GPUs", "8 GPUs"]


@pytest.mark.slow
def test_the_published_file_can_be_published_again(tmp_path, monkeypatch):
    reference = tmp_path / "results" / "reference"
    monkeypatch.setattr(published, "ROOT", tmp_path)
    monkeypatch.setattr(published, "REFERENCE", reference)
    copy_of_pages(tmp_path)
    names = ("naive", "tiled_padded", "conflict_free")  # as few rungs as have a figure
    rows = [took(product(name, tile=8), 1e-3) for name in names]
    published.main([str(timings.write(tmp_path / "timings.h5", {"ladder": rows}))])
    made = [tmp_path / "README.md", *(reference / name for name in ("report.html", "ladder.svg"))]
    first = [path.read_bytes() for path in made]
    made[0].write_text(published.filled(made[0], EMPTY, analysis.measurements(EMPTY)), "utf-8")
    for path in made[1:]:
        path.unlink()
    published.main([])
    assert [path.read_bytes() for path in made] == first
    assert "3 points: 3 PASS" in made[0].read_text("utf-8")


def test_a_step_is_of_the_gpu_with_the_most_of_its_rungs_and_names_another_than_usual():
    own = ladder_of("float32", naive=8.0, tiled_exact=4.0, tiled_padded=4.0, tiled_uncoalesced=8.0, cublas=1.0)
    other = ladder_of("float32", tiled_uncoalesced_b=5.0, tiled_padded=4.0, tiled_uncoalesced=8.0, cublas=1.0)
    runs = [({"gpus": [{"name": name}], "utc": name}, {"ladder": rows}) for name, rows in (("A", own), ("B", other))]
    both, step = analysed(*runs), published.step("in_the_tile")
    text = step(*both)
    assert text.endswith("\n\nGPU: B.") and "`tiled_uncoalesced_b`" in text
    assert "GPU" not in step(*analysed(runs[0]))
    assert published.step("naive")(*both) == ""  # naive_unguarded is missing


def test_sweeps_of_several_revisions_are_listed():
    row, two = (took(product(ranks=ranks, tile=8), 1.0) for ranks in (1, 2))
    old, new = ({"utc": f"2026-01-0{day}", "revision": f"{day}" * 12, "dirty": day == 2} for day in (1, 2))
    gpus = {"gpus": [{"name": "H200"}]}
    runs = [(new | gpus, {"ladder": [row]}), (old | gpus, {"size": [row], "ladder": [row], "tile": [two]})]
    text = published.run(*analysed(*runs, (old, {"cpu_ladder": [took(product("serial"), 1.0)]})))
    assert "several revisions" in text
    assert cells(text)[2:] == [
        ["2222222 with uncommitted changes", "H200", "`ladder`"],
        ["1111111", "2 × H200 and CPU", "`cpu_ladder`, `size`, `tile`"],
    ]
    alone = published.run(*analysed(runs[1]))
    assert "3 points" in alone and "revisions" not in alone


@pytest.mark.slow
def test_without_a_run_no_number_is_left(done, monkeypatch):
    frame = analysis.measurements(EMPTY)

    def parts(text):  # the rest of the page of the coverage is about the file, too
        return [mark[0] for mark in published.MARKED.finditer(text)]

    empty = [published.filled(path, EMPTY, frame) for path in PAGES]
    monkeypatch.setattr(published, "ROOT", done)
    again = [published.filled(done / path.relative_to(ROOT), EMPTY, frame) for path in PAGES]
    assert list(map(parts, again)) == list(map(parts, empty))
    assert not any("results/reference/ladder.svg" in text for text in empty)


@functools.cache
def sweeps_of_config() -> dict:
    return yaml.safe_load((ROOT / "config.yaml").read_text())["sweeps"]


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(published.REFERENCE.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_configs_of_the_published_run_are_of_sweeps_of_the_whole_config(path):
    """They are checked like any config; each sweep, or part of one, has the operation and type of the whole one."""
    whole = sweeps_of_config()
    planned = plan.make(read_config(path))
    assert planned.batches
    for name, sweep in planned.config["sweeps"].items():
        name = name.removesuffix("_of_threads").removesuffix("_largest")
        if name not in ("energy", "links", "strassen"):  # the whole config leaves them to those who ask for them
            assert name in whole and sweep["operation"] == whole[name]["operation"]
            assert set(sweep.get("variants", ())) <= set(whole[name].get("variants", sweep.get("variants", ())))
