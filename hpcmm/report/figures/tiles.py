"""The effect of the width of a tile."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from hpcmm import analysis
from hpcmm.analysis import Series
from hpcmm.report import formats
from hpcmm.report.figures.points import calculations, columns_of, described, titles_of, tooltips
from hpcmm.report.vega import Figure, category, layered, quantity, rounded

HEAT = ("#eef3f9", "#1f5fa8")  # slowest, fastest
MOST_SIZES = 8  # of a map: more columns are too narrow for their numbers on a phone


def tile_map(series: Series) -> Iterator[Figure]:
    """Draw rates by tile and size, coloured relative to the fastest at that size; wrong results are marked."""
    points = series.points
    if not (points["tile"] > 0).any():
        return
    rows = points[points["tile"] > 0]
    sizes = analysis.sizes(rows)
    if rows.groupby("variant")["tile"].nunique().max() in (0, 1) or not 2 <= len(sizes) <= MOST_SIZES or rows.empty:
        return
    unit = formats.rate_unit_of(series.points).name
    columns = columns_of(rows, series)
    rates = pd.Series(columns["rate"], dtype=float)
    wrong = rows["result"] == "FAIL"
    columns |= {
        "relative": rounded(rates / rates.groupby(pd.Series(columns["size"])).transform("max")),
        "text": ["FAIL" if bad else formats.number(rate) for bad, rate in zip(wrong, rates, strict=True)],
    }
    labels = list(rows.sort_values("place")["label"].unique())
    top = {"labelAngle": 0, "orient": "top", "domain": False, "ticks": False}
    position = {
        "x": category("size", sort=formats.sizes(sizes), title="n", axis=top),
        "y": category("label", sort=labels, title=None, axis={"domain": False, "ticks": False, "labelLimit": 200}),
    }
    legend = {"title": "relative to the fastest", "titleLimit": 300, "format": ".0%", "gradientLength": 160}
    color = quantity("relative", scale={"domain": [0, 1], "range": list(HEAT)}, legend=legend)
    ink = {"test": "datum.text == 'FAIL'", "value": "#b3141d"}
    light = {"test": "datum.relative > 0.77", "value": "#ffffff"}
    layers = [
        {
            "mark": {"type": "rect", "stroke": "#ffffff", "strokeWidth": 1},
            "transform": [*calculations(series), {"filter": "isValid(datum.relative)"}],
            "encoding": {**position, "color": color, "tooltip": tooltips(unit, series)},
        },
        {
            "mark": {"type": "rect", "fill": "#ffffff", "stroke": "#b3141d", "strokeWidth": 2},
            "transform": [{"filter": "datum.text == 'FAIL'"}],
            "encoding": position,
        },
        {
            "mark": {"type": "text", "fontSize": 11},
            "encoding": {
                **position,
                "text": {"field": "text"},
                "color": {"condition": [ink, light], "value": "#16202c"},
            },
        },
    ]
    caption = f"{unit} by tile and size, {described(series)}; an empty cell was not measured"
    whole = layered(layers, 26 * len(labels) + 20)
    yield Figure("tiles", caption, columns, whole, titles_of(series), series.dtype, rows["device"].iloc[0])
