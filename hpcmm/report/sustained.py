"""Sustained products as figures over time and as tables."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from hpcmm import analysis
from hpcmm.analysis import throttling_names
from hpcmm.report import formats
from hpcmm.report.markup import Cell, Table, words
from hpcmm.report.vega import DASHES, PALETTE, Figure, category, layer, layered, quantity, rounded

MOST_POINTS = 300  # of a line; a longer course is drawn by medians
COURSES = (
    ("clock", "Clock", "clock, MHz", 1e-6),
    ("temperature", "Temperature", "temperature, °C", 1.0),
    ("power", "Power", "power, W", 1.0),
)


def figures(rows: pd.DataFrame, names: Sequence[str]) -> list[Figure]:
    """Draw rates, clock, temperature, power and throttle reasons of each device over time, from ``intervals``."""
    found = []
    for dtype, own in rows.groupby("dtype"):
        caption = f"Sustained products in {dtype}: rate of each device"
        found.append(course(own, names, f"rate-{dtype}", caption, ("flops_per_second", "GFLOP/s", 1e-9)))
    for name, title, unit, scale in COURSES:
        if rows[name].notna().any():
            caption = f"{title} of each device during sustained products"
            found.append(course(rows, names, name, caption, (name, unit, scale)))
    if any(names_of_reasons(rows)):
        found.append(reasons(rows, names))
    return found


def course(
    rows: pd.DataFrame, names: Sequence[str], name: str, caption: str, quantity_of: tuple[str, str, float]
) -> Figure:
    """Draw a column over time, with its unit and the factor to it, one line a device and element type."""
    column, unit, scale = quantity_of
    rows = rows.dropna(subset=column)
    step = rows["seconds"].max() / MOST_POINTS
    bins = rows.assign(bin=rows["seconds"] // step).groupby(["rank", "dtype", "bin"], as_index=False)
    thinned = bins[["seconds", column]].median()
    dtypes = sorted(set(thinned["dtype"]))
    columns = {
        "minutes": rounded(thinned["seconds"] / 60),
        "value": rounded(thinned[column] * scale),
        "device": [names[rank] for rank in thinned["rank"]],
        "dtype": list(thinned["dtype"]),
    }
    colour = {"scale": {"domain": list(names), "range": [PALETTE[i % len(PALETTE)] for i in range(len(names))]}}
    encoding = {
        "x": quantity("minutes", title="time, min"),
        "y": quantity("value", title=unit, scale={"zero": False}),
        "color": category("device", title=None, **colour),
    }
    if len(dtypes) > 1:
        dashes = {"domain": dtypes, "range": list(DASHES[: len(dtypes)])}
        encoding["strokeDash"] = category("dtype", title=None, scale=dashes)
    line = layer({"type": "line", "point": len(thinned) <= 6 * len(names)}, **encoding)
    shown = {"minutes": "Time, min", "device": "Device", "dtype": "Type", "value": unit}
    return Figure(f"sustained-{name}", caption, columns, layered([line], 220), shown)


def names_of_reasons(rows: pd.DataFrame) -> list[str]:
    """Name the throttle reasons of each interval; empty where the clock was not throttled or nothing is known."""
    return [throttling_names(int(bits)) for bits in rows["throttle_reasons"].fillna(0)]


def reasons(rows: pd.DataFrame, names: Sequence[str]) -> Figure:
    """Draw the intervals in which the clock of each device was throttled, with the reasons."""
    slowed = rows.assign(reason=names_of_reasons(rows))
    slowed = slowed[slowed["reason"] != ""]
    columns = {
        "minutes": rounded(slowed["seconds"] / 60),
        "device": [names[rank] for rank in slowed["rank"]],
        "reason": list(slowed["reason"]),
    }
    y = category("device", title=None, axis={"labelLimit": 220})
    ticks = layer("tick", x=quantity("minutes", title="time, min"), y=y, color=category("reason", title=None))
    spec = layered([ticks], max(60, 24 * slowed["rank"].nunique()))
    shown = {"minutes": "Time, min", "device": "Device", "reason": "Reason"}
    return Figure("sustained-throttling", "Throttled clocks during sustained products", columns, spec, shown)


def table(rows: pd.DataFrame, names: Sequence[str]) -> Table:
    """Make the table of products: how many, how many wrong, their rates at the start and at the end, and the state."""
    head = ("Device", "Type", "Products", "Wrong", "First third, GFLOP/s", "Last third, GFLOP/s")
    head += ("Clock, MHz", "Power, W", "Highest temperature, °C", "Throttled, % of the time", "Reasons")
    rows = rows.assign(reason=names_of_reasons(rows))
    lines = []
    for (rank, dtype), own in rows.groupby(["rank", "dtype"]):
        rates = [own.loc[own["part"] == part, "flops_per_second"].median() * 1e-9 for part in (0, 2)]
        state = (own["clock"].median() * 1e-6, own["power"].median(), own["temperature"].max())
        known = own["throttle_reasons"].notna().any()
        share = 100 * (own["reason"] != "").mean() if known else math.nan
        wrong = int(own["wrong"].sum())
        lines.append(
            [
                *(words(text) for text in (names[rank], dtype)),
                Cell(formats.whole(own["products"].sum())),
                Cell(str(wrong), kind="fail" if wrong else "number"),
                *(Cell("" if math.isnan(value) else formats.number(value)) for value in (*rates, *state, share)),
                words("; ".join(dict.fromkeys(filter(None, own["reason"])))),
            ]
        )
    return Table("Sustained products, each verified; medians of clock and power", head, lines)


def errors_table(rows: pd.DataFrame, names: Sequence[str]) -> Table:
    """Make the table of the counters of errors before and after; a device's unreadable ones share a row."""

    def value(number: float) -> Cell:
        return words("not readable") if np.isnan(number) else Cell(formats.whole(number))

    lines = []
    for rank, own in rows.groupby("rank"):
        unread = own[["before", "after"]].isna().all(axis=1)
        for row in analysis.row_dicts(own[~unread]):
            grew = Cell("grew", kind="fail") if row["grew"] else words("")
            lines.append([words(names[rank]), words(row["title"]), value(row["before"]), value(row["after"]), grew])
        if unread.any():
            titles = ", ".join(own["title"][unread])
            lines.append([words(names[rank]), words(titles), value(np.nan), value(np.nan), words("")])
    return Table("Counters of errors before and after", ("Device", "Counter", "Before", "After", ""), lines)
