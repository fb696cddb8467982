"""Reductions: the share of the memory bandwidth."""

from collections.abc import Sequence

from hpcmm import analysis
from hpcmm.operations import OPERATIONS
from hpcmm.report import formats
from hpcmm.report.chapters.chapter import Answer, chapter
from hpcmm.report.chapters.ladder import best, ladders, order
from hpcmm.report.chapters.sizes import over_sizes, rate_against_size
from hpcmm.report.findings import quickest
from hpcmm.report.tables import Row


def reach(rows: Sequence[Row]) -> str:
    """Give the length at which the fastest rung reaches half of its highest rate, for operations bound by memory."""
    operation = rows[0]["operation"]
    if OPERATIONS[operation].metric != "bytes" or len({row["n"] for row in rows}) < 3:
        return ""
    fastest = quickest(row for row in analysis.largest(rows) if row["role"] == "rung")
    if fastest is None:
        return ""
    label, column = fastest["label"], formats.rate_column(operation)
    own = sorted((row for row in rows if row["label"] == label), key=lambda row: row["n"])
    most = max(row[column] for row in own)
    enough = next(row for row in own if row[column] >= most / 2)
    if enough is own[-1] and own[1:]:  # the highest rate itself
        before, last = own[-2:]
        share = formats.percent(before[column] / last[column])
        return f"At n = {formats.size(before)}, {label} reaches {share} of its rate at {formats.size(last)}."
    return f"{label} reaches half of its highest rate at n = {formats.size(enough)}."


CHAPTER = chapter(
    "reductions",
    figures=(rate_against_size, ladders),
    answers=(
        Answer(best, each_device=True),
        Answer(reach, each_device=True),
        Answer(order, each_device=True),
        Answer(over_sizes, "rungs", each_device=True),
    ),
)
