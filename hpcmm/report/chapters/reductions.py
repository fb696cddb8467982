"""Reductions: the share of the memory bandwidth."""

from __future__ import annotations

import pandas as pd

from hpcmm import analysis
from hpcmm.operations import OPERATIONS
from hpcmm.report import formats
from hpcmm.report.chapters.chapter import Answer, Chapter
from hpcmm.report.chapters.ladder import best, ladders, order
from hpcmm.report.chapters.sizes import over_sizes, rate_against_size


def reach(rows: pd.DataFrame) -> str:
    """Give the length at which the fastest rung reaches half of its highest rate, for operations bound by memory."""
    operation = rows["operation"].iloc[0]
    if OPERATIONS[operation].metric != "bytes" or rows["n"].nunique() < 3:
        return ""
    here = analysis.largest(rows)
    ours = here[here["role"] == "rung"]
    if ours.empty:
        return ""
    label = ours.loc[ours["seconds"].idxmin(), "label"]
    own = rows[rows["label"] == label].sort_values("n")
    rates = own[formats.rate_column(operation)]
    enough = (rates >= rates.max() / 2).to_numpy().argmax()
    if enough == len(own) - 1:  # the highest rate itself
        before, last = (formats.size(own.iloc[i]) for i in (-2, -1))
        share = formats.percent(rates.iloc[-2] / rates.iloc[-1])
        return f"At n = {before}, {label} reaches {share} of its rate at {last}."
    return f"{label} reaches half of its highest rate at n = {formats.size(own.iloc[enough])}."


CHAPTER = Chapter(
    "reductions",
    "Reductions",
    "How much of the memory bandwidth does a sum, a minimum or a maximum reach?",
    (rate_against_size, ladders),
    (
        Answer(best, each_device=True, each_size=True),
        Answer(reach, each_device=True),
        Answer(order, each_device=True, each_size=True),
        Answer(over_sizes, "rungs", each_device=True),
    ),
)
