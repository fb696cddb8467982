"""What README.md shows of the published run is what that run's file says."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from statistics import median

import numpy as np
import pytest
import timings
from timings import kernel_samples, measurement

from hpcmm import store
from hpcmm.model import Point
from hpcmm.operations import OPERATIONS
from hpcmm.report import formats

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))
import published  # noqa: E402

README = (ROOT / "README.md").read_text("utf-8")


def test_the_readme_says_what_the_published_run_says():
    file = published.REFERENCE / "timings.h5"
    columns = store.read(file) if file.exists() else None  # then it must not show a number either
    assert published.filled(README, columns) == README, "make reference writes it anew"


def test_report_and_figures_are_those_of_the_published_run():
    kept = {path.name for path in published.REFERENCE.glob("*")}
    if "timings.h5" not in kept:
        assert not kept and "results/reference/ladder.svg" not in README
        return
    shown = re.findall(r"\(results/reference/([^)]+)\)", README)
    assert {"timings.h5", "report.html", "ladder.svg"} <= set(shown) <= kept
    assert sum(path.stat().st_size for path in published.REFERENCE.glob("*")) < 10e6
    points, passed = re.search(r"(\d+) points: (\d+) PASS", README).groups()
    page = (published.REFERENCE / "report.html").read_text("utf-8")
    assert f"<dt>points</dt><dd>{points}</dd>" in page and f"<dd>{passed}</dd>" in page
    drawn = (published.REFERENCE / "ladder.svg").read_text("utf-8")
    assert all(re.search(rf">{rung}( \d+)?<", drawn) for rung in ("naive", "vectorized", "asynchronous", "cublas"))


def test_every_rung_has_its_line():
    for name in ("matmul", "sum", "vector_add"):
        text = re.search(rf"published: {name} -->(.*?)<!-- end -->", README, re.DOTALL)[1]
        listed = re.findall(r"^\| `(\w+)` +\| (CPU|GPU)", text, re.MULTILINE)
        assert listed == [(each.name, formats.device(each.device)) for each in OPERATIONS[name].ladder]


@pytest.fixture(scope="module")
def done(modelled, tmp_path_factory):
    """A copy of the README for which a modelled run was published."""
    root = tmp_path_factory.mktemp("root")
    shutil.copyfile(ROOT / "README.md", root / "README.md")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(published, "ROOT", root)
        patch.setattr(published, "REFERENCE", root / "results" / "reference")
        published.main([str(modelled)])
    return root


def test_publishing_writes_a_small_folder(done):
    kept = {path.name: path.stat().st_size for path in (done / "results" / "reference").iterdir()}
    assert set(kept) == {"timings.h5", "report.html", *(f"{name}.svg" for name in published.FIGURES)}
    assert sum(kept.values()) < 10e6


def test_the_numbers_are_those_of_the_file(done, modelled):
    text = (done / "README.md").read_text("utf-8")
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

    rate = 2 * 4096**3 / seconds("ladder", "asynchronous", dtype="float32") / 1e9
    line = next(line for line in text.splitlines() if line.startswith("| `asynchronous`"))
    assert float(line.split("|")[4].replace(",", "")) == pytest.approx(rate, rel=6e-3)
    ratio, low, high = map(float, re.findall(r"[\d.]+", line.split("|")[5]))
    assert low <= ratio <= high < 1

    gain = seconds("reduction_ladder", "divergent", dtype="int32") / seconds(
        "reduction_ladder", "one_launch", dtype="int32"
    )
    line = next(line for line in text.splitlines() if line.startswith("| `one_launch`"))
    assert float(line.split("|")[5]) == pytest.approx(gain, rel=6e-3)

    pinned, pageable = (seconds("transfer", "cublas", 1, n=2048, pinned=float(kind)) for kind in (True, False))
    line = next(line for line in text.splitlines() if re.match(r"\| cublas +\| +2048 ", line))
    assert float(line.split("|")[6]) == pytest.approx(pageable / pinned, rel=6e-3)

    line = next(line for line in text.splitlines() if "float32 TFLOP/s" in line)
    assert [head.strip() for head in line.split("|")[4:-1]] == ["1 GPU", "2 GPUs", "4 GPUs", "8 GPUs"]


def test_a_changed_number_is_found(done):
    columns = store.read(done / "results" / "reference" / "timings.h5")
    wrong = text = (done / "README.md").read_text("utf-8")
    for name in published.SECTIONS:
        section = re.search(rf"published: {name} -->(.*?)<!-- end -->", text, re.DOTALL)
        last = section.start(1) + re.search(r".*\d(?=\D*$)", section[1], re.DOTALL).end() - 1
        wrong = wrong[:last] + str((int(text[last]) + 1) % 10) + wrong[last + 1 :]
    assert published.filled(wrong, columns) == text
    slower = columns | {"samples": columns["samples"] | {"kernel": columns["samples"]["kernel"] * 1.01}}
    assert published.filled(text, slower) != text


def test_what_is_kept_is_published_again(tmp_path, monkeypatch):
    reference = tmp_path / "results" / "reference"
    monkeypatch.setattr(published, "ROOT", tmp_path)
    monkeypatch.setattr(published, "REFERENCE", reference)
    (tmp_path / "README.md").write_text(README, "utf-8")
    points = [
        Point("matmul", variant, (64,) * 3, "float32", 1, {"tile": 8.0})
        for variant in ("naive", "tiled_padded", "conflict_free")  # as few rungs as have a figure
    ]
    rows = [measurement(point, samples=kernel_samples([1e-3] * 7)) for point in points]
    published.main([str(timings.write(tmp_path / "timings.h5", {"ladder": rows}))])
    made = [tmp_path / "README.md", *(reference / name for name in ("report.html", "ladder.svg"))]
    first = [path.read_bytes() for path in made]
    made[0].write_text(published.filled(README, None), "utf-8")
    for path in made[1:]:
        path.unlink()
    published.main([])
    assert [path.read_bytes() for path in made] == first
    assert "3 points: 3 PASS" in made[0].read_text("utf-8")


def test_sweeps_of_several_revisions_are_told_apart(tmp_path):
    row = measurement(
        Point("matmul", "naive", (64, 64, 64), "float32", 1, {"tile": 8.0}), samples=kernel_samples([1.0])
    )
    old, new = ({"utc": f"2026-01-0{day}", "revision": f"{day}" * 12} for day in (1, 2))
    runs = [(new, {"ladder": [row]}), (old, {"size": [row], "ladder": [row], "tile": [row]})]
    text = published.filled("<!-- published: run -->\n<!-- end -->", timings.merged(tmp_path, *runs))
    assert (
        "of several revisions, between which kernels may have changed: 2222222 (ladder); 1111111 (size, tile)." in text
    )
    (tmp_path / "one").mkdir()
    alone = published.filled("<!-- published: run -->\n<!-- end -->", timings.merged(tmp_path / "one", runs[1]))
    assert "3 points" in alone and "revisions" not in alone


def test_without_a_run_no_number_is_left(done):
    text = (done / "README.md").read_text("utf-8")
    assert published.filled(text, None) == published.filled(README, None)
