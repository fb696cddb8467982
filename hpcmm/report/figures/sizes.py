"""Rates over sizes and shapes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import pandas as pd

from hpcmm import analysis
from hpcmm.analysis import Series
from hpcmm.operations import dimensions
from hpcmm.report import formats
from hpcmm.report.figures.points import calculations, columns_of, described, titles_of, tooltips
from hpcmm.report.vega import (
    INTERVAL,
    LINE,
    Figure,
    Spec,
    Style,
    category,
    distinct,
    dots,
    framed,
    layered,
    quantity,
    rate_axis,
    size_axis,
    styled,
)

LINES = 7  # of rungs in a figure; more cannot be distinguished


def rate_against_size(series: Series, style: Mapping[str, Style], height: int = 340) -> Iterator[Figure]:
    """Draw GFLOP/s or GB/s of the kernel alone with 95 % intervals, the baselines and the hardware limits.

    Baselines are thick dashed lines in the colour of the text, above the others. Of many rungs the fastest are shown.
    Nothing is drawn for one or two sizes, which do not make a curve.
    """
    rates = formats.rate_unit_of(series.points)
    column, unit = rates.column, rates.name
    known = series.points[series.points[column].notna()]
    known, which = formats.at_sizes(known, 128)
    known, among = _fastest(known)
    multiples = _multiples(known)
    if multiples:  # the baseline, far above, would flatten the steps at the multiples
        known = known[known["baseline"] == 0]
    one_number = formats.size_is_one_number(known)
    if len(set(analysis.shapes(known))) < 3:
        return
    known = known.assign(low_known=known[column + "_low"].notna())
    labels = known.sort_values("place", kind="stable")["label"].unique()
    style = distinct(known, style)
    color, shape, dash = styled("label", labels, style, symbolOpacity=1, symbolSize=70, symbolStrokeWidth=0)
    axis = rate_axis(known[column] / rates.scale, unit, zero=not multiples)
    limit = (known[column] / known["fraction"]).max()
    axis = framed(axis, *(known[column + end] / rates.scale for end in ("", "_low", "_high")), limit / rates.scale)
    rate, low, high = quantity("rate", **axis), quantity("low", **axis), {"field": "high"}
    layers: list[Spec] = []
    if one_number:
        position = {"x": size_axis(known), "y": rate}
        ends = {"x": position["x"], "y": low, "y2": high}
        layers += _multiple_layers(multiples, position["x"]) if multiples else _limit_layers(known, position["x"], axis)
        # the library last: lines of rungs that are as fast must not hide it
        for baseline, own in ((0, {"strokeWidth": 1.75}), (1, {"strokeWidth": 3, "strokeDash": [7, 4]})):
            if (known["baseline"] == baseline).any():
                encoding = {**position, "color": color} | ({} if baseline else {"strokeDash": dash})
                layers.append({
                    "mark": {"type": "line"} | own,
                    "transform": [{"filter": f"datum.baseline == {baseline}"}],
                    "encoding": encoding,
                })  # fmt: skip
    else:
        # Shapes have no order for a line, and long names: one row each.
        shapes = formats.sizes(analysis.sizes(known))
        y = category("size", title=None, sort=shapes, axis={"grid": True})
        position = {"x": rate | {"axis": axis.get("axis", {}) | {"labelBound": True}}, "y": y}
        ends, height = {"x": low, "x2": high, "y": y}, max(120, 44 * len(shapes))
    marker = 60 if known["n"].nunique() <= 24 else 12  # a dense sweep's markers would hide its lines
    if known["low_known"].any():  # Vega warns about the extent of an empty layer
        enough = [{"filter": "isValid(datum.low)"}]
        interval = {"mark": INTERVAL | {"clip": True}, "transform": enough, "encoding": ends | {"color": color}}
        layers.append(interval | {"name": "needs_low"})
    layers.append({
        "mark": dots(marker),
        "transform": calculations(series),
        "encoding": {**position, "color": color, "shape": shape, "tooltip": tooltips(unit, series)},
    })  # fmt: skip
    caption = f"{unit} of the kernel alone by {'size' if one_number else 'shape'}, {described(series)}{among}"
    if multiples:
        widths = ", ".join(str(tile) for tile in sorted(set(multiples.values())))
        caption += f", without the baseline; vertical lines at the multiples of the tiles ({widths})"
    devices = known["device"].unique()
    yield Figure(
        "rate", caption + which, columns_of(known, series), layered(layers, height), titles_of(series), series.dtype,
        devices[0] if len(devices) == 1 else "",
    )  # fmt: skip


def _fastest(known: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Return the rows of the libraries and of at most ``LINES`` rungs, and a text about the rungs left out.

    These are the rungs that lag least behind the fastest of their device, in the median over sizes.
    """
    rungs = known[known["role"] == "rung"]
    if rungs["label"].nunique() <= LINES:
        return known, ""
    size = [rungs[name] for name in ("device", *dimensions())]
    lag = (rungs["seconds"] / rungs.groupby(size)["seconds"].transform("min")).groupby(rungs["label"]).median()
    kept = lag.nsmallest(LINES, keep="first").index
    among = f"; the {len(kept)} fastest of {len(lag)} rungs, the table has all"
    return known[(known["role"] != "rung") | known["label"].isin(kept)], among


def _limit_layers(known: pd.DataFrame, x: Spec, axis: Spec) -> list[Spec]:
    """Draw the hardware limit of each arithmetic as a dotted line with its name."""
    limited = known[known["fraction"].notna()]  # the CPU, whose limits are unknown, may have larger sizes
    if limited.empty:
        return []
    # a limit is named at its largest size; one that holds at smaller sizes only would be a line without a name
    largest = limited["n"].max()
    named = json.dumps(sorted(set(limited["ceiling"][limited["n"] == largest])), ensure_ascii=False)
    median = [
        {"filter": f"isValid(datum.fraction) && indexof({named}, datum.ceiling) >= 0"},
        {"calculate": "datum.rate / datum.fraction", "as": "limit"},
        {"aggregate": [{"op": "median", "field": "limit", "as": "limit"}], "groupby": ["n", "size", "ceiling"]},
    ]
    y = quantity("limit", **axis)
    tooltip = [{"field": "ceiling", "title": "limit"}, {"field": "size"}, quantity("limit", format=",.3r")]
    last = {"filter": f"datum.n == {int(largest)}"}
    return [
        {
            "name": "needs_fraction_1",  # the page leaves a layer out if the chosen rows lack what it needs
            "mark": {"type": "line", "strokeDash": [1, 3], "strokeWidth": 2, "color": LINE, "point": False},
            "transform": median,
            "encoding": {"x": x, "y": y, "detail": {"field": "ceiling"}, "tooltip": tooltip},
        },
        {
            "name": "needs_fraction_2",
            "mark": {"type": "text", "align": "right", "dy": -8, "fontSize": 11},
            "transform": [*median, last, {"calculate": "'limit of ' + datum.ceiling", "as": "name"}],
            "encoding": {"x": x, "y": y, "text": {"field": "name"}},
        },
    ]


def _multiples(known: pd.DataFrame) -> dict[int, int]:
    """Map sizes that are multiples of a tile to the widest such tile; empty unless the sweep has every size."""
    if (
        not (known["tile"] > 0).any()
        or len(sizes := sorted(set(known["n"]))) < 24
        or sizes[-1] - sizes[0] >= len(sizes)
    ):
        return {}
    tiles = sorted({int(tile) for tile in known.loc[known["tile"] > 0, "tile"]})
    return {int(n): max(t for t in tiles if n % t == 0) for n in sizes if any(n % t == 0 for t in tiles)}


def _multiple_layers(multiples: Mapping[int, int], x: Spec) -> list[Spec]:
    widest = max(multiples.values())
    values = [{"n": n, "width": 2 if tile == widest else 1} for n, tile in multiples.items()]
    mark, width = {"type": "rule", "opacity": 0.25}, quantity("width", scale=None, legend=None)
    return [{"data": {"values": values}, "mark": mark, "encoding": {"x": x, "strokeWidth": width}}]
