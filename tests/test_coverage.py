"""docs/coverage.md against the code: what it names exists, and no variant or sweep is missing from it."""

import re
from pathlib import Path

import pytest
import yaml

from hpcmm import store
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
    if getattr(value, "__module__", "") == module.__name__
}


def named(text: str) -> list[str]:
    return re.findall(r"`([^`]*)`", text)


def exists(name: str) -> bool:
    return name in VARIANTS | SWEEPS | COLUMNS | SHOWN or (ROOT / name).is_file()


def unknown(text: str) -> list[str]:
    return [name for name in named(text) if not exists(name)]


def missing(text: str) -> set[str]:
    """Variants and sweeps that no line of a table names."""
    answers = [name for line in text.splitlines() if line.startswith("|") for name in named(line)]
    return (VARIANTS | SWEEPS) - set(answers)


def without_an_answer(text: str) -> list[str]:
    """Lines of tables that neither name anything nor say what is open."""
    lines = [line for line in text.splitlines() if line.startswith("|") and not line.startswith("|---")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    rows = [row for row in rows if row[2:] != ["answered by", "open"]]
    return [row[0] for row in rows if len(row) != 4 or not (named(row[2]) or row[3])]


def test_every_name_in_it_exists():
    assert unknown(TEXT) == []


def test_every_variant_and_every_sweep_is_in_it():
    assert missing(TEXT) == set()


def test_every_row_has_an_answer_or_an_open_point():
    assert without_an_answer(TEXT) == []


@pytest.mark.parametrize(
    "name", ["matmul/nave", "reduction/cublas", "sizes", "tables.pd", "samples.passed", "tests/no_test.py", "x"]
)
def test_a_name_that_does_not_exist_is_found(name):
    assert unknown(TEXT + f"| a | b | `{name}` | |\n") == [name]


def test_a_variant_or_sweep_that_is_left_out_is_found():
    lines = TEXT.splitlines()
    assert missing("\n".join(line for line in lines if "`reduction/cub`" not in line)) >= {"reduction/cub"}
    assert missing("\n".join(line for line in lines if "`tile`" not in line)) == {"tile"}


def test_an_empty_line_is_found():
    assert without_an_answer("| a system | 000 | | |\n| b | 000 | `tile` | |\n| c | 000 | | all |") == ["a system"]
