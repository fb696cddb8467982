"""The figures of the report, as Vega-Lite specifications over columns of values."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd

from hpcmm import analysis
from hpcmm.analysis import Series
from hpcmm.model import PHASES
from hpcmm.operations import OPERATIONS
from hpcmm.report import tables
from hpcmm.scaling import BASE
from hpcmm.store import DIMENSIONS

# Hues that differ to colour-blind readers, each at 3:1 or more against white and near-black paper.
PALETTE = ("#3b7dc4", "#d1602c", "#2f9462", "#b0569f", "#a07f00", "#d6506b", "#2492a8", "#8a6fd1")
MARKERS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "triangle-right")
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [12, 4])
LINE = "currentColor"  # follows the page's text, light or dark, on the screen and on paper
HEAT = ("#eef3f9", "#1f5fa8")  # from the slowest to the fastest

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
RATIO = "isValid(datum.ratio) ? format(datum.ratio, '.3r') + '×' : ''"
SECONDS = "isValid(datum.seconds) ? format(datum.seconds, '.3s') + 's' : ''"

Spec = dict[str, Any]


class Style(NamedTuple):
    """How a label is drawn, by the names of Vega-Lite's channels."""

    color: str
    shape: str
    strokeDash: list[int]


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
    def records(self) -> list[dict[str, Any]]:
        return [dict(zip(self.columns, values, strict=True)) for values in zip(*self.columns.values(), strict=True)]


def of_series(series: Series, style: Mapping[str, Style], with_calls: bool = True) -> list[Figure]:
    """The figures of one series: its rates, and whatever else its points are made for."""
    figures = [rate_against_size(series, style), *ladders(series), tile_map(series), pitch_gain(series, style)]
    return [figure for figure in [*figures, *(calls(series) if with_calls else [])] if figure]


def columns_of(rows: pd.DataFrame, series: Series) -> dict[str, list]:
    """What all figures of a series draw, with six digits: more than a figure shows, and half the bytes."""
    column, _ = tables.RATES[OPERATIONS[series.operation].metric]
    records = analysis.records(rows)
    return {
        "label": list(rows["label"]),
        "n": [int(n) for n in rows["n"]],
        "size": [tables.size(row) for row in records],
        "rate": _rounded(rows[column] / 1e9),
        "low": _rounded(rows[column + "_low"] / 1e9),
        "high": _rounded(rows[column + "_high"] / 1e9),
        "seconds": _rounded(rows["seconds"]),
        "ratio": _rounded(rows["ratio"]),
        "baseline": [int(each) for each in rows["baseline"]],
        "fraction": _rounded(rows["fraction"]),
    }


def _rounded(values: Sequence[float]) -> list[float | None]:
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values]


def _tooltip(unit: str) -> list[Spec]:
    return [
        {"field": "label", "title": "variant"},
        {"field": "size", "title": "size"},
        {"field": "rate", "type": "quantitative", "title": unit, "format": ",.3r"},
        {"field": "interval", "title": "95 % interval"},
        {"field": "time", "title": "time"},
        {"field": "times", "title": "speed over baseline"},
        {"field": "part", "title": "of limit"},
    ]


def _calculations() -> list[Spec]:
    ends = "format(datum.low, ',.3r') + ' to ' + format(datum.high, ',.3r')"
    return [
        {"calculate": f"isValid(datum.low) ? {ends} : 'too few repetitions'", "as": "interval"},
        {"calculate": SECONDS, "as": "time"},
        {"calculate": f"datum.baseline ? 'baseline' : {RATIO}", "as": "times"},
        {"calculate": "isValid(datum.fraction) ? format(datum.fraction, '.0%') : 'not known'", "as": "part"},
    ]


def _shown(unit: str, series: Series) -> dict[str, str]:
    limit = {"fraction": "Of limit"} if series.points["fraction"].notna().any() else {}
    size = "n" if tables.size_is_one_number(series.points) else "m × n × k"
    return {"label": "Variant", "size": size, "rate": unit, "low": "from", "high": "to", "seconds": "Seconds"} | {
        "ratio": "Ratio to baseline",
        **limit,
    }


def rate_against_size(series: Series, style: Mapping[str, Style]) -> Figure | None:
    """GFLOP/s (or GB/s) of the kernel alone, its 95 % interval, the baselines and the hardware's limit.

    The baselines are thick lines in the colour of the text. None if no point has a number.
    """
    column, unit = tables.RATES[OPERATIONS[series.operation].metric]
    known = series.points[series.points[column].notna()]
    known, which = tables.at_sizes(known, 128)
    multiples = _multiples(known)
    if multiples:  # the baseline, far above, would flatten what there is to see
        known = known[known["baseline"] == 0]
    if known.empty or (tables.size_is_one_number(known) and known["n"].nunique() == 1 and len(known) > 3):
        return None
    labels = known.sort_values("place", kind="stable")["label"].unique()
    rate = _rate_axis(known[column] / 1e9, unit, zero=not multiples)
    legend = {"title": None, "symbolOpacity": 1, "symbolSize": 70, "symbolStrokeWidth": 0}

    def styled(channel: str) -> Spec:
        return {"field": "label", "type": "nominal", "legend": legend, "scale": _scale(labels, channel, style)}

    low, _ = ({"field": end, "type": "quantitative"} for end in ("low", "high"))
    one_number = tables.size_is_one_number(known)
    if one_number:
        x, y = _size_axis(known), {"field": "rate", "type": "quantitative"} | rate
        interval, height = {"x": x, "y": low | rate, "y2": {"field": "high"}}, 340
    else:
        # Shapes have no order to draw a line along, and long names: one row each.
        shapes = [tables.size(row) for row in analysis.records(known.drop_duplicates(list(DIMENSIONS)))]
        y = {"field": "size", "type": "nominal", "title": None, "sort": shapes, "axis": {"grid": True}}
        x = {"field": "rate", "type": "quantitative"} | rate
        x |= {"axis": rate.get("axis", {}) | {"labelBound": True}}
        interval, height = {"x": low | rate, "x2": {"field": "high"}, "y": y}, max(120, 44 * len(shapes))
    position, color = {"x": x, "y": y}, styled("color")
    marker = 60 if known["n"].nunique() <= 24 else 12  # a dense sweep's markers would hide its lines
    layers: list[Spec] = []
    if one_number:
        lines = {"encoding": {**position, "color": color, "strokeDash": styled("strokeDash")}}
        for baseline, mark in ((1, {"strokeWidth": 3.5, "opacity": 0.55}), (0, {"strokeWidth": 1.75})):
            if (known["baseline"] == baseline).any():
                only = [{"filter": f"datum.baseline == {baseline}"}]
                layers.append({"mark": {"type": "line"} | mark, "transform": only} | lines)
        above = _multiple_layers(multiples, x) if multiples else _limit_layers(known, x, rate)
        layers = above + layers
    layers.append({
        "mark": {"type": "rule", "strokeWidth": 1.5, "opacity": 0.6},
        "transform": [{"filter": "isValid(datum.low)"}],
        "encoding": interval | {"color": color},
    })  # fmt: skip
    layers.append({
        "mark": {"type": "point", "filled": True, "size": marker, "opacity": 1},
        "transform": _calculations(),
        "encoding": {**position, "color": color, "shape": styled("shape"), "tooltip": _tooltip(unit)},
    })  # fmt: skip
    caption = f"{unit} of the kernel alone against {'size' if one_number else 'shape'}"
    if multiples:
        widths = ", ".join(str(tile) for tile in sorted(set(multiples.values())))
        caption += f", without the baseline; vertical lines at the multiples of the tiles ({widths})"
    return Figure("rate", caption + which, columns_of(known, series), _layered(layers, height), _shown(unit, series))


def _layered(layers: Sequence[Spec], height: int) -> Spec:
    return {"width": "container", "height": height, "layer": list(layers)}


def styles(points: pd.DataFrame) -> dict[str, Style]:
    """Colour, marker and dash of each label of a sweep, in all its figures; baselines have an order of their own.

    A variant has a colour with each algorithm, which its tile widths share; these differ in marker and dash.
    """
    labels = points.drop_duplicates("label").sort_values("place", kind="stable")
    found: dict[str, Style] = {}
    hues: dict[tuple[str, str], str] = {}
    seen = {True: 0, False: 0}
    for row in analysis.records(labels):
        baseline = bool(row["baseline"])
        i = seen[baseline]
        seen[baseline] += 1
        hue = (
            LINE if baseline else hues.setdefault((row["variant"], row["algorithm"]), PALETTE[len(hues) % len(PALETTE)])
        )
        found[row["label"]] = Style(hue, MARKERS[i % len(MARKERS)], DASHES[i % len(DASHES)])
    return found


def _scale(labels: Sequence[str], channel: str, style: Mapping[str, Style]) -> Spec:
    """What a channel shows of each label."""
    return {"domain": list(labels), "range": [getattr(style[label], channel) for label in labels]}


def _pixels(text: str) -> int:
    """The width that a text takes at most in the figures' font, with some room around it."""
    return 7 * len(text) + 12


def _size_axis(points: pd.DataFrame) -> Spec:
    """A log2 axis for powers of two and what spans more than a factor of 64, a linear one for other sizes."""
    sizes = sorted({int(n) for n in points["n"]})
    axis = {"field": "n", "type": "quantitative", "title": "n"}
    powers = all(n.bit_count() == 1 for n in sizes)
    if sizes[0] > 0 and (powers or sizes[-1] > 64 * sizes[0]):
        names = {str(row["n"]): tables.size(row) for row in analysis.records(points.drop_duplicates("n"))}
        label = f"{json.dumps(names, ensure_ascii=False)}[datum.value]"
        axis["axis"] = {"values": sizes, "labelExpr": label, "labelOverlap": "parity" if powers else "greedy"}
        return axis | {"scale": {"type": "log", "base": 2, "nice": False, "padding": 12}}
    return axis | {
        "scale": {"zero": False, "nice": False, "padding": 12},
        # of few sizes each is a tick: between two neighbours there is none
        "axis": {"format": "d", "labelOverlap": "greedy"}
        | ({"values": sizes} if len(sizes) <= 8 else {"tickCount": 8}),
    }


def _ranks_axis(ranks: Sequence[int]) -> Spec:
    """A log2 axis with the ranks that there are, from the first to the last."""
    axis = {"values": sorted(set(ranks)), "format": "d"}
    scale = {"type": "log", "base": 2, "nice": False, "padding": 12}
    return {"field": "ranks", "type": "quantitative", "title": "ranks", "axis": axis, "scale": scale}


def _rate_axis(rates: pd.Series, unit: str, zero: bool = True) -> Spec:
    """A logarithmic axis once the rates span more than a factor of 20, else a linear one."""
    if rates.min() > 0 and rates.max() > 20 * rates.min():
        tens = range(math.floor(math.log10(rates.min())), math.ceil(math.log10(rates.max())) + 2)
        axis = {"values": [10.0**i for i in tens], "format": ",~r"}
        return {"title": unit, "axis": axis, "scale": {"type": "log"}}
    return {"title": unit, "scale": {"zero": zero}}


def _limit_layers(known: pd.DataFrame, x: Spec, rate: Spec) -> list[Spec]:
    """The hardware's limit as a dotted line with its name at the end."""
    if not known["fraction"].notna().any():
        return []
    median = [
        {"filter": "isValid(datum.fraction)"},
        {"calculate": "datum.rate / datum.fraction", "as": "limit"},
        {"aggregate": [{"op": "median", "field": "limit", "as": "limit"}], "groupby": ["n", "size"]},
    ]
    y = {"field": "limit", "type": "quantitative"} | rate
    title = {"field": "limit", "type": "quantitative", "title": "hardware limit", "format": ",.3r"}
    last = {"filter": f"datum.n == {int(known['n'].max())}"}
    return [
        {
            "mark": {"type": "line", "strokeDash": [1, 3], "strokeWidth": 2, "color": LINE, "point": False},
            "transform": median,
            "encoding": {"x": x, "y": y, "tooltip": [{"field": "size"}, title]},
        },
        {
            "mark": {"type": "text", "align": "right", "dy": -8, "text": "hardware limit"},
            "transform": [*median, last],
            "encoding": {"x": x, "y": y},
        },
    ]


def _multiples(known: pd.DataFrame) -> dict[int, int]:
    """In a sweep over each size, the sizes that are multiples of a tile, and the widest such tile."""
    if "tile" not in known or len(sizes := sorted(set(known["n"]))) < 24 or sizes[-1] - sizes[0] >= len(sizes):
        return {}
    tiles = sorted({int(tile) for tile in known["tile"].dropna()})
    return {int(n): max(t for t in tiles if n % t == 0) for n in sizes if any(n % t == 0 for t in tiles)}


def _multiple_layers(multiples: Mapping[int, int], x: Spec) -> list[Spec]:
    widest = max(multiples.values())
    values = [{"n": n, "width": 2 if tile == widest else 1} for n, tile in multiples.items()]
    width = {"field": "width", "type": "quantitative", "scale": None, "legend": None}
    mark = {"type": "rule", "opacity": 0.25}
    return [{"data": {"values": values}, "mark": mark, "encoding": {"x": x, "strokeWidth": width}}]


def _name(device: str) -> str:
    return {"cpu": "CPU", "cuda": "GPU"}.get(device, device)


def ladders(series: Series) -> Iterator[Figure]:
    """One bar a rung at the largest size, with what it gains over the one before and over the first."""
    metric = OPERATIONS[series.operation].metric
    column, unit = tables.RATES[metric]
    for device, rows in series.points.groupby("device", sort=False):
        rows = rows[rows[metric] == rows[metric].max()]
        rows = rows[(rows[list(DIMENSIONS)] == rows[list(DIMENSIONS)].iloc[0]).all(axis=1)]
        # of several tiles the fastest is the rung; one that is wrong stands for itself if all are
        rows = rows.sort_values("seconds", kind="stable").drop_duplicates("variant")
        rows = analysis.ladder(rows)
        if (rows["baseline"] == 0).sum() < 3 or rows["seconds"].isna().all():
            continue
        gains = []
        for row in analysis.records(rows):
            part = tables.percent(row["ratio"])
            texts = (
                ["baseline"] if row["baseline"] else [tables.times(row["step"]), tables.times(row["cumulative"]), part]
            )
            gains.append(", ".join(filter(None, texts)) if row["result"] == "PASS" else row["result"])
        name, baseline = _name(device), OPERATIONS[series.operation].baseline(device).name
        columns = columns_of(rows, series) | {"gain": gains}
        order = list(rows["label"])
        y = {"field": "label", "type": "nominal", "sort": order, "title": None, "axis": {"labelLimit": 200}}
        # leaves room for the words behind each bar; beyond the axis they would take the figure's width
        ends = rows[[column, column + "_high"]].max(axis=1).fillna(0) / 1e9
        needed = (
            f"{end:.6g} * width / max(width - {_pixels(gain)}, 40)" for end, gain in zip(ends, gains, strict=True)
        )
        scale = {"domainMin": 0, "domainMax": {"expr": f"max({', '.join(needed)})"}, "nice": False}
        x = {"field": "rate", "type": "quantitative", "title": unit, "scale": scale, "axis": {"labelBound": True}}
        color = {"condition": {"test": "datum.baseline == 1", "value": LINE}, "value": PALETTE[0]}
        opacity = {"condition": {"test": "datum.baseline == 1", "value": 0.45}, "value": 1}
        tooltip = [*_tooltip(unit), {"field": "gain", "title": "gain"}]
        end = {"calculate": "isValid(datum.high) ? datum.high : isValid(datum.rate) ? datum.rate : 0", "as": "end"}
        layers = [
            {
                "mark": {"type": "bar", "height": {"band": 0.7}},
                "transform": _calculations(),
                "encoding": {"x": x, "y": y, "color": color, "opacity": opacity, "tooltip": tooltip},
            },
            {
                "mark": {"type": "rule", "strokeWidth": 1.5},
                "transform": [{"filter": "isValid(datum.low)"}],
                "encoding": {"x": {"field": "low", "type": "quantitative"}, "x2": {"field": "high"}, "y": y},
            },
            {
                "mark": {"type": "text", "align": "left", "dx": 5},
                "transform": [end],
                "encoding": {"x": {"field": "end", "type": "quantitative"}, "y": y, "text": {"field": "gain"}},
            },
        ]
        size = tables.size(rows.iloc[0])
        caption = f"The ladder of the {name} at {size}: gain over the rung before, over the first, part of {baseline}"
        shown = _shown(unit, series) | {"gain": "Gain"}
        yield Figure(f"ladder-{device}", caption, columns, _layered(layers, 24 * len(rows) + 8), shown)


def tile_map(series: Series) -> Figure | None:
    """Tile by size: the rate in each cell, its colour beside the fastest at that size; wrong cells marked."""
    points = series.points
    if "tile" not in points:
        return None
    rows = points[points["tile"].notna()]
    sizes = rows.drop_duplicates(list(DIMENSIONS))
    if rows.groupby("variant")["tile"].nunique().max() in (0, 1) or not 1 <= len(sizes) <= 16 or rows.empty:
        return None
    _, unit = tables.RATES[OPERATIONS[series.operation].metric]
    columns = columns_of(rows, series)
    best = pd.Series(columns["rate"], dtype=float).groupby(pd.Series(columns["size"])).transform("max")
    wrong = rows["result"] == "FAIL"
    columns |= {
        "beside": _rounded(pd.Series(columns["rate"], dtype=float) / best),
        "text": [
            "FAIL" if bad else tables.number(rate or math.nan) for bad, rate in zip(wrong, columns["rate"], strict=True)
        ],
    }
    labels = list(rows.sort_values("place")["label"].unique())
    position = {
        "x": {"field": "size", "type": "nominal", "sort": [tables.size(row) for row in analysis.records(sizes)]}
        | {"title": "n", "axis": {"labelAngle": 0, "orient": "top", "domain": False, "ticks": False}},
        "y": {"field": "label", "type": "nominal", "sort": labels, "title": None}
        | {"axis": {"domain": False, "ticks": False, "labelLimit": 200}},
    }
    scale = {"domain": [0, 1], "range": list(HEAT)}
    color = {"field": "beside", "type": "quantitative", "scale": scale}
    color |= {"legend": {"title": "beside the fastest", "titleLimit": 300, "format": ".0%", "gradientLength": 160}}
    ink = {"test": "datum.text == 'FAIL'", "value": "#b3141d"}
    light = {"test": "datum.beside > 0.55", "value": "#ffffff"}
    layers = [
        {
            "mark": {"type": "rect", "stroke": "#ffffff", "strokeWidth": 1},
            "transform": [*_calculations(), {"filter": "isValid(datum.beside)"}],
            "encoding": {**position, "color": color, "tooltip": _tooltip(unit)},
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
    caption = f"{unit} by tile and size; an empty place was not measured"
    return Figure("tiles", caption, columns, _layered(layers, 26 * len(labels) + 20), _shown(unit, series))


def pitch_gain(series: Series, style: Mapping[str, Style]) -> Figure | None:
    """The speed of padded rows over the same kernel without, at each size and tile."""
    pairs = analysis.pitch_pairs(series.points)
    if pairs["n"].nunique() < 2 or not tables.size_is_one_number(pairs):
        return None
    columns = {
        "label": list(pairs["label"]),
        "n": [int(n) for n in pairs["n"]],
        **{name: _rounded(pairs[name]) for name in ("gain", "gain_low", "gain_high")},
    }
    axis = {"title": "speed with over without pitch", "scale": {"zero": False}}
    y = {"field": "gain", "type": "quantitative"} | axis
    x = _size_axis(pairs)
    labels = pairs.sort_values("place", kind="stable")["label"].unique()
    hues, shapes, dashes = (
        {"field": "label", "type": "nominal", "legend": {"title": None, "symbolOpacity": 1}}
        | {"scale": _scale(labels, channel, style)}
        for channel in Style._fields
    )
    tooltip = [{"field": "label", "title": "variant"}, {"field": "n"}] + [
        {"field": name, "type": "quantitative", "format": ".3r", "title": title}
        for name, title in (("gain", "gain"), ("gain_low", "from"), ("gain_high", "to"))
    ]
    ends = {"x": x, "y": {"field": "gain_low", "type": "quantitative"} | axis, "y2": {"field": "gain_high"}}
    layers = [
        {"mark": {"type": "rule", "opacity": 0.6}, "encoding": {"y": {"datum": 1}}},
        {"mark": {"type": "line"}, "encoding": {"x": x, "y": y, "color": hues, "strokeDash": dashes}},
        {"mark": {"type": "rule", "strokeWidth": 1.5, "opacity": 0.6}, "encoding": ends | {"color": hues}},
        {
            "mark": {"type": "point", "filled": True, "size": 60, "opacity": 1},
            "encoding": {"x": x, "y": y, "color": hues, "shape": shapes, "tooltip": tooltip},
        },
    ]
    caption = "What pitched rows gain in the kernel alone"
    shown = {"label": "Variant", "n": "n", "gain": "Gain", "gain_low": "from", "gain_high": "to"}
    return Figure("pitch", caption, columns, _layered(layers, 260), shown)


def calls(series: Series) -> Iterator[Figure]:
    """The whole call by phases: of each label at the largest size, and of the fastest over the sizes."""
    frame = analysis.phases(series.points)
    if frame.empty:
        return
    metric = OPERATIONS[series.operation].metric
    largest = frame[frame[metric] == frame[metric].max()]
    largest = largest[(largest[list(DIMENSIONS)] == largest[list(DIMENSIONS)].iloc[0]).all(axis=1)]
    at = tables.size(largest.iloc[0])
    for device, rows in largest.groupby("device", sort=False):
        rows = rows.sort_values("place")
        if device == "cpu" and series.ranks == 1:
            continue  # nothing moves
        name = _name(device)
        yield _stacked(
            f"calls-{device}",
            f"The whole call on the {name} by phases at {at}",
            rows,
            list(rows["label"]),
            share=False,
        )
    sizes = tables.spread(frame.drop_duplicates(list(DIMENSIONS)), 8)
    ours = largest[(largest["baseline"] == 0) & (largest["device"] == "cuda")]
    if len(sizes) < 3 or ours.empty:
        return
    row = ours.loc[ours["call_seconds"].idxmin()]
    rows = frame[frame["rung"] == row["rung"]].merge(sizes[list(DIMENSIONS)], on=list(DIMENSIONS))
    memory = rows["memory"].where(rows["memory"] == "", ", " + rows["memory"])
    names = [tables.size(each) + kind for each, kind in zip(analysis.records(rows), memory, strict=True)]
    caption = f"Shares of the phases in the whole call of {row['rung']} over the sizes"
    yield _stacked("shares", caption, rows, names, share=True)


def _stacked(name: str, caption: str, rows: pd.DataFrame, names: Sequence[str], share: bool) -> Figure:
    columns: dict[str, list] = {"name": [], "phase": [], "start": [], "end": [], "seconds": [], "share": []}
    unit, scale = ("share of the call", 1.0) if share else tables.unit_of(rows["call_seconds"].max())
    for label, row in zip(names, analysis.records(rows), strict=True):
        start = 0.0
        for phase in PHASES[:-1]:
            seconds = row["call_" + phase]
            if not math.isfinite(seconds):
                continue
            length = row["share_" + phase] if share else seconds * scale
            for column, value in (("start", start), ("end", start + length), ("seconds", seconds)):
                columns[column].append(float(f"{value:.5g}"))
            columns["name"].append(label)
            columns["phase"].append(phase)
            columns["share"].append(float(f"{row['share_' + phase]:.4g}"))
            start += length
    present = [phase for phase in PHASES if phase in columns["phase"]]
    hues = [PALETTE[PHASES.index(phase) % len(PALETTE)] for phase in present]
    y = {"field": "name", "type": "nominal", "sort": list(names), "title": None, "axis": {"labelLimit": 240}}
    axis = {"format": ".0%" if share else ",~r", "labelBound": True}
    x = {"field": "start", "type": "quantitative", "title": unit, "axis": axis, "stack": None}
    color = {"field": "phase", "type": "nominal", "scale": {"domain": present, "range": hues}}
    color |= {"legend": {"title": None}}
    longest = max(columns["end"])
    tooltip = [{"field": "name", "title": "of"}, {"field": "phase"}, {"field": "time"}]
    tooltip.append({"field": "share", "type": "quantitative", "format": ".1%"})
    layers = [
        {
            "mark": {"type": "bar", "stroke": "#ffffff", "strokeWidth": 1, "height": {"band": 0.75}},
            "transform": [{"calculate": SECONDS, "as": "time"}],
            "encoding": {"x": x, "x2": {"field": "end"}, "y": y, "color": color, "tooltip": tooltip},
        },
        {
            "mark": {"type": "text", "color": "#ffffff", "fontSize": 11, "fontWeight": "bold"},
            "transform": [
                # where the word fits in
                {"filter": f"(datum.end - datum.start) * width / {longest:.6g} > 8 * length(datum.phase)"},
                {"calculate": "(datum.start + datum.end) / 2", "as": "middle"},
            ],
            "encoding": {"x": {"field": "middle", "type": "quantitative"}, "y": y, "text": {"field": "phase"}},
        },
    ]
    shown = {"name": "Of", "phase": "Phase", "seconds": "Seconds", "share": "Share"}
    return Figure(name, caption, columns, _layered(layers, 26 * len(set(names)) + 8), shown)


def rooflines(frame: pd.DataFrame) -> Iterator[Figure]:
    """Every rung's highest rate against its arithmetic intensity, under what the hardware and this run reached."""
    roofs = list(analysis.rooflines(frame))
    machines = list(dict.fromkeys(roof.machine for roof in roofs))
    for roof in roofs:
        rows = roof.rungs
        intensity = rows["flops"] / rows["bytes"]
        columns = {
            "label": list(rows["label"]),
            "operation": list(rows["operation"]),
            "size": [tables.size(row) for row in analysis.records(rows)],
            "intensity": _rounded(intensity),
            "rate": _rounded(rows["flops_per_second"] / 1e9),
            "fraction": _rounded(rows["fraction"]),
        }
        first, last = min(intensity.min() / 2, 0.05), max(intensity.max() * 2, 10)
        lines = []
        for name, flops, nbytes in roof.ceilings:
            knee = flops / nbytes
            stops = [first, *([knee] if first < knee < last else []), last]
            lines += [{"x": x, "y": min(flops, nbytes * x) / 1e9, "of": name} for x in stops]
        tens = {"values": [10.0**i for i in range(-3, 9)], "format": ",~r"}
        log = {"type": "quantitative", "scale": {"type": "log", "nice": False, "padding": 8}, "axis": tens}
        x, y = log | {"title": "operations a byte of compulsory traffic"}, log | {"title": "GFLOP/s"}
        operations = list(dict.fromkeys(rows["operation"]))
        style = {
            "color": {"domain": operations, "range": list(PALETTE[: len(operations)])},
            "shape": {"domain": operations, "range": list(MARKERS[: len(operations)])},
        }
        dashes = {"domain": [name for name, *_ in roof.ceilings], "range": [[1, 0], [6, 3]]}
        tooltip = [{"field": field} for field in ("label", "operation", "size")]
        tooltip += [{"field": "rate", "type": "quantitative", "title": "GFLOP/s", "format": ",.3r"}]
        tooltip += [{"field": "fraction", "type": "quantitative", "title": "of limit", "format": ".0%"}]
        points = {
            channel: {"field": "operation", "type": "nominal", "scale": scale, "legend": {"title": None}}
            for channel, scale in style.items()
        }
        on_line = {"x": {"field": "x"} | x, "y": {"field": "y"} | y}
        layers = [
            {
                "data": {"values": lines},
                "mark": {"type": "line", "color": LINE, "strokeWidth": 2},
                "encoding": on_line
                | {"strokeDash": {"field": "of", "type": "nominal", "scale": dashes, "legend": {"title": None}}},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 70, "opacity": 0.85},
                "encoding": {"x": {"field": "intensity"} | x, "y": {"field": "rate"} | y, "tooltip": tooltip} | points,
            },
        ]
        caption = f"Roofline of the {_name(roof.device)} in {roof.dtype}: every rung at its fastest size"
        number = f"-{machines.index(roof.machine) + 1}" if len(machines) > 1 else ""
        if number:
            caption += f"; {roof.machine}"
        shown = {"label": "Variant", "operation": "Operation", "size": "Size", "intensity": "Operations a byte"}
        shown |= {"rate": "GFLOP/s"} | ({"fraction": "Of limit"} if rows["fraction"].notna().any() else {})
        yield Figure(f"{roof.device}-{roof.dtype}{number}", caption, columns, _layered(layers, 380), shown)


def scalings(frame: pd.DataFrame, style: Mapping[str, Style]) -> Iterator[Figure]:
    """Efficiency against ranks of one sweep; ``frame`` is of ``scaling.speedups``.

    A figure for each kind, device and type at the largest sizes: of each arithmetic the two labels that are the
    fastest on the most ranks by the kernel alone, and the two by the whole call.
    """
    for (kind, device, dtype, setting), rows in frame.groupby(["kind", "device", "dtype", "setting"], sort=False):
        work = OPERATIONS[rows["operation"].iloc[0]].metric
        last = rows[rows["ranks"] == rows["ranks"].max()]
        at = last.loc[last[work].idxmax()]
        rows = rows[(rows[list(BASE)] == at[list(BASE)]).all(axis=1)]
        last = rows[rows["ranks"] == at["ranks"]]
        best = {
            label
            for _, alike in last.groupby("arithmetic")
            for prefix in ("", "call_")
            for label in alike.dropna(subset=[prefix + "speedup"]).nsmallest(2, prefix + "seconds")["label"]
        }
        if not best:  # one rank was not timed in this way
            continue
        name = _name(device)
        what = ", ".join(filter(None, (dtype, setting)))
        shown = " of the fastest" if rows["label"].nunique() > len(best) else ""
        caption = f"{kind.capitalize()} scaling{shown} on the {name}, {what}, beside the fastest on one rank"
        yield _scaling(rows[rows["label"].isin(best)], style, caption, f"{kind}-{device}-{dtype}", dtype)


def _scaling(rows: pd.DataFrame, style: Mapping[str, Style], caption: str, name: str, dtype: str) -> Figure:
    columns: dict[str, list] = {name: [] for name in ("series", "size", "of", "ranks", "efficiency", "speedup")}
    for row in analysis.records(rows.sort_values(["place", "ranks"], kind="stable")):
        for prefix, what in (("", "kernel alone"), ("call_", "whole call")):
            if math.isfinite(row[prefix + "efficiency"]):
                columns["series"].append(row["label"])
                columns["of"].append(what)
                columns["size"].append(tables.size(row))
                columns["ranks"].append(int(row["ranks"]))
                columns["efficiency"].append(float(f"{row[prefix + 'efficiency']:.5g}"))
                columns["speedup"].append(float(f"{row[prefix + 'speedup']:.5g}"))
    names = list(dict.fromkeys(columns["series"]))
    most = max(columns["ranks"])
    x = _ranks_axis(columns["ranks"])
    y = {"field": "efficiency", "type": "quantitative", "title": "efficiency", "axis": {"format": ".0%"}}
    color, shape = (
        {"field": "series", "type": "nominal", "legend": {"title": None}, "scale": _scale(names, channel, style)}
        for channel in ("color", "shape")
    )
    dashes = {what: dash for what, dash in (("kernel alone", [1, 0]), ("whole call", [4, 3])) if what in columns["of"]}
    dash = {"field": "of", "type": "nominal", "legend": {"title": None}}
    dash |= {"scale": {"domain": list(dashes), "range": list(dashes.values())}}
    tooltip = [{"field": field} for field in ("series", "size", "of", "ranks")]
    tooltip += [{"field": "efficiency", "type": "quantitative", "format": ".1%"}]
    tooltip += [{"field": "speedup", "type": "quantitative", "format": ".3r"}]
    layers = [
        {"mark": {"type": "rule", "opacity": 0.6}, "encoding": {"y": {"datum": 1}}},
        {"mark": {"type": "line"}, "encoding": {"x": x, "y": y, "color": color, "strokeDash": dash}},
        {
            "mark": {"type": "point", "filled": True, "size": 60, "opacity": 1},
            "encoding": {"x": x, "y": y, "color": color, "shape": shape, "tooltip": tooltip},
        },
    ]
    shown = {
        "series": "Variant",
        "size": "Size",
        "of": "Of",
        "ranks": "Ranks",
        "efficiency": "Efficiency",
        "speedup": "Speed-up",
    }
    return Figure(name, f"{caption}, up to {most} ranks", columns, _layered(layers, 300), shown, dtype)


def predictions(frame: pd.DataFrame, style: Mapping[str, Style]) -> Iterator[Figure]:
    """Predicted rates of one sweep's largest problem up to 1,024 ranks, and the measured ones on these lines.

    ``frame`` is of ``scaling.predictions``.
    """
    for (device, dtype), rows in frame.groupby(["device", "dtype"], sort=False):
        rows = rows[rows["work"] == rows["work"].max()].sort_values(["place", "ranks", "seconds"])
        rows = rows.drop_duplicates(["label", "ranks"])
        rates = {"predicted": rows["work"] / rows["predicted_seconds"], "rate": rows["work"] / rows["seconds"]}
        unit = "GFLOP/s" if OPERATIONS[rows["operation"].iloc[0]].metric == "flops" else "GB/s"
        of_calls = rows["of"] == "whole call"
        columns = {"label": list(rows["label"].where(~of_calls, rows["label"] + ", call"))}
        columns |= {"ranks": [int(ranks) for ranks in rows["ranks"]]}
        columns |= {name: _rounded(rate / 1e9) for name, rate in rates.items()}
        named = dict(zip(columns["label"], rows["label"], strict=True))
        own = {shown: style[label] for shown, label in named.items()}
        hue, shape, dash = (
            {"field": "label", "type": "nominal", "legend": {"title": None, "symbolStrokeWidth": 0}}
            | {"scale": _scale(list(own), channel, own)}
            for channel in Style._fields
        )
        x = _ranks_axis(columns["ranks"])
        tens = {"values": [10.0**i for i in range(10)], "format": ",~r"}
        y = {"type": "quantitative", "title": unit, "scale": {"type": "log"}, "axis": tens}
        tooltip = [{"field": "label", "title": "variant"}, {"field": "ranks"}]
        tooltip += [
            {"field": field, "type": "quantitative", "title": f"{title}, {unit}", "format": ",.3r"}
            for field, title in (("rate", "measured"), ("predicted", "predicted"))
        ]
        layers = [
            {
                "mark": {"type": "line"},
                "encoding": {"x": x, "y": {"field": "predicted"} | y, "color": hue, "strokeDash": dash},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 60, "opacity": 1},
                "transform": [{"filter": "isValid(datum.rate)"}],
                "encoding": {"x": x, "y": {"field": "rate"} | y, "color": hue, "shape": shape, "tooltip": tooltip},
            },
        ]
        caption = (
            f"Predicted on the {_name(device)} in {dtype}, at {tables.size(rows.iloc[0])}: lines are predictions "
            "of the cost model, marks are measured; both are of the kernel alone or, where named so, of the whole call"
        )
        shown = {"label": "Variant", "ranks": "Ranks", "rate": f"Measured, {unit}", "predicted": f"Predicted, {unit}"}
        yield Figure(f"predicted-{device}-{dtype}", caption, columns, _layered(layers, 300), shown, dtype)


def clocks(frame: pd.DataFrame) -> Iterator[Figure]:
    """Clocks, temperature and power along the run; ``frame`` is of ``analysis.states``."""
    quantities = {"sm_clock": ("SM clock, MHz", 1e-6), "memory_clock": ("memory clock, MHz", 1e-6)}
    quantities |= {"temperature": ("temperature, °C", 1.0), "power": ("power, W", 1.0)}
    for i, (name, (title, unit)) in enumerate(quantities.items()):
        rows = frame[frame[name].notna()]
        if rows.empty:
            continue
        columns = {"sample": [int(each) for each in rows["sample"]], "sweep": list(rows["sweep"])}
        columns["value"] = _rounded(rows[name] * unit)
        axis = {"title": title, "scale": {"zero": False}, "axis": {"tickCount": 4}}
        spec = {
            "width": "container",
            "height": 120,
            "mark": {"type": "line", "strokeWidth": 1, "color": PALETTE[i], "point": {"size": 14, "color": PALETTE[i]}},
            "encoding": {
                "x": {"field": "sample", "type": "quantitative", "title": "samples in the order of the file"}
                | {"axis": {"format": ",d"}, "scale": {"nice": False}},
                "y": {"field": "value", "type": "quantitative"} | axis,
                "tooltip": [
                    {"field": "sample"},
                    {"field": "sweep"},
                    {"field": "value", "type": "quantitative", "title": title, "format": ",.4r"},
                ],
            },
        }
        caption = f"{title[0].upper()}{title[1:]}, of rank 0's GPU along the run: medians of neighbouring samples"
        yield Figure(name, caption, columns, spec, {"sample": "Sample", "sweep": "Sweep", "value": title})


def still(figure: Figure, titles: Sequence[str]) -> str:
    """The figure at a fixed size on white, for papers and slides, as Vega-Lite with its data.

    Its font is as wide as the one that the drawing program carries and measures with. Where there is no such, one
    that is wider finds room in the margin.
    """
    lines = [line for title in titles for line in textwrap.wrap(title, 90)]
    title = {"text": lines, "anchor": "start", "frame": "bounds", "fontWeight": "normal", "offset": 12}
    spec = figure.spec | {"width": 560, "padding": 24, "title": title, "data": {"name": "points"}}
    config = CONFIG | {"background": "white", "font": "Arial, Liberation Sans, Helvetica, sans-serif"}
    return json.dumps(spec | {"config": config, "datasets": {"points": figure.records}})
