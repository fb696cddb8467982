"""Headlines of a report: findings about the whole run, each with its number."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from hpcmm import analysis
from hpcmm.analysis import visits
from hpcmm.model import TEXTBOOK
from hpcmm.operations import OPERATIONS
from hpcmm.parallel import ALGORITHMS
from hpcmm.report import findings, formats
from hpcmm.report.ratio import FEW

WITHHELD = "withheld"  # the value of a headline that the measurements do not support

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Headline:
    """A finding at the top of the report: a title, a number, and what was measured."""

    name: str
    value: str
    text: str


def headlines(frame: pd.DataFrame, scaling: pd.DataFrame, machines: Mapping[str, str] | None = None) -> list[Headline]:
    """Return the fastest product, the highest bandwidth of a sum, and the efficiency on the most ranks.

    Each is a median over all visits of its point. It is withheld without an interval, or if the machine is too noisy.
    ``machines`` are the names of several kinds of machine, from ``formats.machines``; without them, those of ``frame``.
    """
    rows = analysis.points(frame)
    rows = rows[(rows["result"] == "PASS") & rows["seconds"].notna() & (rows["role"] == "rung")]
    machines = machines or formats.machines(frame["machine"])
    several = len(machines) > 1
    found = []
    for operation, name in (("matmul", "Fastest product"), ("sum", "Fastest sum")):
        own = rows[(rows["operation"] == operation) & (rows["algorithm"] == TEXTBOOK)]
        if own.empty:
            continue
        own = _on_accelerators_if_any(own)
        own = own[own["ranks"] == own["ranks"].min()]
        column = formats.rate_column(operation)
        ends = (("", "seconds"), ("_low", "high"), ("_high", "low"))
        work = own[OPERATIONS[operation].metric]
        own = own.assign(**{column + end: work / own[f"pooled_{of_time}"] for end, of_time in ends})
        row = own.loc[own[column].idxmax()]
        text = _headline_text(row) + (f"; {machines[row['machine']]}" if several else "")
        found.append(_headline(name, formats.rate_text(row), text, row["pooled_low"], row["spread"]))
    if (most := _most_ranks(scaling)) is not None:
        prefix, what = most
        of = "end to end" if prefix else "the kernel alone"
        text = (
            f"{what['kind']} scaling efficiency of {what['label']} on {what['ranks']} ranks at {formats.size(what)} "
            f"in {what['dtype']}, {of}, relative to the fastest on one rank"
        )
        if not prefix and math.isfinite(what["call_efficiency"]):
            text += f"; end to end {formats.percent(what['call_efficiency'])}"
        text += f"; {machines[what['machine']]}" if several else ""
        value = formats.percent(what[prefix + "efficiency"])
        found.append(_headline("Scaling", value, text, what[prefix + "efficiency_low"], what[prefix + "spread"]))
    return found


def by_size(rows: pd.DataFrame) -> Headline:
    """Compare the fastest rung at each size with the library; ``rows`` are of one device and type."""
    rungs = rows[(rows["role"] == "rung") & rows["ratio"].notna()]
    best = rungs.loc[rungs.groupby("n")["seconds"].idxmin()].sort_values("n")
    library = OPERATIONS["matmul"].baseline(best["device"].iloc[0], best["dtype"].iloc[0]).name
    behind = int((best["ratio_high"] < 1).sum())
    text = f"sizes where the fastest rung is ahead of {library}" + (f", behind at {behind}" if behind else "")
    text += f": {_ratios(best)}"
    plain = rungs[rungs["arithmetic"] == ""]
    if (best["arithmetic"] != "").any() and not plain.empty:  # faster, but not in the arithmetic of the library
        own = plain.loc[plain.groupby("n")["seconds"].idxmin()].sort_values("n")
        text += f". In {best['dtype'].iloc[0]} arithmetic {_ahead(own)}: {_ratios(own)}"
    return Headline("Rate over size", _ahead(best), text)


def _ahead(best: pd.DataFrame) -> str:
    return f"{int((best['ratio_low'] > 1).sum())} of {len(best)}"


def _ratios(best: pd.DataFrame) -> str:
    """List the ratios to the baseline with their sizes; of many the first, the middle and the last."""
    ratios = [f"{formats.times(row['ratio'])} at {formats.size(row)}" for row in analysis.row_dicts(best)]
    return ", ".join(ratios if len(ratios) < 5 else [ratios[0], ratios[len(ratios) // 2], ratios[-1]])


def _headline(name: str, value: str, text: str, low: float, spread: float) -> Headline:
    """A headline, or why it is withheld: ``low`` is the end of its interval, ``spread`` that between visits."""
    if not math.isfinite(low) and not spread > visits.NOISY:
        return Headline(name, WITHHELD, f"{FEW}; {text}")
    if spread > visits.NOISY:
        return Headline(
            name, WITHHELD, f"this machine is too noisy: visits scatter by {formats.percent(spread)}; {text}"
        )
    return Headline(name, value, text)


def _on_accelerators_if_any(rows: pd.DataFrame) -> pd.DataFrame:
    accelerated = analysis.on_accelerator(rows)
    return rows[accelerated] if accelerated.any() else rows


def _headline_text(row: Row) -> str:
    where = f"on the {formats.device(row['device'])} at {formats.size(row)}"
    return "; ".join([f"{findings.name_of(row)} {where} in {row['dtype']}", *findings.relative(row)])


def _most_ranks(scaling: pd.DataFrame) -> tuple[str, Row] | None:
    """Return the fastest point of the largest size on the most ranks: of the kernel alone, or else end to end.

    Strong scaling is preferred. Algorithms of a library are excluded, and so are the kernels alone of
    ``TEXTBOOK``, which exchange nothing.
    """
    foreign = [algorithm.name for algorithm in ALGORITHMS.values() if algorithm.package]
    last = scaling[(scaling["operation"] == "matmul") & ~scaling["algorithm"].isin(foreign)]
    last = last[last["ranks"] == last["ranks"].max()]
    last = _on_accelerators_if_any(last)
    if (last["kind"] == "strong").any():
        last = last[last["kind"] == "strong"]
    last = last[last["flops"] == last["flops"].max()]
    for prefix in ("", "call_"):
        known = last[last[prefix + "efficiency"].notna() & ((prefix != "") | (last["algorithm"] != TEXTBOOK))]
        if not known.empty:
            return prefix, known.loc[known[prefix + "seconds"].idxmin()]
    return None
