"""docs/coverage.md against the code and the published run: what it names exists, is complete, and was measured."""

import re
from pathlib import Path

import numpy as np
import pytest
import yaml

from hpcmm import store
from hpcmm.model import UNCHECKED
from hpcmm.operations import OPERATIONS
from hpcmm.report import figures, findings, tables

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "coverage.md").read_text()
VARIANTS = {f"{operation.kernels}/{variant.name}" for operation in OPERATIONS.values() for variant in operation.ladder}
SWEEPS = set(yaml.safe_load((ROOT / "config.yaml").read_text())["sweeps"])
COLUMNS = {f"{group}.{column}" for group, columns in store.GROUPS.items() for column in columns}
SHOWN = {
    f"{module.__name__.rpartition('.')[2]}.{name}"
    for module in (tables, figures, findings)
    for name, value in vars(module).items()
    if getattr(value, "__module__", "").startswith(module.__name__)
}


def named(text: str) -> list[str]:
    return re.findall(r"`([^`]*)`", text)


def exists(name: str) -> bool:
    return name in VARIANTS | SWEEPS | COLUMNS | SHOWN or (ROOT / name).is_file()


def lines(text: str) -> list[list[str]]:
    """The cells of each line of a table: what, source, answered by, open."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:2] == "| "]
    return [row for row in rows if row[2:] != ["answered by", "open"]]


def shown(columns) -> set[str]:
    """The variants, sweeps and columns that a file has; a point that could not be measured does not count."""
    rows = columns["measurements"]
    tried = rows["reference"] != UNCHECKED
    rows = {name: values[tried] for name, values in rows.items()}
    measured = {
        f"{OPERATIONS[operation].kernels}/{contender}"
        for operation, contender in zip(rows["operation"], rows["contender"], strict=True)
        if operation in OPERATIONS
    }
    filled = set()
    for group, members in columns.items():
        for name, values in members.items():
            if values.dtype.kind == "f":
                values = values[~np.isnan(values)]
            if len(values) and any(value != "" for value in values[: 10**6]):
                filled.add(f"{group}.{name}")
    return measured | set(rows["sweep"]) | filled


def wrongly_open(text: str, columns) -> list[tuple[str, str]]:
    """Names that no row shows and the line does not call open, and names that it calls open and a row shows."""
    there = shown(columns)
    found = []
    for what, _, answered, still in lines(text):
        needs = {name for name in named(answered) if name in VARIANTS | SWEEPS | COLUMNS}
        found += [(what, name) for name in sorted((needs - there) ^ set(named(still)))]
    return found


def unknown(text: str) -> list[str]:
    return [name for name in named(text) if not exists(name)]


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
    assert wrongly_open(TEXT, columns) == []


@no_run
def test_an_item_without_a_row_is_found(columns):
    rows = columns["measurements"]
    kept = rows["sweep"] != "guard"
    without = columns | {"measurements": {name: values[kept] for name, values in rows.items()}}
    assert {name for _, name in wrongly_open(TEXT, without)} >= {"guard"}
    assert wrongly_open("| a | 000 | `tile` | `tile` |", columns) == [("a", "tile")]


@pytest.mark.parametrize(
    "name", ["matmul/nave", "reduction/cublas", "sizes", "tables.pd", "samples.passed", "tests/no_test.py", "x"]
)
def test_a_name_that_does_not_exist_is_found(name):
    assert unknown(TEXT + f"| a | b | `{name}` | |\n") == [name]


def test_a_variant_or_sweep_that_is_left_out_is_found():
    text = TEXT.splitlines()
    assert missing("\n".join(line for line in text if "`reduction/cub`" not in line)) >= {"reduction/cub"}
    assert missing("\n".join(line for line in text if "`tile`" not in line)) == {"tile"}


def test_an_empty_line_is_found():
    assert without_an_answer("| a system | 000 | | |\n| b | 000 | `tile` | |\n| c | 000 | | all |") == ["a system"]
