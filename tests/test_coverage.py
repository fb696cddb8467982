"""docs/coverage.md against the code and the published run: what it names exists, is complete, and was measured."""

import inspect
import re
import sys
from pathlib import Path

import pytest

from hpcmm import store
from hpcmm.report import chapters, findings, hardware, headlines, tables

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))
import covered  # noqa: E402
from covered import COLUMNS, VARIANTS, lines, named  # noqa: E402

TEXT = (ROOT / covered.PAGE).read_text()
SWEEPS = covered.sweeps()
SHOWN = {
    f"{module.__name__.rpartition('.')[2]}.{name}"
    for module in (tables, hardware, chapters, *vars(chapters).values(), findings, headlines)
    if inspect.ismodule(module)
    for name, value in vars(module).items()
    if getattr(value, "__module__", "") == module.__name__
}


def exists(name: str) -> bool:
    return name in VARIANTS | SWEEPS | COLUMNS | SHOWN or (ROOT / name).is_file()


def unknown(text: str) -> list[str]:
    """Names that nothing has; those of the measured points are not written by hand."""
    by_hand = re.sub("<!-- published: .*?<!-- end -->", "", text, flags=re.DOTALL)
    return [name for name in named(by_hand) if not exists(name)]


def missing(text: str) -> set[str]:
    """Variants and sweeps that no line of a table names."""
    answers = [name for line in text.splitlines() if line.startswith("|") for name in named(line)]
    return (VARIANTS | SWEEPS) - set(answers)


def without_an_answer(text: str) -> list[str]:
    """Lines of tables that neither name anything nor say what is open."""
    return [row[0] for row in lines(text) if len(row) != 4 or not (named(row[2]) or row[3])]


def test_every_name_in_it_exists():
    assert unknown(TEXT) == []


def test_every_variant_and_every_sweep_is_in_it():
    assert missing(TEXT) == set()


def test_every_row_has_an_answer_or_an_open_point():
    assert without_an_answer(TEXT) == []


REFERENCE = ROOT / "results" / "reference" / "timings.h5"
no_run = pytest.mark.skipif(not REFERENCE.exists(), reason="no run is published")


@pytest.fixture(scope="module")
def columns():
    return store.read(REFERENCE)


@no_run
def test_an_item_is_answered_by_a_row_of_the_published_run_or_called_open(columns):
    assert covered.updated(TEXT, columns) == TEXT, "run make reference"


@no_run
def test_an_item_without_a_row_is_called_open_and_words_are_kept(columns):
    rows = columns["measurements"]
    kept = rows["sweep"] != "guard"
    without = columns | {"measurements": {name: values[kept] for name, values in rows.items()}}
    line = "| a | 000 | sweeps `guard`, `tile` | |"
    assert covered.updated(line, columns) == line
    assert covered.updated(line, without) == "| a | 000 | sweeps `guard`, `tile` | `guard` |"
    assert covered.updated("| a | 000 | `tile` | `tile`; at 4096 |", columns) == "| a | 000 | `tile` | at 4096 |"
    assert covered.updated("| a | 000 | `tile` | `tile`: later |", columns) == "| a | 000 | `tile` | |"
    assert (
        covered.updated("| a | 000 | `guard` | `guard`: later |", without) == "| a | 000 | `guard` | `guard`: later |"
    )
