"""Headlines of a report: findings about the whole run, each with its number.

One rule holds for all. The first element type comes first, float32 for products, in its own arithmetic. Sizes are that
of the courses and the largest one. Times are medians over all visits, so that a rung or a library has one value at a
problem. All headlines about a machine are withheld if it is too noisy, and any one without an interval.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd

from hpcmm import analysis
from hpcmm.analysis import visits
from hpcmm.model import TEXTBOOK
from hpcmm.parallel import ALGORITHMS
from hpcmm.report import findings, formats
from hpcmm.report.ratio import LIBRARIES, UNKNOWN, Ratio, Row
from hpcmm.report.vega import extent
from hpcmm.system.text import percent

WITHHELD = "withheld"  # the value of a headline that the measurements do not support
COURSE_SIZES = {"matmul": 4096, "sum": 2**22}  # the largest of the tables in the courses' documents


@dataclass(frozen=True)
class Headline:
    """A finding at the top of the report: title, number, text, further sentences, and the point with the number."""

    name: str
    value: str
    text: str
    more: Sequence[str] = ()
    row: Row | None = None


def headlines(frame: pd.DataFrame, scaling: pd.DataFrame, only: str = "", **about: str) -> list[Headline]:
    """Return the fastest product, the highest bandwidth of a sum, and the efficiency on the most ranks.

    ``only`` is the name of one of them. They are ``about`` a machine, a device and an element type, as far as given.
    """
    noise, machines = analysis.noises(frame)["spread"], formats.machines(frame["machine"])
    rows = findings.timed_rungs(frame)
    for column, wanted in about.items():
        rows, scaling = (each[each[column] == wanted] for each in (rows, scaling))
    several = len(machines) > 1
    found = []
    for operation, name in (("matmul", "Fastest product"), ("sum", "Fastest sum")):
        timed = rows[rows["operation"] == operation]
        if timed.empty or only not in ("", name):
            continue
        timed = findings.first_type(analysis.row_dicts(analysis.pooled(findings.on_accelerators(timed))))
        timed = findings.in_own_arithmetic(findings.on_fewest_ranks(timed))
        timed = [row for row in timed if row["seconds_low"] > 0] or timed
        shown = [findings.quickest(at) for at in reversed(at_told_sizes(timed))]  # the largest size first
        texts = _told(shown, machines[shown[0]["machine"]] if several else "")
        low, own = shown[0]["seconds_low"], noise[shown[0]["machine"], shown[0]["device"]]
        found.append(replace(_headline(name, formats.rate_text(shown[0]), texts, low, own), row=shown[0]))
    if only in ("", "Scaling") and (most := most_ranks(scaling)) is not None:
        prefix, row = most
        text = _efficiency(prefix, row) + (f"; {machines[row['machine']]}." if several else ".")
        value, low = percent(row[prefix + "efficiency"]), row[prefix + "efficiency_low"]
        found.append(_headline("Scaling", value, [text], low, noise[row["machine"], row["device"]]))
    return found


def _efficiency(prefix: str, row: Row) -> str:
    """Say what a scaling efficiency is of, and relative to what."""
    arithmetic = f" ({row['arithmetic']})" if row["arithmetic"] else ""
    text = f"{row['kind']} scaling efficiency of {row['label']} on {row['ranks']} ranks at {formats.size(row)} in "
    text += f"{row['dtype']}{arithmetic}, "
    if prefix:
        return f"{text}end to end, relative to the fastest on one rank in this arithmetic"
    text += f"the kernel alone, {formats.base(row)}"
    calls = math.isfinite(row["call_efficiency"])
    return text + (f"; end to end {percent(row['call_efficiency'])}" if calls else "")


def machines_in_order(rows: pd.DataFrame) -> list[str]:
    """Return the machines of ``findings.timed_rungs``: first that of the most points beside a tuned library.

    If several have as many, that of the most points of several visits comes first, or of the most points.
    """
    by_machine = rows.assign(several=rows["visits"] > 1).groupby("machine", sort=False)
    counts = by_machine.agg({"tuned_ratio": "count", "several": "sum", "visits": "size"})
    return counts.sort_values(list(counts), ascending=False, kind="stable").index.tolist()


def at_told_sizes(rows: Sequence[Row]) -> list[list[Row]]:
    """Return the points at the sizes of headlines: that of the courses, or the next smaller one, and the largest."""
    ordered = sorted(analysis.by_size(rows).values(), key=lambda at: at[0]["flops"] + at[0]["bytes"])
    course = COURSE_SIZES.get(rows[0]["operation"], math.inf)
    square = [at for at in ordered if at[0]["m"] in (0, at[0]["n"]) and at[0]["k"] in (0, at[0]["n"])] or ordered[-1:]
    small = [at for at in square if at[0]["n"] <= course]
    return [at for i, at in enumerate(square) if at is square[-1] or (small and at is small[-1])]


def by_size(rows: Sequence[Row], noise: float = math.nan) -> Headline:
    """Compare the fastest rung at each size with the faster library; ``rows`` are of one device and type."""
    rungs = [row for row in rows if row["role"] == "rung" and row["lead"] > 0]
    plain = [row for row in rungs if not row["arithmetic"]]
    every, best = (sorted(findings.fastest_of(each or rungs, "n"), key=lambda row: row["n"]) for each in (rungs, plain))
    others = any(row["arithmetic"] for row in every) and plain  # faster, but not in the arithmetic of the library
    of_type = f" in {best[0]['dtype']} arithmetic" if others else ""
    libraries, known = best[0]["library"], sum(row["tuned_ratio"] > 0 for row in best)
    if known:
        libraries += f" and of {best[0]['tuned_library']}" + (f" (known at {known} sizes)" if known < len(best) else "")
    ahead, rest = _ahead(best)
    text = f"sizes where the fastest rung{of_type} is ahead of {libraries}{rest}"
    if others:
        text += f" In any arithmetic {''.join(_ahead(every))}"
    _, low = extent(row["lead_low"] for row in best)
    return _headline("Rate over size", ahead, [text], low, noise)


def _ahead(best: Sequence[Row]) -> tuple[str, str]:
    """Count the sizes where a rung is ahead, and where behind; with the ratios, of many those at told sizes."""
    shown = best if len(best) < 5 else [row for at in at_told_sizes(best) for row in at]
    ratios = ", ".join(f"{Ratio.to_library(row, 'lead').short} at {formats.size(row)}" for row in shown)
    over = "the faster one" if any(row["tuned_ratio"] > 0 for row in best) else "it"
    behind = sum(row["lead_high"] < 1 for row in best)
    text = f", behind at {behind}" if behind else ""
    return f"{sum(row['lead_low'] > 1 for row in best)} of {len(best)}", f"{text}. Over {over}: {ratios}."


def _headline(name: str, value: str, texts: Sequence[str], low: float, noise: float) -> Headline:
    """A headline, or why it is withheld: ``low`` is the end of its interval, ``noise`` that of its machine."""
    measured = f"Measured: {value} {' '.join(texts)}"
    if noise > visits.NOISY:
        why = "This machine is too noisy"
        if name.startswith("Fastest"):  # the first one has the number, for all
            limit = f"limit {100 * visits.NOISY:.0f} %"
            why += f": visits of a point differ by {formats.beyond(noise, visits.NOISY)} ({limit})"
            why += ". End other processes and measure again"
        return Headline(name, WITHHELD, f"{why}. {measured}")
    if not math.isfinite(low):
        why = f"{UNKNOWN[:1].upper()}{UNKNOWN[1:]}"
        return Headline(name, WITHHELD, f"{why}. Measure with three or more visits. {measured}")
    return Headline(name, value, *texts[:1], texts[1:])


def _told(shown: Sequence[Row], machine: str) -> list[str]:
    """Return a sentence on the fastest rung at each size, and one on its speed over each library."""
    first, *others = shown
    where = f"on the {formats.device(first['device'])} at {formats.at(first)}"
    parts = [f"{findings.name_of(first)} {where} in {first['dtype']}"]
    parts += [f"{findings.name_of(row)} {formats.rate_text(row)} at {formats.size(row)}" for row in others]
    sentences = ["; ".join(filter(None, [*parts, machine])) + "."]
    compared = [row for row in shown if math.isfinite(row["ratio"])]
    for column, name in LIBRARIES.items():
        ratios = []
        for row in compared:
            ratio, known = Ratio.to_library(row, column), math.isfinite(row[column])
            at = f" at {formats.size(row)}" if others else ""
            ratios.append((ratio.over(level="95 % CI ") if known else "not measured") + at)
        if first[name] and ratios:
            sentences.append(f"Speed over {first[name]}: {'; '.join(ratios)}.")
    return sentences


def most_ranks(scaling: pd.DataFrame) -> tuple[str, Row] | None:
    """Return the fastest point of the largest size on the most ranks: of the kernel alone, or else end to end.

    Strong scaling is preferred, and then efficiencies relative to one rank on every card at once, because cards differ.
    Algorithms of a library are excluded, and so are the kernels alone of ``TEXTBOOK``, which exchange nothing.
    """
    foreign = [algorithm.name for algorithm in ALGORITHMS.values() if algorithm.package]
    last = scaling[(scaling["operation"] == "matmul") & ~scaling["algorithm"].isin(foreign)]
    last = findings.on_accelerators(last[last["ranks"] == last["ranks"].max()])
    rows = findings.first_type(analysis.row_dicts(last))
    rows = [row for row in rows if row["kind"] == "strong"] or rows
    rows = [row for row in rows if row["base_ranks"] > 1] or rows
    work = max((row["flops"] for row in rows), default=0)
    for prefix in ("", "call_"):
        exchanging = (row for row in rows if row["flops"] == work and (prefix or row["algorithm"] != TEXTBOOK))
        known = [row for row in exchanging if row[prefix + "efficiency"] > 0]
        if known:
            return prefix, min(known, key=lambda row: row[prefix + "seconds"])
    return None
