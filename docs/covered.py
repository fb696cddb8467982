"""The last column of docs/coverage.md: which of the named variants, sweeps and columns no published row shows yet."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import yaml

from hpcmm import store
from hpcmm.analysis import Columns
from hpcmm.model import UNCHECKED
from hpcmm.operations import OPERATIONS

ROOT = Path(__file__).parents[1]
PAGE = Path("docs", "coverage.md")
VARIANTS = {f"{operation.kernels}/{variant.name}" for operation in OPERATIONS.values() for variant in operation.ladder}
SWEEPS = set(yaml.safe_load((ROOT / "config.yaml").read_text())["sweeps"])
COLUMNS = {f"{group}.{column}" for group, columns in store.GROUPS.items() for column in columns}


def named(text: str) -> list[str]:
    """Return the names in code marks."""
    return re.findall(r"`([^`]*)`", text)


def lines(text: str) -> list[list[str]]:
    """Return the cells of each line of a table: what, source, answered by, open."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:2] == "| "]
    return [row for row in rows if row[2:] != ["answered by", "open"]]


def shown(columns: Columns) -> set[str]:
    """Return the variants, sweeps and columns that a file has; a point that could not be measured does not count."""
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


def updated(text: str, columns: Columns) -> str:
    """Return the page with the names in the last column of each line that no row of a file shows.

    Words beside the names are kept: words after a colon with their name, other parts as they are.
    """
    there = shown(columns)

    def line(match: re.Match) -> str:
        answered, still = match["answered"], match["open"]
        needs = dict.fromkeys(name for name in named(answered) if name in VARIANTS | SWEEPS | COLUMNS)
        lacking = [name for name in needs if name not in there]
        parts = []
        for part in filter(None, map(str.strip, still.split(";"))):
            own, _, words = part.partition(": ")
            if not named(own):
                parts.append(part)
            elif words and (kept := [name for name in named(own) if name in lacking]):
                parts.append(f"{_listed(kept)}: {words}")
                lacking = [name for name in lacking if name not in kept]
        content = "; ".join([*([_listed(lacking)] if lacking else []), *parts])
        return f"{match['front']}|{answered}| {content} |" if content else f"{match['front']}|{answered}| |"

    table = re.compile(r"^(?P<front>\|[^|\n]*\|[^|\n]*)\|(?P<answered>[^|\n]*)\|(?P<open>[^|\n]*)\|$", re.MULTILINE)
    heads = ("answered by", "---")
    return table.sub(lambda match: match[0] if match["answered"].strip() in heads else line(match), text)


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
