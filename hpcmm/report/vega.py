"""Shared parts of the figures in Vega-Lite: colours, marks, axes, and the class of a figure."""

import json
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from hpcmm import analysis
from hpcmm.operations import dimensions
from hpcmm.report import formats

# Hues that colour-blind readers can distinguish, each with a contrast of at least 3:1 on both backgrounds.
PALETTE = ("#3b7dc4", "#d1602c", "#2f9462", "#b0569f", "#a07f00", "#d6506b", "#2492a8", "#8a6fd1")
MARKERS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "triangle-right")
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [12, 4])
GREY = "#808080"  # of libraries other than the baseline
LINE = "currentColor"  # the text colour of the page, light or dark, on screen and on paper

CONFIG = {
    "font": "system-ui, sans-serif",
    "background": "transparent",
    "view": {"stroke": None},
    "axis": {
        **dict.fromkeys(("labelColor", "titleColor", "tickColor", "domainColor", "gridColor"), LINE),
        **{"gridOpacity": 0.13, "titleFontWeight": "normal", "labelFontSize": 12, "titleFontSize": 12},
        "labelSeparation": 6,
    },
    "legend": {
        **{"labelColor": LINE, "titleColor": LINE, "labelFontSize": 12, "labelLimit": 220, "columnPadding": 20},
        **{"orient": "bottom", "columns": 3, "layout": {"bottom": {"direction": "vertical", "anchor": "start"}}},
    },
    "header": {"labelColor": LINE, "titleColor": LINE, "labelFontSize": 12},
    "text": {"color": LINE, "fontSize": 12},
    "rule": {"color": LINE},
}

Spec = dict[str, Any]

BESIDE = "beside"  # name of a layer of texts that lines may cross; it has a halo in the colour of the paper

INTERVAL = {"type": "rule", "strokeWidth": 1.5, "opacity": 0.6}
AT_ONE = {"mark": {"type": "rule", "opacity": 0.6}, "encoding": {"y": {"datum": 1}}}


@dataclass(frozen=True)
class Figure:
    """One figure: a Vega-Lite specification and its data."""

    name: str  # one word, part of the file name
    caption: str
    columns: Mapping[str, list]  # the data, columns of equal length
    spec: Spec  # the Vega-Lite specification, without data and configuration
    shown: Mapping[str, str]  # the columns in the table of values, with their titles
    # dtype, device: the only value in the figure; empty if there are several
    dtype: str = ""
    device: str = ""
    group: str = ""  # of the figures of one group the page shows one; empty for ``name``
    machine: str = ""

    @property
    def values(self) -> list[dict[str, Any]]:
        return [dict(zip(self.columns, values, strict=True)) for values in zip(*self.columns.values(), strict=True)]


def still(figure: Figure, titles: Sequence[str]) -> str:
    """Return Vega-Lite with data for the figure at a fixed size on white, with room for a wider fallback font."""
    lines = [line for title in titles for line in textwrap.wrap(title, 90)]
    title = {"text": lines, "anchor": "start", "frame": "bounds", "fontWeight": "normal", "offset": 12}
    spec = figure.spec | {"width": 560, "padding": 24, "title": title, "data": {"name": "points"}}
    if "layer" in spec:
        spec["layer"] = [each for layer in spec["layer"] for each in (*_halo(layer), layer)]
    config = CONFIG | {"background": "white", "font": "Arial, Liberation Sans, Helvetica, sans-serif"}
    return json.dumps(spec | {"config": config, "datasets": {"points": figure.values}})


def _halo(layer: Spec) -> list[Spec]:
    if layer.get("name") != BESIDE:
        return []
    mark = layer["mark"] | {"stroke": "white", "strokeWidth": 4, "strokeJoin": "round"}
    return [layer | {"name": BESIDE + "_halo", "mark": mark}]


def rounded(values: Sequence[float], digits: int = 6) -> list[float | None]:
    """Round to six digits: more than a figure shows, in half the bytes. None if a value is not finite."""
    return [float(f"{value:.{digits}g}") if math.isfinite(value) else None for value in values]


def transposed(points: Sequence[Mapping[str, Any]]) -> dict[str, list]:
    """Return the columns of a figure from one or more points."""
    return {name: [point[name] for point in points] for name in points[0]}


def first_of_labels(rows: Iterable[Mapping]) -> list[Mapping]:
    """Return the first row of each label, in the order of the ladder."""
    first = {row["label"]: row for row in reversed([*rows])}
    return sorted(first.values(), key=lambda row: row["place"])


def lags(rows: Iterable[Mapping], *by: str) -> dict[tuple, float]:
    """Return the slowdown of each group relative to the fastest one on the same device, the fastest group first.

    The slowdown is the median over sizes. The rows of a group have the same values of ``by``.
    """
    alike, least, timed = ("operation", "dtype", "ranks", "device", *dimensions()), {}, []
    for row in rows:
        seconds = row["seconds"] if row["seconds"] > 0 else row["call_seconds"]
        group, at = analysis.values(row, by), analysis.values(row, alike)
        timed.append((group, at, seconds if seconds > 0 else math.inf))
        least[at] = min(timed[-1][-1], least.get(at, math.inf))
    ratios: dict[tuple, list[float]] = {}
    for group, at, seconds in timed:
        ratios.setdefault(group, []).append(seconds / least[at] if seconds < math.inf else math.inf)
    return dict(sorted(((group, median(each)) for group, each in ratios.items()), key=lambda each: each[::-1]))


def quantity(field: str, **more: Any) -> Spec:
    return {"field": field, "type": "quantitative", **more}


def category(field: str, **more: Any) -> Spec:
    return {"field": field, "type": "nominal", **more}


def tooltip(shown: Mapping[str, str]) -> list[Spec]:
    """Return the columns of a tooltip, by their titles."""
    return [category(field, title=title) for field, title in shown.items()]


def styled(rows: Sequence[Mapping], field: str = "label", **legend: Any) -> list[Spec]:
    """Return colour, marker and dash as channels that distinguish the labels of some rows, with one legend.

    A pair of variant and algorithm has one colour. Its tile widths share the colour and differ in marker and dash.
    The pairs that lag least behind the fastest of their device choose first. Baselines have the colour of the text,
    other libraries are grey.
    """
    pair, labels = ("variant", "algorithm"), first_of_labels(rows)
    order = list(lags(rows, *pair))
    hues: dict[tuple[str, str], str] = {}
    styles: dict[str, tuple] = {}
    chosen = sorted(labels, key=lambda row: (row["baseline"], order.index(analysis.values(row, pair))))
    for i, row in enumerate(chosen):
        hue = LINE if row["baseline"] else GREY
        if row["role"] == "rung" and not row["baseline"]:
            hue = hues.setdefault(analysis.values(row, pair), PALETTE[len(hues) % len(PALETTE)])
        styles[row["label"]] = hue, MARKERS[i % len(MARKERS)], DASHES[i % len(DASHES)]
    domain = [row["label"] for row in labels]
    ranges = zip(*(styles[label] for label in domain), strict=True)
    scales = ({"domain": domain, "range": list(values)} for values in ranges)
    return [category(field, legend={"title": None, **legend}, scale=scale) for scale in scales]


def dots(size: int, opacity: float = 1) -> Spec:
    return {"type": "point", "filled": True, "size": size, "opacity": opacity}


def layer(mark: str | Spec, where: str = "", transform: Sequence[Spec] = (), **channels: Spec) -> Spec:
    """Return a layer: a mark with its channels, for the rows of which an expression is true after a transform."""
    steps = [*transform, *([{"filter": where}] if where else [])]
    made = {"mark": {"type": mark} if isinstance(mark, str) else mark}
    return made | ({"transform": steps} if steps else {}) | {"encoding": channels}


def curves(x: Spec, y: Spec, color: Spec, shape: Spec, dash: Spec, tooltip: Sequence[Spec]) -> list[Spec]:
    return [
        layer("line", x=x, y=y, color=color, strokeDash=dash),
        layer(dots(60), x=x, y=y, color=color, shape=shape, tooltip=tooltip),
    ]


def layered(layers: Sequence[Spec], height: int) -> Spec:
    return {"width": "container", "height": height, "layer": list(layers)}


def text_width(text: str) -> int:
    """Return an upper bound of the width of a text in the figures' font, with padding [pixels]."""
    return 7 * len(text) + 12


def size_axis(rows: Sequence[Mapping]) -> Spec:
    """Return a log2 axis if all sizes are powers of two or span more than a factor of 64, else a linear one."""
    sizes = sorted({row["n"] for row in rows})
    powers = all(n.bit_count() == 1 for n in sizes)
    if sizes[0] > 0 and (powers or sizes[-1] > 64 * sizes[0]):
        names = {str(row["n"]): formats.size(row) for row in rows}
        label = f"{json.dumps(names, ensure_ascii=False)}[datum.value] || datum.value"
        most = sizes[-1].bit_length()
        ticks = sizes if powers else [2**i for i in range(most) if 2**i >= sizes[0]]
        axis = {"values": ticks, "labelExpr": label, "labelOverlap": "parity"}
        # room for half of the label of the last size, such as 16384
        return quantity("n", title="n", axis=axis, scale={"type": "log", "base": 2, "nice": False, "padding": 18})
    # a few sizes are all ticks; automatic ticks could lie between two adjacent sizes
    ticks = {"values": sizes} if len(sizes) <= 8 else {"tickCount": 8}
    scale = {"zero": False, "nice": False, "padding": 12}
    return quantity("n", title="n", scale=scale, axis={"format": "d", "labelOverlap": "greedy", **ticks})


def rate_axis(rates: Sequence[float], unit: str, zero: bool = True) -> Spec:
    """Return a logarithmic axis if the rates span more than a factor of 20, else a linear one."""
    low, high = extent(rates)
    if low > 0 and high > 20 * low:
        tens = tens_axis(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 2)
        return {"title": unit, "axis": tens, "scale": {"type": "log"}}
    return {"title": unit, "scale": {"zero": zero}}


def extent(values: Iterable[float]) -> tuple[float, float]:
    """Return the least and the largest value; NaN without one."""
    known = [each for each in values if not math.isnan(each)]
    return min(known, default=math.nan), max(known, default=math.nan)


def framed(axis: Spec, values: Sequence[float], low: Sequence[float], high: Sequence[float], top: float = 0.0) -> Spec:
    """Return an axis for values whose intervals on a noisy machine would flatten them.

    Intervals are shown up to twice the largest value, and on a logarithmic axis down to half of the smallest one; their
    mark must be clipped. ``top`` is shown in any case.
    """
    scale = dict(axis["scale"])
    (least, most), (lowest, _), (_, highest) = map(extent, (values, low, high))
    if highest > 2 * most:
        scale["domainMax"] = max(2 * most, top if top > 0 else 0.0)
    if scale.get("type") == "log" and lowest < least / 2:
        scale["domainMin"] = least / 2
    return axis | {"scale": scale}


def tens_axis(first: int, end: int) -> Spec:
    """Return an axis with ticks at the powers of ten from 10**first to 10**(end - 1)."""
    return {"values": [10.0**i for i in range(first, end)], "format": ",~r"}
