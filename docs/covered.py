"""docs/coverage.md: the measured points, and which of the named variants, sweeps and columns no published row shows."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

from hpcmm import analysis, store
from hpcmm.analysis import Columns
from hpcmm.model import TEXTBOOK, UNCHECKED
from hpcmm.operations import OPERATIONS
from hpcmm.report import formats

ROOT = Path(__file__).parents[1]
PAGE = Path("docs", "coverage.md")
VARIANTS = {f"{operation.kernels}/{variant.name}" for operation in OPERATIONS.values() for variant in operation.ladder}
COLUMNS = {f"{group}.{column}" for group, columns in store.GROUPS.items() for column in columns}


def sweeps() -> set[str]:
    """Return the sweeps of config.yaml."""
    return set(yaml.safe_load((ROOT / "config.yaml").read_text())["sweeps"])


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
    there, known = shown(columns), VARIANTS | sweeps() | COLUMNS

    def line(match: re.Match) -> str:
        answered, still = match["answered"], match["open"]
        needs = dict.fromkeys(name for name in named(answered) if name in known)
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


AXES = ("dtype", "tile", "ranks", "memory", "algorithm", "size")
MOST = 8  # sizes that are listed; of more the first and the last, with the step if there is one


def points(columns: Columns, frame: pd.DataFrame) -> str:
    """List the measured points of each sweep as products: variants × tiles × sizes × types."""
    rows = analysis.points(frame)
    rows = rows[rows["result"].isin(["PASS", "FAIL"])]
    if rows.empty:
        return ""
    rows = rows.assign(
        size=list(map(formats.size, analysis.row_dicts(rows))),
        where=rows["gpu"].where(analysis.on_accelerator(rows), "CPU"),
    )
    lines = []
    for sweep, own in sorted(rows.groupby("sweep", sort=False)):
        lines.append(f"- `{sweep}`: {_count(own)}")
        for where, there in own.groupby("where", sort=False):
            lines += [f"  - {where}: {text}" for text in products(there)]
    return "\n".join(lines)


def _count(rows: pd.DataFrame) -> str:
    wrong = int((rows["result"] == "FAIL").sum())
    return f"{len(rows):,} points" + (f", of which {wrong} FAIL" if wrong else "")


def products(rows: pd.DataFrame) -> Iterator[str]:
    """Yield texts of products of axes that are the points together; variants with the same points share one."""
    combinations: dict[str, frozenset] = {}
    for variant, own in rows.groupby("variant", sort=False):
        combinations[variant] = frozenset(own[list(AXES)].itertuples(index=False, name=None))
    order = list(dict.fromkeys(rows.sort_values(["m", "n", "k"], kind="stable")["size"]))
    for same in dict.fromkeys(combinations.values()):
        names = ", ".join(f"`{variant}`" for variant, own in combinations.items() if own == same)
        for axes in _factors(same):
            yield " × ".join([names, *_texts(axes, order)])


def _factors(combinations: Iterable[tuple], axis: int = 0) -> Iterator[list[list]]:
    """Divide combinations into products: one, or those of each value of an axis, until all are products."""
    combinations = set(combinations)
    axes = [sorted({each[i] for each in combinations}) for i in range(len(AXES))]
    if len(combinations) == math.prod(map(len, axes)):
        yield axes
    elif len(axes[axis]) == 1:
        yield from _factors(combinations, axis + 1)
    else:
        for value in axes[axis]:
            yield from _factors((each for each in combinations if each[axis] == value), axis + 1)


def _texts(axes: Sequence[list], order: Sequence[str]) -> Iterator[str]:
    """Yield the texts of the axes of a product that say something."""
    dtypes, tiles, ranks, memories, algorithms, sizes = axes
    if tiles != [0]:
        yield f"tile {', '.join(map(str, tiles))}"
    yield _sizes(sorted(sizes, key=order.index))
    yield ", ".join(dtypes)
    if memories != [""]:
        yield ", ".join(memories)
    if algorithms != [TEXTBOOK]:
        yield ", ".join(f"`{each}`" for each in algorithms)
    if ranks != [1]:
        yield f"{', '.join(map(str, ranks))} ranks"


def _sizes(sizes: Sequence[str]) -> str:
    """List sizes; of many, the first and the last.

    >>> _sizes(["256", "512"]), _sizes([str(n) for n in range(128, 3201, 32)])
    ('256, 512', '128 to 3200 in steps of 32')
    """
    if len(sizes) <= MOST:
        return ", ".join(sizes)
    numbers = [int(each) for each in sizes if each.isdecimal()]
    steps = set(np.diff(numbers)) if len(numbers) == len(sizes) else set()
    span = f"{sizes[0]} to {sizes[-1]}"
    return f"{span} in steps of {steps.pop()}" if len(steps) == 1 else f"{len(sizes)} sizes from {span}"
