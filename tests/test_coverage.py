"""docs/coverage.md against the code and the published run: what it names exists, is complete, and was measured."""

import inspect
import re

import covered
from covered import COLUMNS, VARIANTS, lines, named
from timings import ROOT, published_run

from hpcmm.report import chapters, findings, hardware, headlines, tables

TEXT = (ROOT / covered.PAGE).read_text()
SWEEPS = covered.sweeps()
SHOWN = {
    f"{module.__name__.rpartition('.')[2]}.{name}"
    for module in (tables, hardware, chapters, *vars(chapters).values(), findings, headlines)
    if inspect.ismodule(module)
    for name, value in vars(module).items()
    if getattr(value, "__module__", "") == module.__name__
}


def test_every_name_in_it_that_is_written_by_hand_exists():
    by_hand = re.sub("<!-- published: .*?<!-- end -->", "", TEXT, flags=re.DOTALL)
    known = VARIANTS | SWEEPS | COLUMNS | SHOWN
    assert [name for name in named(by_hand) if name not in known and not (ROOT / name).is_file()] == []


def test_a_table_names_every_variant_and_every_sweep():
    assert {name for line in TEXT.splitlines() if line[:1] == "|" for name in named(line)} >= VARIANTS | SWEEPS


def test_every_row_has_an_answer_or_an_open_point():
    assert [row[0] for row in lines(TEXT) if len(row) != 4 or not (named(row[2]) or row[3])] == []


def test_an_item_is_answered_by_a_row_of_the_published_run_or_called_open():
    columns, _ = published_run()
    assert covered.updated(TEXT, columns) == TEXT, "run make reference"


def test_an_item_without_a_row_is_called_open_and_words_are_kept():
    columns, _ = published_run()
    rows = columns["measurements"]
    kept = rows["sweep"] != "guard"
    without = columns | {"measurements": {name: values[kept] for name, values in rows.items()}}
    line = "| a | 000 | sweeps `guard`, `tile` | |"
    assert covered.updated(line, columns) == line
    assert covered.updated(line, without) == "| a | 000 | sweeps `guard`, `tile` | `guard` |"
    assert covered.updated("| a | 000 | `tile` | `tile`; at 4096 |", columns) == "| a | 000 | `tile` | at 4096 |"
    assert covered.updated("| a | 000 | `tile` | `tile`: later |", columns) == "| a | 000 | `tile` | |"
    line = "| a | 000 | `guard` | `guard`: later |"
    assert covered.updated(line, without) == line
