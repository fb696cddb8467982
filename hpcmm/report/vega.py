"""What all figures have in common, in the words of Vega-Lite: colours, marks, axes and the figure itself."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd

from hpcmm import analysis
from hpcmm.report import formats

# Hues that differ to colour-blind readers, each at 3:1 or more against white and near-black paper.
PALETTE = ("#3b7dc4", "#d1602c", "#2f9462", "#b0569f", "#a07f00", "#d6506b", "#2492a8", "#8a6fd1")
MARKERS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "triangle-right")
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [12, 4])
LINE = "currentColor"  # follows the page's text, light or dark, on the screen and on paper

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
        **{"labelColor": LINE, "titleColor": LINE, "labelFontSize": 12, "labelLimit": 160},
        **{"orient": "bottom", "columns": 3, "layout": {"bottom": {"direction": "vertical", "anchor": "start"}}},
    },
    "header": {"labelColor": LINE, "titleColor": LINE, "labelFontSize": 12},
    "text": {"color": LINE, "fontSize": 12},
    "rule": {"color": LINE},
}

Spec = dict[str, Any]

INTERVAL = {"type": "rule", "strokeWidth": 1.5, "opacity": 0.6}
AT_ONE = {"mark": {"type": "rule", "opacity": 0.6}, "encoding": {"y": {"datum": 1}}}


@dataclass(frozen=True)
class Figure:
    """One figure: a drawing of columns, which it may share with others.

    Parameters
    ----------
    name : str
        What it shows in a word; part of its file's name.
    caption : str
        What it shows in a sentence.
    columns : mapping of str to list
        The values; columns of a length.
    spec : dict
        Vega-Lite, without data and configuration.
    shown : mapping of str to str
        The columns that a reader of the values wants, with their titles.
    of : str
        What of it is shown elsewhere too: an element type.
    """

    name: str
    caption: str
    columns: Mapping[str, list]
    spec: Spec
    shown: Mapping[str, str]
    of: str = ""

    @property
    def values(self) -> list[dict[str, Any]]:
        return [dict(zip(self.columns, values, strict=True)) for values in zip(*self.columns.values(), strict=True)]


def still(figure: Figure, titles: Sequence[str]) -> str:
    """The figure at a fixed size on white, for papers and slides, as Vega-Lite with its data.

    Its font is as wide as the one that the drawing program carries and measures with. Where there is no such, one
    that is wider finds room in the margin.
    """
    lines = [line for title in titles for line in textwrap.wrap(title, 90)]
    title = {"text": lines, "anchor": "start", "frame": "bounds", "fontWeight": "normal", "offset": 12}
    spec = figure.spec | {"width": 560, "padding": 24, "title": title, "data": {"name": "points"}}
    config = CONFIG | {"background": "white", "font": "Arial, Liberation Sans, Helvetica, sans-serif"}
    return json.dumps(spec | {"config": config, "datasets": {"points": figure.values}})


def rounded(values: Sequence[float], digits: int = 6) -> list[float | None]:
    """With six digits: more than a figure shows, and half the bytes of all of them."""
    return [float(f"{value:.{digits}g}") if math.isfinite(value) else None for value in values]


class Style(NamedTuple):
    """How a label is drawn, by the names of Vega-Lite's channels."""

    color: str
    shape: str
    strokeDash: list[int]


def styles(points: pd.DataFrame) -> dict[str, Style]:
    """Colour, marker and dash of each label of a sweep, in all its figures; baselines have an order of their own.

    A variant has a colour with each algorithm, which its tile widths share; these differ in marker and dash.
    """
    labels = points.drop_duplicates("label").sort_values("place", kind="stable")
    found: dict[str, Style] = {}
    hues: dict[tuple[str, str], str] = {}
    for baseline, rows in labels.groupby("baseline"):
        for i, row in enumerate(analysis.row_dicts(rows)):
            who = row["variant"], row["algorithm"]
            hue = LINE if baseline else hues.setdefault(who, PALETTE[len(hues) % len(PALETTE)])
            found[row["label"]] = Style(hue, MARKERS[i % len(MARKERS)], DASHES[i % len(DASHES)])
    return found


def quantity(field: str, **more: Any) -> Spec:
    return {"field": field, "type": "quantitative", **more}


def category(field: str, **more: Any) -> Spec:
    return {"field": field, "type": "nominal", **more}


def styled(field: str, labels: Sequence[str], style: Mapping[str, Style], **legend: Any) -> list[Spec]:
    """Colour, marker and dash as channels that tell labels apart, with one legend."""
    ranges = zip(*(style[label] for label in labels), strict=True)
    scales = ({"domain": list(labels), "range": list(values)} for values in ranges)
    return [category(field, legend={"title": None, **legend}, scale=scale) for scale in scales]


def dots(size: int, opacity: float = 1) -> Spec:
    return {"type": "point", "filled": True, "size": size, "opacity": opacity}


def layered(layers: Sequence[Spec], height: int) -> Spec:
    return {"width": "container", "height": height, "layer": list(layers)}


def text_width(text: str) -> int:
    """The pixels that a text takes at most in the figures' font, with some room around it."""
    return 7 * len(text) + 12


def size_axis(points: pd.DataFrame) -> Spec:
    """A log2 axis for powers of two and what spans more than a factor of 64, a linear one for other sizes."""
    sizes = sorted({int(n) for n in points["n"]})
    powers = all(n.bit_count() == 1 for n in sizes)
    if sizes[0] > 0 and (powers or sizes[-1] > 64 * sizes[0]):
        names = {str(row["n"]): formats.size(row) for row in analysis.row_dicts(points.drop_duplicates("n"))}
        label = f"{json.dumps(names, ensure_ascii=False)}[datum.value]"
        axis = {"values": sizes, "labelExpr": label, "labelOverlap": "parity" if powers else "greedy"}
        return quantity("n", title="n", axis=axis, scale={"type": "log", "base": 2, "nice": False, "padding": 12})
    # of few sizes each is a tick: between two neighbours there is none
    ticks = {"values": sizes} if len(sizes) <= 8 else {"tickCount": 8}
    scale = {"zero": False, "nice": False, "padding": 12}
    return quantity("n", title="n", scale=scale, axis={"format": "d", "labelOverlap": "greedy", **ticks})


def ranks_axis(ranks: Sequence[int]) -> Spec:
    """A log2 axis with the ranks that there are, from the first to the last."""
    scale = {"type": "log", "base": 2, "nice": False, "padding": 12}
    return quantity("ranks", title="ranks", axis={"values": sorted(set(ranks)), "format": "d"}, scale=scale)


def rate_axis(rates: pd.Series, unit: str, zero: bool = True) -> Spec:
    """A logarithmic axis once the rates span more than a factor of 20, else a linear one."""
    if rates.min() > 0 and rates.max() > 20 * rates.min():
        tens = tens_axis(math.floor(math.log10(rates.min())), math.ceil(math.log10(rates.max())) + 2)
        return {"title": unit, "axis": tens, "scale": {"type": "log"}}
    return {"title": unit, "scale": {"zero": zero}}


def tens_axis(first: int, end: int) -> Spec:
    """Powers of ten from the first on."""
    return {"values": [10.0**i for i in range(first, end)], "format": ",~r"}
