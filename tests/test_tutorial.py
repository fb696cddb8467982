"""The tutorial: each step beside its counterpart, the counts by hand, the pictures and the exercises."""

import itertools
import re
from pathlib import Path

import climb
import numpy as np
import pytest
from tasks import needs_gxx

from hpcmm import kernels
from hpcmm.backends.emulated import launch
from hpcmm.cli import new
from hpcmm.grading import counts
from hpcmm.model.launch import Launch
from hpcmm.operations import OPERATIONS, drawings
from hpcmm.system import files

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "tutorial.md").read_text()


@pytest.mark.parametrize("name", climb.STEPS)
def test_rungs_of_a_step_are_counterparts(name):
    step = climb.STEPS[name]
    for before, rung in itertools.pairwise(step.rungs):
        found = [OPERATIONS[step.operation].variant(each) for each in (before, rung)]
        assert found[0].name == found[1].counterpart or found[1].name == found[0].counterpart
    assert f"<!-- published: step_{name} -->" in PAGE


def test_lessons_come_before_products():
    lessons, products = PAGE.index("## Lessons"), PAGE.index("## Products")
    for name, step in climb.STEPS.items():
        place = PAGE.index(f"<!-- published: step_{name} -->")
        shelf = OPERATIONS[step.operation].variant(step.rungs[-1]).shelf
        assert shelf == "lesson" if place < products else place > lessons
        assert (shelf == "product") == (products < place < PAGE.index("## Beside the product"))


def test_each_step_has_a_picture_a_count_by_hand_and_an_exercise_and_no_exercise_is_left_out():
    for part in re.split(r"^### ", PAGE, flags=re.MULTILINE)[1:]:
        assert "**Idea.**" in part and "**By hand.**" in part
        assert "**Exercise" in part
        assert "<!-- published: " in part and "**Counter.**" in part
        assert "<!-- picture: " in part
    for page in re.findall(r"<!-- picture: (\S+) -->", PAGE):
        assert list(drawings.of(page))
    named = set(re.findall(r"`(\d\d_\w+\.\w+)`", PAGE))
    first, last = re.search(r"`(\d\d)_\w+\.cu` to `(\d\d)_\w+\.cu`", PAGE).groups()
    files = {path.name for path in new.COURSE.iterdir() if path.is_file()} - {"README.md", "rubric.yaml"}
    assert {each for each in files if each not in named and not first < each[:2] < last} == set()


@needs_gxx
@pytest.mark.parametrize(
    ("rung", "sectors", "loads"), [("naive", 2.5, 2), ("uncoalesced", 16.5, 2), ("tiled_exact", 4, 2 / 32)]
)
def test_the_counts_by_hand_are_those_of_the_emulation(rung, sectors, loads):
    """Sectors per load of a warp, and loads of a thread per multiply-add."""
    n, tile, variant = 64, 32, OPERATIONS["matmul"].variant(rung)
    source = kernels.source(OPERATIONS["matmul"], variant)
    kernel = launch.compile_kernel(source, "matmul", ["-DREAL=float", f"-DTILE={tile}"], files.cache())
    kernel.counted = True
    a, b, c = (launch.on_device(np.ones((n, n), "f4")) for _ in range(3))
    size, one = np.int32(n), np.float32(1)
    arguments = (size, size, size, one, a, size, b, size, np.float32(0), c, size)
    kernel(Launch((n // tile, n // tile), (tile, tile), arguments), "random")
    found = [each for each in counts.read(kernel.counts(), 1).accesses if not each.shared and each.kind == counts.READ]
    assert sum(each.parts for each in found) / sum(each.warps for each in found) == sectors
    assert sum(each.lanes for each in found) / n**3 == loads
    assert (c == n).all()


def test_lines_of_l1_are_those_of_the_count_by_hand():
    """Lines of 128 bytes of a warp's accesses to a row, a column and one element of a matrix."""
    row, column = np.arange(32) * 4, np.arange(32) * 4096 * 4
    lines = {"one": 1, "row": len(set(row // 128)), "column": len(set(column // 128))}
    assert climb.LINES["naive"] == lines["row"] + lines["one"]
    assert climb.LINES["uncoalesced"] == lines["column"] + lines["one"]
