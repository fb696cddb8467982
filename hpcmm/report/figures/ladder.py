"""The ladder: one bar a rung."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import pandas as pd

from hpcmm import analysis
from hpcmm.analysis import Series
from hpcmm.model import TEXTBOOK
from hpcmm.report import formats
from hpcmm.report.figures.points import calculations, columns_of, described, titles_of, tooltips
from hpcmm.report.ratio import Ratio, arithmetic_of
from hpcmm.report.vega import BESIDE, LINE, PALETTE, Figure, Spec, category, layered, quantity, rounded, text_width

MOST_LADDERS = 8  # sizes of one ladder that can be chosen


def ladders(series: Series) -> Iterator[Figure]:
    """Draw one bar per rung: its speed relative to the library, with its rate in words.

    The largest size is shown first; each of the others is a figure that the page can show instead. Where no rung has a
    ratio, the bars are rates.
    """
    for device, points in series.points.groupby("device", sort=False):
        sizes = formats.spread(analysis.row_dicts(analysis.sizes(points)), MOST_LADDERS)
        first = formats.size(analysis.largest(points).iloc[0])
        for at in sorted(sizes, key=lambda each: formats.size(each) != first):
            here = analysis.at_size(points, at)
            # the fastest tile represents the rung; a wrong one does only if all are wrong
            rungs = here.sort_values("seconds", kind="stable").drop_duplicates(["variant", "algorithm", "memory"])
            if (exchanging := rungs["algorithm"] != TEXTBOOK).any():  # the kernel of TEXTBOOK exchanges nothing
                rungs = rungs[exchanging & ((rungs["result"] != "PASS") | rungs["seconds"].notna())]
            if (figure := _ladder(series, analysis.ladder(rungs), device, first)) is not None:
                yield figure


def _ladder(series: Series, rows: pd.DataFrame, device: str, first: str) -> Figure | None:
    passed = rows["result"] == "PASS"
    # the ratio of a distributed algorithm is to TEXTBOOK with the same variant, not to the library
    own = (rows["baseline"] == 0) & (rows["algorithm"] == TEXTBOOK)
    relative = bool(rows.loc[passed & own, "ratio"].notna().any())
    rates = formats.rate_unit_of(series.points)
    value = rows["ratio"] if relative else rows[rates.column] / rates.scale
    if len(rows) < 2 or value.isna().all():
        return None
    baseline = rows["library"].iloc[0]
    texts = [_bar_text(row, relative, rates) for row in analysis.row_dicts(rows)]
    prefix, scale = ("ratio", 1.0) if relative else (rates.column, rates.scale)
    columns = columns_of(rows, series) | {
        "value": rounded(value),
        "from": rounded(rows[prefix + "_low"] / scale),
        "to": rounded(rows[prefix + "_high"] / scale),
        "step": [formats.times(step) for step in rows["step"]],
        "text": texts,
    }
    y = category("label", sort=list(rows["label"]), title=None, axis={"labelLimit": 200})
    # leaves room for the labels after the bars; outside the axis they would reduce the width of the figure
    ends = [max(filter(None, pair), default=0.0) for pair in zip(columns["value"], columns["to"], strict=True)]
    needed = (f"{end:.6g} * width / max(width - {text_width(text)}, 40)" for end, text in zip(ends, texts, strict=True))
    domain = {
        "domainMin": 0,
        "domainMax": {"expr": f"max({', '.join([*needed, '1.02' if relative else '0'])})"},
        "nice": False,
    }
    title = f"speed relative to {baseline}" if relative else rates.name
    axis = f"over {baseline}" if relative else rates.name  # the caption says what it is; a narrow axis has no room
    x = quantity("value", title=axis, scale=domain, axis={"labelBound": True, "grid": False})
    color = {"condition": {"test": "datum.library == 1", "value": LINE}, "value": PALETTE[0]}
    opacity = {"condition": {"test": "datum.library == 1", "value": 0.45}, "value": 1}
    tooltip = [*tooltips(rates.name, series), {"field": "step", "title": "over the previous rung"}]
    end = {"calculate": "max(isValid(datum.to) ? datum.to : 0, isValid(datum.value) ? datum.value : 0)", "as": "end"}
    layers: list[Spec] = [
        {
            "mark": {"type": "bar", "height": {"band": 0.7}},
            "transform": calculations(series),
            "encoding": {"x": x, "y": y, "color": color, "opacity": opacity, "tooltip": tooltip},
        },
        {
            "name": BESIDE,
            "mark": {"type": "text", "align": "left", "dx": 5},
            "transform": [end],
            "encoding": {"x": quantity("end"), "y": y, "text": {"field": "text"}},
        },
    ]
    if any(each is not None for each in columns["from"]):  # Vega warns about the extent of an empty layer
        interval = {"x": quantity("from"), "x2": {"field": "to"}, "y": y}
        enough = [{"filter": "isValid(datum.from) && !datum.baseline"}]
        layers.append({"mark": {"type": "rule", "strokeWidth": 1.5}, "transform": enough, "encoding": interval})
    if relative:
        layers.insert(1, {"mark": {"type": "rule", "opacity": 0.35}, "encoding": {"x": {"datum": 1}}})
    size, name = formats.size(rows.iloc[0]), f"ladder-{device}"
    caption = f"{formats.device(device)} at {size}, {described(series)}: {title}"
    caption += "; grey: for comparison, no rungs" if columns["library"].count(1) > sum(columns["baseline"]) else ""
    shown = titles_of(series) | {"step": "Step"}
    whole = layered(layers, 24 * len(rows) + 8)
    if size == first:
        return Figure(name, caption, columns, whole, shown, series.dtype, device)
    return Figure(f"{name}-at-{size}", caption, columns, whole, shown, series.dtype, device, size, name)


def _bar_text(row: Mapping, relative: bool, unit: formats.RateUnit) -> str:
    """Return the text beside a bar, ``"0.85× (43 TFLOP/s)"``, or with the arithmetic if it is not the library's."""
    if row["result"] != "PASS":
        return row["result"]
    rate = formats.rate_text(row)
    if not relative or row["baseline"]:
        return rate
    ratio = Ratio.to_library(row)
    if not math.isfinite(ratio.value):
        return rate
    # the library's arithmetic is that of the element type, which the caption names; more would not fit beside a bar
    return f"{formats.times(ratio.value)} ({arithmetic_of(row) if ratio.arithmetics else rate})"
