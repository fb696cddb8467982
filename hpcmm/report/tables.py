"""The tables of the report, rounded for Markdown and HTML."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from hpcmm import analysis
from hpcmm.analysis import compare
from hpcmm.analysis.tidy import MISSING, SHORT
from hpcmm.model import TEXTBOOK
from hpcmm.model.records import beside
from hpcmm.report.findings import Row, first_series, name_of, quickest
from hpcmm.report.formats import at, billions, duration, rate_text, size, times
from hpcmm.report.markup import EMPTY, Cell, Table, grouped, words
from hpcmm.report.ratio import LIBRARIES, Ratio
from hpcmm.system.text import amount, number, percent, whole

SHORT_MARK = "†"
Column = Callable[[Row], Cell]


def table(caption: str, rows: Sequence[Any], columns: Mapping[str, Column], leading: int = 0) -> Table:
    """Make a table with one line per row, without empty columns.

    The first ``leading`` cells of a line are shown where they change.
    """
    cells = {name: [cell(row) for row in rows] for name, cell in columns.items()}
    kept = [
        i < leading or not rows or any(cell.text or cell.note for cell in column)
        for i, column in enumerate(cells.values())
    ]
    head = list(itertools.compress(cells, kept))
    lines = [list(line) for line in zip(*(cells[name] for name in head), strict=True)]
    if not all(isinstance(row, Mapping) for row in rows):
        return Table(caption, head, lines)
    of_rows = [(row.get("device", ""), row.get("dtype", "")) for row in rows]
    return Table(caption, head, grouped(lines, leading), of_rows)


def text(name: str) -> Column:
    return lambda row: words(row[name])


def value(name: str, form: Callable[[Any], str]) -> Column:
    return lambda row: Cell(form(row[name]))


def of_size(row: Row) -> Cell:
    return words(size(row))


FORMS = {each.__name__: each for each in (amount, billions, duration, number, percent, times, whole)}
FORMS |= {"text": str, "nanoseconds": lambda seconds: number(1e9 * seconds)}
COLUMNS = beside(__file__)


def columns_of(kind: str, **functions: Column) -> dict[str, Column]:
    """Return the columns of a kind of table, from ``tables.yaml``, which names the ``functions``."""
    made = {name.replace("_", " "): cell for name, cell in functions.items()}
    return {
        name: value(cell[0], FORMS[cell[1]]) if isinstance(cell, list) else made.get(cell) or text(cell)
        for name, cell in COLUMNS[kind].items()
    }


def failed(row: Row) -> Cell:
    """Return the cell of a point without numbers: its result, and the wrong element or the reason."""
    why = row["where"].removeprefix(MISSING).lstrip(":, ")
    return Cell(row["result"], why, "fail" if row["result"] == "FAIL" else "text")


def result(row: Row) -> str:
    """Format PASS with the largest error, or ``"PASS exact"`` where no error is allowed, and notes on the point."""
    accuracy = f" {row['error']:.0e}" if row["bound"] > 0 else " exact"
    notes = [row["arithmetic"], row["pick"], row["schedule"], "throttled" if row["throttled"] else ""]
    return ", ".join([row["result"] + accuracy, *filter(None, notes)])


def marked(text: str, row: Row) -> str:
    """A time or rate, with a mark if it is so short that the events around it count."""
    return f"{text} {SHORT_MARK}" if row["short"] else text


def marked_caption(caption: str, rows: Sequence[Row]) -> str:
    """The caption of a table, with the meaning of the mark if a point has it."""
    if not any(row["short"] for row in rows):
        return caption
    return f"{caption}; {SHORT_MARK} below {SHORT} times an empty pair of CUDA events"


def clock(row: Row) -> str:
    """The SM clock during the kernel, ``"1.75 GHz"``."""
    return f"{row['clock'] / 1e9:.2f} GHz" if row["clock"] > 0 else "unknown"


def against_baseline(row: Row, prefix: str = "") -> str:
    """Format the ratio to the baseline; it names both arithmetics if they differ."""
    return "baseline" if row["baseline"] else Ratio.to_library(row, prefix + "ratio").short


def libraries(rows: Sequence[Row]) -> str:
    """Name the libraries of the ratios of a table, with their versions, ``"library: cublas 13.1"``."""
    texts = []
    own = [row for row in rows if row["algorithm"] == TEXTBOOK and not row["baseline"]]
    for ratio, library in LIBRARIES.items():
        compared = (row[library] for row in own if not math.isnan(row[ratio]))
        if known := " and ".join(dict.fromkeys(filter(None, compared))):
            texts.append(f"{library.removesuffix('_library')}: {known}")
    return "; ".join(texts)


def comparison_table(rows: pd.DataFrame) -> Table:
    """Make the table that compares two files point by point; ``rows`` are from ``compare.compare``."""

    def verdict(row: Row) -> Cell:
        wrong = row["verdict"] in (*compare.WORSE, "FAIL")
        where = "" if row["result"] == "PASS" else row["where"].removeprefix(f"{compare.MISSING}: ")
        return Cell(row["verdict"], where, "fail" if wrong else "text")

    order = {verdict: i for i, verdict in enumerate(compare.VERDICTS)}
    ordered = sorted(analysis.row_dicts(rows), key=lambda row: order[row["verdict"]])
    columns = columns_of("comparison", verdict=verdict, size=of_size)
    return table("Points of both files; speedup of the second file over the first", ordered, columns)


def sweeps_table(sweeps: Sequence[tuple[str, str, Sequence[Row]]]) -> Table:
    """Make the table of all sweeps: name, chapter and points of each, and its fastest rung at the largest size."""
    rows = []
    for name, chapter, points in sweeps:
        rungs = [row for row in points if not row["baseline"]]
        right = [row for row in rungs if row["result"] == "PASS" and row["seconds"] > 0 and row["role"] == "rung"]
        row = quickest(analysis.largest(first_series(right)))
        results = [row["result"] for row in rungs]
        counts = [len(rungs), *map(results.count, ("PASS", "FAIL", MISSING))]
        best = [words(f"{name_of(row)} at {at(row)}"), Cell(rate_text(row))] if row else [EMPTY, EMPTY]
        over = [
            Cell(Ratio.to_library(row, ratio).short, row[library]) if row and row[ratio] > 0 else EMPTY
            for ratio, library in LIBRARIES.items()
        ]
        dtypes = ", ".join(dict.fromkeys(row["dtype"] for row in points))
        rows.append([words(name), *best, *over, *(Cell(whole(each)) for each in counts), words(dtypes), words(chapter)])
    head = ("Sweep", "Fastest rung", "Rate", "× library", "× tuned library")
    head += ("Points", "PASS", "FAIL", "Not measured", "Types", "Chapter")
    return Table("All sweeps", head, rows)


def points_table(caption: str, frame: pd.DataFrame, what: str, cell: Column) -> Table:
    """Make a table of points: all of them with one column more, such as why they were not measured."""
    columns = {"Sweep": text("sweep"), "Variant": text("label"), "Size": of_size, what: cell}
    return table(caption, analysis.row_dicts(frame), columns | {"Type": text("dtype"), "Ranks": value("ranks", str)})


def failure_table(frame: pd.DataFrame) -> Table:
    """Make the table of all wrong results, each with its first wrong element."""
    what = "First wrong element: result - reference = difference"
    return points_table("Wrong results", frame, what, lambda row: Cell(row["where"], kind="fail"))


def unplanned_table(caption: str, frame: pd.DataFrame) -> Table:
    """Make a table of the group ``omitted``, one row per sweep and reason; those of the plan have no points."""
    groups = [group for _, group in frame.groupby(["sweep", "reason"], sort=False)]
    columns = {
        "Sweep": lambda group: words(group["sweep"].iloc[0]),
        "Variants": lambda group: words(", ".join(dict.fromkeys(group["variant"]))),
        "Ranks": lambda group: Cell(", ".join(map(str, sorted(set(group["ranks"]))))),
        "Points": lambda group: Cell(str(group["points"].sum() or "")),
        "Reason": lambda group: words(group["reason"].iloc[0]),
    }
    return table(caption, groups, columns)
