"""Same bits: what the bits of each result depend on, as measured."""

from collections.abc import Sequence

import pandas as pd

from hpcmm import analysis
from hpcmm.report.chapters.chapter import chapter
from hpcmm.report.markup import EMPTY, Cell, Table
from hpcmm.report.ratio import LIBRARIES, Ratio
from hpcmm.report.tables import Row, libraries, of_size, table, text
from hpcmm.store import DIMENSIONS

QUESTIONS = {"run": "Any run", "rows": "Any m", "ranks": "Any ranks", "tile": "Any tile", "device": "CPU and GPU"}

ONE_RESULT = ["machine", "operation", "dtype", *DIMENSIONS, "device", "label"]  # of all numbers of ranks


def compared(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the points whose bits were compared."""
    return frame[frame["first_run"].notna() | frame["first_ranks"].notna()]


def bits_table(frame: pd.DataFrame) -> Table:
    """Make the table of one operation: a line for each variant and algorithm, over all numbers of ranks.

    The machine with the most points is first.
    """
    points = compared(frame)
    points = points.iloc[(-points.groupby("machine")["run"].transform("size")).argsort(kind="stable")]
    alike = [part for _, part in points.groupby(["dtype", *DIMENSIONS], sort=False, dropna=False)]
    groups = [group for part in alike for _, group in part.groupby(ONE_RESULT, sort=False, dropna=False)]
    lines = [line_of(group) for group in groups]
    several = points["machine"].nunique() > 1
    columns = {"Type": text("dtype"), "Size": of_size, "Device": text("machine" if several else "device")}
    columns |= {"Rung": text("label")}
    asked = [question for question in QUESTIONS if points[f"first_{question}"].notna().any()]
    columns |= {QUESTIONS[question]: (lambda row, question=question: row[f"same {question}"]) for question in asked}
    for column, library in LIBRARIES.items():
        if any(line[column] == line[column] for line in lines):
            title = f"× {library.replace('_', ' ')}, 1 rank"
            columns[title] = lambda row, column=column: Cell(Ratio.to_library(row, column).short)
    title = f"Equal bits of {points['operation'].iloc[0]}, and the speed over the library"
    alone = analysis.row_dicts(points[points["ranks"] == 1])
    return table("; ".join(filter(None, (title, libraries(alone)))), lines, columns, leading=3)


def line_of(group: pd.DataFrame) -> dict:
    """Return the line of one variant and algorithm: the answer to each question, from its numbers of ranks."""
    first = analysis.row_dicts(group)[0]
    alone = group[group["ranks"] == 1]
    ratios = {column: alone[column].iloc[0] if len(alone) else float("nan") for column in LIBRARIES}
    answers = {f"same {question}": answer(analysis.row_dicts(group), question) for question in QUESTIONS}
    return {name: first[name] for name in (*ONE_RESULT, "arithmetic")} | ratios | answers


def answer(rows: Sequence[Row], question: str) -> Cell:
    """Say yes or no; with the first difference and its size in units in the last place, and the ranks that had it."""
    known = [row for row in rows if row[f"first_{question}"] == row[f"first_{question}"]]
    if not known:
        return EMPTY
    ranks = question == "ranks"
    changed = [row for row in known if row[f"first_{question}"] >= 0]
    if not changed:
        return Cell("yes", f"1, {listed(known)} ranks" if ranks else "", "text")
    worst = max(changed, key=lambda row: row[f"ulps_{question}"])
    where = f"first at {int(changed[0][f'first_{question}'])}, up to {worst[f'ulps_{question}']:,.0f} ulps"
    return Cell("no", f"{listed(changed)} ranks: {where}" if ranks else where, "text")


def listed(rows: Sequence[Row]) -> str:
    return ", ".join(str(each) for each in sorted({row["ranks"] for row in rows}))


CHAPTER = chapter("bits")
