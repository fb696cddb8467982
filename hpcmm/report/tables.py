"""The tables of the report: rounded for Markdown, LaTeX and HTML, with every digit for CSV."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from hpcmm import analysis
from hpcmm.analysis import compare
from hpcmm.analysis.tidy import MISSING, SHORT
from hpcmm.model import TEXTBOOK
from hpcmm.operations import dimensions
from hpcmm.report.findings import fastest_of, first_series, name_of
from hpcmm.report.formats import duration, number, percent, rate_text, size, times, whole
from hpcmm.report.markup import EMPTY, Cell, Table, grouped, words
from hpcmm.report.ratio import Ratio

SHORT_MARK = "†"
Row = Mapping[str, Any]
Column = Callable[[Row], Cell]


def table(caption: str, rows: pd.DataFrame, columns: Mapping[str, Column], leading: int = 0) -> Table:
    """Make a table with one line per row; the first ``leading`` cells of a line are shown where they change."""
    known = analysis.row_dicts(rows)
    lines = [[cell(row) for cell in columns.values()] for row in known]
    sized = set(dimensions()) <= set(rows)
    of_rows = [(size(row) if sized else "", row.get("device", ""), row.get("dtype", "")) for row in known]
    return Table(caption, tuple(columns), grouped(lines, leading), of_rows)


def text(name: str) -> Column:
    return lambda row: words(row[name])


def value(name: str, form: Callable[[Any], str]) -> Column:
    return lambda row: Cell(form(row[name]))


def of_size(row: Row) -> Cell:
    return words(size(row))


def failed(row: Row) -> Cell:
    """Return the cell of a point without numbers: its result, and the wrong element or the reason."""
    return Cell(row["result"], row["where"], "fail" if row["result"] == "FAIL" else "text")


def result(row: Row) -> str:
    """Format PASS with the largest error, or ``"PASS exact"`` where no error is allowed, and notes on the point."""
    accuracy = f" {row['error']:.0e}" if row["bound"] > 0 else " exact"
    notes = [row["arithmetic"], row["pick"], row["schedule"], "throttled" if row["throttled"] else ""]
    return ", ".join([row["result"] + accuracy, *filter(None, notes)])


def marked(text: str, row: Row) -> str:
    """A time or rate, with a mark if it is so short that the events around it count."""
    return f"{text} {SHORT_MARK}" if row["short"] else text


def marked_caption(caption: str, points: pd.DataFrame) -> str:
    """The caption of a table, with the meaning of the mark if a point has it."""
    if not points["short"].any():
        return caption
    return f"{caption}; {SHORT_MARK} below {SHORT} times an empty pair of CUDA events"


def clock(row: Row) -> str:
    """The SM clock during the kernel, ``"1.75 GHz"``; files of earlier versions lack it."""
    return f"{row['clock'] / 1e9:.2f} GHz" if row["clock"] > 0 else "unknown"


def against_baseline(row: Row, prefix: str = "") -> str:
    """Format the ratio to the baseline; it names both arithmetics if they differ."""
    return "baseline" if row["baseline"] else Ratio.to_library(row, prefix + "ratio").short


def libraries(points: pd.DataFrame) -> str:
    """Name the libraries of the ratios of a table, with their versions, ``"library: cublas 13.1"``."""
    texts = []
    for title, ratio, column in (("library", "ratio", "library"), ("tuned", "tuned_ratio", "tuned_library")):
        compared = points[points[ratio].notna() & (points["algorithm"] == TEXTBOOK) & (points["baseline"] == 0)]
        if known := " and ".join(name for name in dict.fromkeys(compared[column]) if name):
            texts.append(f"{title}: {known}")
    return "; ".join(texts)


def comparison_table(rows: pd.DataFrame) -> Table:
    """Make the table that compares two files point by point; ``rows`` are from ``compare.compare``."""

    def verdict(row: Row) -> Cell:
        wrong = row["verdict"] in ("broken", "FAIL")
        return Cell(row["verdict"], row["where"] if wrong else "", "fail" if wrong else "text")

    order = {verdict: i for i, verdict in enumerate(compare.VERDICTS)}
    rows = rows.sort_values("verdict", key=lambda column: column.map(order), kind="stable")
    columns: dict[str, Column] = {
        "Verdict": verdict,
        "Sweep": text("sweep"),
        "Variant": text("label"),
        "Size": of_size,
        "Type": text("dtype"),
        "Ranks": value("ranks", whole),
        "Before": value("before", duration),
        "After": value("after", duration),
        "Speedup": value("ratio", times),
        "from": value("low", times),
        "to": value("high", times),
        "p": value("p", number),
        "Adjusted p": value("adjusted", number),
        "Found from": value("least", percent),
    }
    return table("Points of both files; speedup of the second file over the first", rows, columns)


def sweeps_table(sweeps: Sequence[tuple[str, str, pd.DataFrame]]) -> Table:
    """Make the table of all sweeps: name, chapter and points of each, and its fastest rung at the largest size."""
    rows = []
    for name, chapter, points in sweeps:
        own = points[points["baseline"] == 0]
        right = own[(own["result"] == "PASS") & own["seconds"].notna() & (own["role"] == "rung")]
        row = fastest_of(analysis.largest(first_series(right)), ("operation",))[0] if len(right) else None
        counts = [len(own), *((own["result"] == kind).sum() for kind in ("PASS", "FAIL", MISSING))]
        rows.append(
            [
                words(name),
                *([words(f"{name_of(row)} at {size(row)}"), Cell(rate_text(row))] if row else [EMPTY, EMPTY]),
                Cell(Ratio.to_library(row).short if row else ""),
                *(Cell(whole(count)) for count in counts),
                *map(words, (", ".join(dict.fromkeys(points["dtype"])), chapter)),
            ]
        )
    head = ("Sweep", "Fastest rung", "Rate", "× library", "Points", "PASS", "FAIL", "Not measured", "Types", "Chapter")
    return Table("All sweeps", head, rows)


def failure_table(frame: pd.DataFrame) -> Table:
    """Make the table of all wrong results, each with its first wrong element."""
    what = "First wrong element: result - reference = difference"
    return _points_table("Wrong results", frame, what, lambda row: Cell(row["where"], kind="fail"))


def unmeasured_table(frame: pd.DataFrame) -> Table:
    """Make the table of points that could not be measured, with the reasons."""
    return _points_table("Not measured", frame, "Reason", text("where"))


def throttling_table(frame: pd.DataFrame) -> Table:
    """Make the table of points during which the device throttled, with the reasons."""

    def reasons(row: Row) -> Cell:
        return words(analysis.throttling_names(row["throttle_reasons"]))

    return _points_table("Throttled", frame, "Reason", reasons)


def _points_table(caption: str, frame: pd.DataFrame, what: str, cell: Column) -> Table:
    columns = {"Sweep": text("sweep"), "Variant": text("label"), "Size": of_size, what: cell}
    return table(caption, frame, columns | {"Type": text("dtype"), "Ranks": value("ranks", str)})


def unplanned_table(caption: str, frame: pd.DataFrame) -> Table:
    """Make a table of the group ``omitted``, one row per sweep and reason; those of the plan have no points."""
    rows = [
        [
            words(sweep),
            words(", ".join(dict.fromkeys(group["variant"]))),
            Cell(", ".join(str(ranks) for ranks in sorted(set(group["ranks"])))),
            Cell(str(group["points"].sum() or "")),
            words(reason),
        ]
        for (sweep, reason), group in frame.groupby(["sweep", "reason"], sort=False)
    ]
    return Table(caption, ("Sweep", "Variants", "Ranks", "Points", "Reason"), rows)
