"""The figures of the report: the rate of each variant against size, as Vega-Lite specifications."""

from __future__ import annotations

import json
import math
from typing import Any

import altair as alt
import pandas as pd
import vl_convert

from hpcmm.analysis import Series
from hpcmm.operations import OPERATIONS
from hpcmm.report import tables
from hpcmm.store import DIMENSIONS

# Hues that differ to colour-blind readers, each at 3:1 or more against white and near-black paper.
# A variant has a colour; its tile widths share that and differ, as all do, in marker and dash.
PALETTE = ("#3b7dc4", "#d1602c", "#2f9462", "#b0569f", "#a07f00", "#d6506b", "#2492a8", "#8a6fd1")
MARKERS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "triangle-right")
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [12, 4])
LINE = "currentColor"  # follows the page's text, light or dark, on the screen and on paper

# The Vega-Lite that Altair writes is the one that draws.
VEGA_LITE = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])


def rate_against_size(series: Series) -> dict[str, Any] | None:
    """Vega-Lite chart of one series: GFLOP/s (or GB/s) of the kernel alone, 95 % interval, hover values.

    The baselines are thick lines in the colour of the text. None if no point has a number.
    """
    metric = OPERATIONS[series.operation].metric
    column, unit = tables.RATES[metric]
    known = series.points[series.points[column].notna()]
    if known.empty:
        return None
    records = [_record(row, column) for row in known.to_dict("records")]
    labels = known.drop_duplicates("label").sort_values("place")
    style = _styles(labels)
    one_number = tables.size_is_one_number(known)

    legend = alt.Legend(title=None, orient="bottom", columns=3, symbolOpacity=1, symbolSize=70, symbolStrokeWidth=0)
    domain = list(labels["label"])
    color = alt.Color("label:N", legend=legend, scale=alt.Scale(domain=domain, range=style["color"]))
    shape = alt.Shape("label:N", legend=legend, scale=alt.Scale(domain=domain, range=style["shape"]))
    dash = alt.StrokeDash("label:N", legend=legend, scale=alt.Scale(domain=domain, range=style["dash"]))
    rate = _rate_axis(known[column] / 1e9, unit)
    if one_number:
        position, height = {"x": _size_axis(known), "y": alt.Y("rate:Q", **rate)}, 340
        interval = {"x": position["x"], "y": alt.Y("low:Q", **rate), "y2": "high:Q"}
    else:
        # Shapes have no order to draw a line along, and long names: one row each.
        shapes = [tables.size(row) for row in known.drop_duplicates(list(DIMENSIONS)).to_dict("records")]
        row = alt.Y("size:N", title=None, sort=shapes, axis=alt.Axis(grid=True))
        position, height = {"x": alt.X("rate:Q", **rate), "y": row}, max(120, 44 * len(shapes))
        interval = {"x": alt.X("low:Q", **rate), "x2": "high:Q", "y": row}
    tooltip = [
        alt.Tooltip("label:N", title="variant"),
        alt.Tooltip("size:N", title="size"),
        alt.Tooltip("rate:Q", title=unit, format=",.3r"),
        alt.Tooltip("interval:N", title="95 % interval"),
        alt.Tooltip("time:N", title="time"),
        alt.Tooltip("ratio:N", title="to baseline"),
    ]
    marker = 60 if known["n"].nunique() <= 24 else 12  # a dense sweep's markers would hide its lines
    ends = "format(datum.low, ',.3r') + ' to ' + format(datum.high, ',.3r')"
    base = alt.Chart().encode(color=color)
    known_interval = base.transform_filter("isValid(datum.low)")
    layers = [
        known_interval.mark_rule(strokeWidth=1.5, opacity=0.6).encode(**interval),
        base.transform_calculate(interval=f"isValid(datum.low) ? {ends} : 'too few repetitions'")
        .mark_point(filled=True, size=marker, opacity=1)
        .encode(**position, shape=shape, tooltip=tooltip),
    ]
    if one_number:
        lines = base.encode(**position, strokeDash=dash)
        layers.insert(0, lines.transform_filter("!datum.baseline").mark_line(strokeWidth=1.75))
        if known["baseline"].any():
            layers.insert(0, lines.transform_filter("datum.baseline").mark_line(strokeWidth=3.5, opacity=0.55))
    chart = alt.layer(*layers, data=alt.NamedData(name="points")).properties(
        width="container",
        height=height,
        description=f"{unit} against size, {tables.conditions(series)}",
        background="transparent",
    )
    chart = chart.configure(font="system-ui, sans-serif").configure_view(stroke=None)
    chart = chart.configure_axis(
        labelColor=LINE, titleColor=LINE, tickColor=LINE, domainColor=LINE, gridColor=LINE, gridOpacity=0.13,
        titleFontWeight="normal", labelFontSize=12, titleFontSize=12,
    ).configure_legend(labelColor=LINE, labelFontSize=12, labelLimit=120)  # fmt: skip
    # Put in only now: Altair would check each value of each record against its schema.
    return chart.to_dict() | {"datasets": {"points": records}}


def _record(row: dict, column: str) -> dict[str, Any]:
    # Six digits are more than a figure shows, and half the bytes of all of them.
    rate, low, high = (float(f"{row[column + end] / 1e9:.6g}") for end in ("", "_low", "_high"))
    known = math.isfinite(low)
    return {
        "label": row["label"],
        "n": row["n"],
        "size": tables.size(row),
        "rate": rate,
        "low": low if known else None,
        "high": high if known else None,
        "time": tables.duration(row["seconds"]),
        "ratio": tables.against_baseline(row),
        "baseline": bool(row["baseline"]),
    }


def _styles(labels: pd.DataFrame) -> dict[str, list]:
    """Colour, marker and dash of each label; baselines have markers and dashes of their own order."""
    ours = list(dict.fromkeys(labels.loc[labels["baseline"] == 0, "variant"]))
    style: dict[str, list] = {"color": [], "shape": [], "dash": []}
    seen = {True: 0, False: 0}
    for row in labels.to_dict("records"):
        baseline = bool(row["baseline"])
        i = seen[baseline]
        style["color"].append(LINE if baseline else PALETTE[ours.index(row["variant"]) % len(PALETTE)])
        style["shape"].append(MARKERS[i % len(MARKERS)])
        style["dash"].append(DASHES[i % len(DASHES)])
        seen[baseline] += 1
    return style


def _size_axis(points: pd.DataFrame) -> alt.X:
    """A log2 axis for powers of two, a linear one for other sizes."""
    sizes = sorted({int(n) for n in points["n"]})
    if sizes[0] > 0 and all(n.bit_count() == 1 for n in sizes):
        names = {str(row["n"]): tables.size(row) for row in points.drop_duplicates("n").to_dict("records")}
        label = f"{json.dumps(names, ensure_ascii=False)}[datum.value]"
        axis = alt.Axis(values=sizes, labelExpr=label, labelOverlap="parity")
        return alt.X("n:Q", title="n", axis=axis, scale=alt.Scale(type="log", base=2, nice=False, padding=12))
    return alt.X("n:Q", title="n", scale=alt.Scale(zero=False, nice=False, padding=12), axis=alt.Axis(format="d"))


def _rate_axis(rates: pd.Series, unit: str) -> dict[str, Any]:
    """A logarithmic axis once the rates span more than a factor of 20, else a linear one from zero."""
    if rates.min() > 0 and rates.max() > 20 * rates.min():
        tens = range(math.floor(math.log10(rates.min())), math.ceil(math.log10(rates.max())) + 1)
        axis = alt.Axis(values=[10.0**i for i in tens], format=",~r")
        return {"title": unit, "axis": axis, "scale": alt.Scale(type="log")}
    return {"title": unit, "scale": alt.Scale(zero=True)}


def svg(chart: dict[str, Any], title: str) -> str:
    """The chart as a drawing of fixed size on white, for papers and slides."""
    still = chart | {"width": 560, "title": title, "background": "white"}
    return vl_convert.vegalite_to_svg(json.dumps(still), vl_version=VEGA_LITE)


def script() -> str:
    """Vega, Vega-Lite and vega-embed in one script for an offline page."""
    return vl_convert.javascript_bundle(vl_version=VEGA_LITE).replace("</script", "<\\/script")
