"""The figures of the report, as Vega-Lite specifications over columns of values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import pandas as pd

from hpcmm import analysis
from hpcmm.analysis import Series
from hpcmm.analysis.scaling import base_columns
from hpcmm.devices import DEVICES
from hpcmm.model import PHASES, TEXTBOOK
from hpcmm.operations import OPERATIONS, dimensions
from hpcmm.operations.memory import LATENCY
from hpcmm.report import formats
from hpcmm.report.vega import (
    AT_ONE,
    DASHES,
    INTERVAL,
    LINE,
    MARKERS,
    PALETTE,
    Figure,
    Spec,
    Style,
    category,
    dots,
    layered,
    quantity,
    ranks_axis,
    rate_axis,
    rounded,
    size_axis,
    styled,
    tens_axis,
    text_width,
)

HEAT = ("#eef3f9", "#1f5fa8")  # slowest, fastest
RATIO = "isValid(datum.ratio) ? format(datum.ratio, '.3r') + '×' : ''"
SECONDS = "isValid(datum.seconds) ? format(datum.seconds, '.3s') + 's' : ''"


def of_series(series: Series, style: Mapping[str, Style], chapter: str) -> list[Figure]:
    """Return the figures of one series that answer the question of a chapter of the page; see ``chapters``."""
    if series.operation == LATENCY.name:
        return []  # a latency is no rate: the table of the levels shows it
    first: Sequence[Callable[[], Iterable[Figure]]]
    rates, bars = (lambda: rate_against_size(series, style)), (lambda: ladders(series))
    if chapter in ("ladder", "ranks"):
        first = [bars]
    elif chapter == "tiles":
        first = [lambda: tile_map(series), rates, bars]
    elif chapter == "memory":
        first = [lambda: pitch_gain(series, style), rates, bars]
    elif chapter == "transfers":
        first = [lambda: calls(series), rates, bars]
    else:
        first = [rates, bars]
    return next(filter(None, (list(draw()) for draw in first)), [])


def _what(series: Series) -> str:
    """Say what a caption must: the element type, and the ranks if there are several."""
    return series.dtype + (f" on {formats.ranks(series.ranks)}" if series.ranks > 1 else "")


def columns_of(rows: pd.DataFrame, series: Series) -> dict[str, list]:
    """Return the columns that all figures of a series share."""
    unit = formats.rate_unit_of(series.points)
    column, scale = unit.column, unit.scale
    return {
        "label": list(rows["label"]),
        "device": list(rows["device"]),
        "n": [int(n) for n in rows["n"]],
        "size": [formats.size(row) for row in analysis.row_dicts(rows)],
        "rate": rounded(rows[column] / scale),
        "low": rounded(rows[column + "_low"] / scale),
        "high": rounded(rows[column + "_high"] / scale),
        "seconds": rounded(rows["seconds"]),
        "ratio": rounded(rows["ratio"]),
        "baseline": [int(each) for each in rows["baseline"]],
        "library": [int(each != "rung") for each in rows["role"]],
        "fraction": rounded(rows["fraction"]),
        "ceiling": list(rows["ceiling"]),
    }


def _tooltip(unit: str) -> list[Spec]:
    return [
        {"field": "label", "title": "variant"},
        {"field": "size", "title": "size"},
        quantity("rate", title=unit, format=",.3r"),
        {"field": "interval", "title": "95 % interval"},
        {"field": "time", "title": "time"},
        {"field": "times", "title": "ratio to baseline"},
        {"field": "part", "title": "of limit"},
    ]


def _calculations() -> list[Spec]:
    ends = "format(datum.low, ',.3r') + ' to ' + format(datum.high, ',.3r')"
    return [
        {"calculate": f"isValid(datum.low) ? {ends} : 'none: fewer than 6 repetitions'", "as": "interval"},
        {"calculate": SECONDS, "as": "time"},
        {"calculate": f"datum.baseline ? 'baseline' : {RATIO}", "as": "times"},
        {"calculate": "isValid(datum.fraction) ? format(datum.fraction, '.0%') : 'unknown'", "as": "part"},
    ]


def _shown(series: Series) -> dict[str, str]:
    unit = formats.rate_unit_of(series.points).name
    limit = {"fraction": "Of limit"} if series.points["fraction"].notna().any() else {}
    return {
        **{"label": "Variant", "size": formats.size_title(series.points), "rate": unit, "low": "from", "high": "to"},
        **{"seconds": "Seconds", "ratio": "Ratio to baseline", **limit},
    }


PREDICTED = "predicted"  # group of the figures of a model
LINES = 7  # of rungs in a figure; more cannot be told apart


def rate_against_size(series: Series, style: Mapping[str, Style], height: int = 340) -> Iterator[Figure]:
    """Draw GFLOP/s or GB/s of the kernel alone with 95 % intervals, the baselines and the hardware limits.

    Baselines are thick dashed lines in the colour of the text, above the others. Of many rungs the fastest are shown.
    Nothing is drawn for one or two sizes, which are no curve.
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
    if len(known[list(dimensions())].drop_duplicates()) < 3:
        return
    known = known.assign(low_known=known[column + "_low"].notna())
    labels = known.sort_values("place", kind="stable")["label"].unique()
    color, shape, dash = styled("label", labels, style, symbolOpacity=1, symbolSize=70, symbolStrokeWidth=0)
    axis = rate_axis(known[column] / rates.scale, unit, zero=not multiples)
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
        shapes = [formats.size(row) for row in analysis.row_dicts(known.drop_duplicates(list(dimensions())))]
        y = category("size", title=None, sort=shapes, axis={"grid": True})
        position = {"x": rate | {"axis": axis.get("axis", {}) | {"labelBound": True}}, "y": y}
        ends, height = {"x": low, "x2": high, "y": y}, max(120, 44 * len(shapes))
    marker = 60 if known["n"].nunique() <= 24 else 12  # a dense sweep's markers would hide its lines
    if known["low_known"].any():  # Vega warns about the extent of an empty layer
        enough = [{"filter": "isValid(datum.low)"}]
        interval = {"mark": INTERVAL, "transform": enough, "encoding": ends | {"color": color}}
        layers.append(interval | {"name": "needs_low"})
    layers.append({
        "mark": dots(marker),
        "transform": _calculations(),
        "encoding": {**position, "color": color, "shape": shape, "tooltip": _tooltip(unit)},
    })  # fmt: skip
    caption = f"{unit} of the kernel alone by {'size' if one_number else 'shape'}, {_what(series)}{among}"
    if multiples:
        widths = ", ".join(str(tile) for tile in sorted(set(multiples.values())))
        caption += f", without the baseline; vertical lines at the multiples of the tiles ({widths})"
    devices = known["device"].unique()
    yield Figure(
        "rate", caption + which, columns_of(known, series), layered(layers, height), _shown(series), series.dtype,
        devices[0] if len(devices) == 1 else "",
    )  # fmt: skip


def _fastest(known: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Return the rows of the libraries and of at most ``LINES`` rungs, and a text that says so.

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
    if not known["fraction"].notna().any():
        return []
    median = [
        {"filter": "isValid(datum.fraction)"},
        {"calculate": "datum.rate / datum.fraction", "as": "limit"},
        {"aggregate": [{"op": "median", "field": "limit", "as": "limit"}], "groupby": ["n", "size", "ceiling"]},
    ]
    y = quantity("limit", **axis)
    tooltip = [{"field": "ceiling", "title": "limit"}, {"field": "size"}, quantity("limit", format=",.3r")]
    last = {"filter": f"datum.n == {int(known['n'].max())}"}
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


MOST_LADDERS = 8  # sizes of one ladder that can be chosen


def ladders(series: Series) -> Iterator[Figure]:
    """Draw one bar per rung: its speed relative to the library, with its rate in words.

    The largest size is shown first; each of the others is a figure that the page can show instead. Where no rung has a
    ratio, the bars are rates.
    """
    for device, points in series.points.groupby("device", sort=False):
        sizes = formats.spread(points.drop_duplicates(list(dimensions())), MOST_LADDERS)
        first = formats.size(analysis.largest(points).iloc[0])
        for _, at in sorted(sizes.iterrows(), key=lambda each: formats.size(each[1]) != first):
            here = points[(points[list(dimensions())] == at[list(dimensions())]).all(axis=1)]
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
    library = OPERATIONS[series.operation].baseline(device, series.dtype)
    baseline = library.name if library else ""
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
    x = quantity("value", title=title, scale=domain, axis={"labelBound": True})
    color = {"condition": {"test": "datum.library == 1", "value": LINE}, "value": PALETTE[0]}
    opacity = {"condition": {"test": "datum.library == 1", "value": 0.45}, "value": 1}
    tooltip = [*_tooltip(rates.name), {"field": "step", "title": "over the previous rung"}]
    end = {"calculate": "max(isValid(datum.to) ? datum.to : 0, isValid(datum.value) ? datum.value : 0)", "as": "end"}
    layers: list[Spec] = [
        {
            "mark": {"type": "bar", "height": {"band": 0.7}},
            "transform": _calculations(),
            "encoding": {"x": x, "y": y, "color": color, "opacity": opacity, "tooltip": tooltip},
        },
        {
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
    caption = f"{formats.device(device)} at {size}, {_what(series)}: {title}"
    shown = _shown(series) | {"step": "Step"}
    whole = layered(layers, 24 * len(rows) + 8)
    if size == first:
        return Figure(name, caption, columns, whole, shown, series.dtype, device)
    return Figure(f"{name}-at-{size}", caption, columns, whole, shown, series.dtype, device, size, name)


def _bar_text(row: Mapping, relative: bool, unit: formats.RateUnit) -> str:
    """Return the text beside a bar, ``"0.85× (43 TFLOP/s)"``."""
    if row["result"] != "PASS":
        return row["result"]
    rate = formats.rate_text(row)
    if not relative or row["baseline"]:
        return rate
    ratio = formats.times(row["ratio"], formats.half_width(row, "ratio"))
    return f"{ratio} ({rate})" if ratio else rate


def efficiencies(series: Series) -> Iterator[Figure]:
    """Draw one bar per rung at the largest size with energy: its rate over the power of the device."""
    for device, points in series.points.groupby("device", sort=False):
        known = points[points["watts"].notna()]
        if known.empty:
            continue
        size = analysis.largest(known).iloc[0]
        rows = known[(known[list(dimensions())] == size[list(dimensions())]).all(axis=1)]
        rows = rows.sort_values("place").drop_duplicates("label")
        column, name = formats.rate_of(series.operation)
        columns = {
            "label": list(rows["label"]),
            "value": rounded(rows[column.replace("_per_second", "_per_joule")] * 1e-9),
            "watts": rounded(rows["watts"]),
            "baseline": [int(each) for each in rows["baseline"]],
        }
        color = {"condition": {"test": "datum.baseline == 1", "value": LINE}, "value": PALETTE[0]}
        encoding = {
            "x": quantity("value", title=f"{name} per W"),
            "y": category("label", sort=columns["label"], title=None, axis={"labelLimit": 200}),
            "color": color,
            "opacity": {"condition": {"test": "datum.baseline == 1", "value": 0.45}, "value": 1},
        }
        spec = layered([{"mark": {"type": "bar", "height": {"band": 0.7}}, "encoding": encoding}], 24 * len(rows) + 8)
        shown = {"label": "Rung", "value": f"{name} per W", "watts": "Power, W"}
        caption = f"{formats.device(device)} at {formats.size(size)}, {_what(series)}: {name} per W"
        yield Figure(f"energy-{device}", caption, columns, spec, shown, series.dtype, device)


def tile_map(series: Series) -> Iterator[Figure]:
    """Draw rates by tile and size, coloured relative to the fastest at that size; wrong results are marked."""
    points = series.points
    if not (points["tile"] > 0).any():
        return
    rows = points[points["tile"] > 0]
    sizes = rows.drop_duplicates(list(dimensions()))
    if rows.groupby("variant")["tile"].nunique().max() in (0, 1) or not 2 <= len(sizes) <= 16 or rows.empty:
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
        "x": category("size", sort=[formats.size(row) for row in analysis.row_dicts(sizes)], title="n", axis=top),
        "y": category("label", sort=labels, title=None, axis={"domain": False, "ticks": False, "labelLimit": 200}),
    }
    legend = {"title": "relative to the fastest", "titleLimit": 300, "format": ".0%", "gradientLength": 160}
    color = quantity("relative", scale={"domain": [0, 1], "range": list(HEAT)}, legend=legend)
    ink = {"test": "datum.text == 'FAIL'", "value": "#b3141d"}
    light = {"test": "datum.relative > 0.77", "value": "#ffffff"}
    layers = [
        {
            "mark": {"type": "rect", "stroke": "#ffffff", "strokeWidth": 1},
            "transform": [*_calculations(), {"filter": "isValid(datum.relative)"}],
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
    caption = f"{unit} by tile and size, {_what(series)}; an empty cell was not measured"
    whole = layered(layers, 26 * len(labels) + 20)
    yield Figure("tiles", caption, columns, whole, _shown(series), series.dtype, rows["device"].iloc[0])


def pitch_gain(series: Series, style: Mapping[str, Style]) -> Iterator[Figure]:
    """Draw the speedup of padded rows over the same kernel without padding, at each size and tile."""
    pairs = analysis.pitch_pairs(series.points)
    if pairs["n"].nunique() < 3 or not formats.size_is_one_number(pairs):
        return
    columns = {
        "label": list(pairs["label"]),
        "n": [int(n) for n in pairs["n"]],
        **{name: rounded(pairs[name]) for name in ("gain", "gain_low", "gain_high")},
    }
    axis = {"title": "speedup from pitch", "scale": {"zero": False}}
    x, y = size_axis(pairs), quantity("gain", **axis)
    labels = pairs.sort_values("place", kind="stable")["label"].unique()
    color, shape, dash = styled("label", labels, style, symbolOpacity=1)
    tooltip = [{"field": "label", "title": "variant"}, {"field": "n"}]
    titles = {"gain": "gain", "gain_low": "from", "gain_high": "to"}
    tooltip += [quantity(name, format=".3r", title=title) for name, title in titles.items()]
    ends = {"x": x, "y": quantity("gain_low", **axis), "y2": {"field": "gain_high"}}
    layers = [
        AT_ONE,
        {"mark": {"type": "line"}, "encoding": {"x": x, "y": y, "color": color, "strokeDash": dash}},
        {"mark": dots(60), "encoding": {"x": x, "y": y, "color": color, "shape": shape, "tooltip": tooltip}},
    ]
    if pairs["gain_low"].notna().any():
        layers.insert(2, {"mark": INTERVAL, "encoding": ends | {"color": color}})
    caption = f"Speedup from pitched rows, kernel alone, {_what(series)}"
    shown = {"label": "Variant", "n": "n", "gain": "Gain", "gain_low": "from", "gain_high": "to"}
    device = pairs["device"].iloc[0]
    yield Figure("pitch", caption, columns, layered(layers, 260), shown, series.dtype, device)


def calls(series: Series) -> Iterator[Figure]:
    """Draw end-to-end times by phase: of each label at the largest size, and of the fastest one at all sizes."""
    frame = analysis.phases(series.points)
    if frame.empty:
        return
    largest = analysis.largest(frame)
    for device, rows in largest.groupby("device", sort=False):
        if not DEVICES[device].accelerator and series.ranks == 1:
            continue  # nothing is copied
        rows = rows.sort_values("place")
        what = f"{formats.size(largest.iloc[0])}, {_what(series)}"
        caption = f"End-to-end time on the {formats.device(device)} by phase at {what}{_overlapping(rows)}"
        yield replace(
            _stacked(f"calls-{device}", caption, rows, list(rows["label"]), share=False),
            dtype=series.dtype, device=device,
        )  # fmt: skip
    sizes = formats.spread(frame.drop_duplicates(list(dimensions())), 8)
    ours = largest[(largest["role"] == "rung") & analysis.on_accelerator(largest)]
    if len(sizes) < 3 or ours.empty:
        return
    rung = ours.loc[ours["call_seconds"].idxmin(), "rung"]
    rows = frame[frame["rung"] == rung].merge(sizes[list(dimensions())], on=list(dimensions()))
    names = [", ".join(filter(None, (formats.size(row), row["memory"]))) for row in analysis.row_dicts(rows)]
    caption = f"Share of each phase in the end-to-end time of {rung}, by size{_overlapping(rows)}"
    yield replace(
        _stacked("shares", caption, rows, names, share=True),
        dtype=series.dtype, device=rows["device"].iloc[0],
    )  # fmt: skip


def _overlapping(rows: pd.DataFrame) -> str:
    """Return the part of a caption that names algorithms with overlapping phases."""
    names = [name for name in rows["algorithm"].unique() if name != TEXTBOOK]
    who = " and ".join(names)
    return f"; phases of {who} overlap, so the end-to-end time is shorter than the bar" if names else ""


def _stacked(name: str, caption: str, rows: pd.DataFrame, names: Sequence[str], share: bool) -> Figure:
    columns: dict[str, list] = {"name": [], "phase": [], "start": [], "end": [], "seconds": [], "share": []}
    unit, scale = ("share of the end-to-end time", 1.0) if share else formats.unit_of(rows["call_seconds"].max())
    for label, row in zip(names, analysis.row_dicts(rows), strict=True):
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
    y = category("name", sort=list(names), title=None, axis={"labelLimit": 240})
    axis = {"format": ".0%" if share else ",~r", "labelBound": True}
    longest = max(columns["end"])
    # the domain of the bars alone: if no label fits into a bar, Vega warns about an empty domain of the labels
    scale_x = {"domain": [0, longest], "nice": True}
    x = quantity("start", title=unit, axis=axis, stack=None, scale=scale_x)
    color = category("phase", scale={"domain": present, "range": hues}, legend={"title": None})
    bar = "Size" if share else "Variant"
    tooltip = [{"field": "name", "title": bar.lower()}, {"field": "phase"}, {"field": "time"}]
    tooltip.append(quantity("share", format=".1%"))
    layers = [
        {
            "mark": {"type": "bar", "stroke": "#ffffff", "strokeWidth": 1, "height": {"band": 0.75}},
            "transform": [{"calculate": SECONDS, "as": "time"}],
            "encoding": {"x": x, "x2": {"field": "end"}, "y": y, "color": color, "tooltip": tooltip},
        },
        {
            "mark": {"type": "text", "color": "#ffffff", "fontSize": 11, "fontWeight": "bold"},
            "transform": [
                # only where the label fits into the bar
                {"filter": f"(datum.end - datum.start) * width / {longest:.6g} > 8 * length(datum.phase)"},
                {"calculate": "(datum.start + datum.end) / 2", "as": "middle"},
            ],
            "encoding": {"x": quantity("middle"), "y": y, "text": {"field": "phase"}},
        },
    ]
    shown = {"name": bar, "phase": "Phase", "seconds": "Seconds", "share": "Share"}
    return Figure(name, caption, columns, layered(layers, 26 * len(set(names)) + 8), shown)


def rooflines(frame: pd.DataFrame) -> Iterator[Figure]:
    """Draw the highest rate of each rung over its arithmetic intensity, with the limits of hardware and run."""
    # of several machines with such a GPU, that with the most rungs
    roofs = sorted(analysis.rooflines(frame), key=lambda roof: len(roof.rungs), reverse=True)
    roofs = list({(roof.device, roof.dtype, *set(roof.rungs["gpu"])): roof for roof in reversed(roofs)}.values())[::-1]
    machines = list(dict.fromkeys(roof.machine for roof in roofs))
    for roof in roofs:
        rows = roof.rungs
        intensity = rows["flops"] / rows["bytes"]
        peak = max(flops for _, flops, _ in roof.ceilings)
        unit = formats.rate_unit("matmul", max(peak, rows["flops_per_second"].max()))
        columns = {
            "label": list(rows["label"]),
            "operation": list(rows["operation"]),
            "size": [formats.size(row) for row in analysis.row_dicts(rows)],
            "intensity": rounded(intensity),
            "rate": rounded(rows["flops_per_second"] / unit.scale),
            "fraction": rounded(rows["fraction"]),
        }
        first, last = min(intensity.min() / 2, 0.05), max(intensity.max() * 2, 10)
        lines = []
        for name, flops, nbytes in roof.ceilings:
            knee = flops / nbytes
            stops = [first, *([knee] if first < knee < last else []), last]
            lines += [{"x": x, "y": min(flops, nbytes * x) / unit.scale, "of": name} for x in stops]
        log = {"scale": {"type": "log", "nice": False, "padding": 8}, "axis": tens_axis(-3, 9)}
        x, y = log | {"title": "operations per byte of compulsory traffic"}, log | {"title": unit.name}
        operations = list(dict.fromkeys(rows["operation"]))
        color, shape = (
            category(
                "operation",
                scale={"domain": operations, "range": list(values[: len(operations)])},
                legend={"title": None},
            )
            for values in (PALETTE, MARKERS)
        )
        names = [name for name, *_ in roof.ceilings]
        dashes = {"domain": names, "range": list(DASHES[: len(names)])}
        dash = category("of", scale=dashes, legend={"title": None})
        tooltip = [{"field": field} for field in ("label", "operation", "size")]
        tooltip.append(quantity("rate", title=unit.name, format=",.3r"))
        tooltip.append(quantity("fraction", title="of limit", format=".0%"))
        position = {"x": quantity("intensity", **x), "y": quantity("rate", **y)}
        layers = [
            {
                "data": {"values": lines},
                "mark": {"type": "line", "color": LINE, "strokeWidth": 2},
                "encoding": {"x": quantity("x", **x), "y": quantity("y", **y), "strokeDash": dash},
            },
            {
                "mark": dots(70, opacity=0.85),
                "encoding": {**position, "tooltip": tooltip, "color": color, "shape": shape},
            },
        ]
        caption = f"Roofline of the {formats.device(roof.device)} in {roof.dtype}: every rung at its fastest size"
        number = f"-{machines.index(roof.machine) + 1}" if len(machines) > 1 else ""
        if number:
            caption += f"; {roof.machine}"
        shown = {"label": "Variant", "operation": "Operation", "size": "Size", "intensity": "Operations per byte"}
        shown |= {"rate": unit.name} | ({"fraction": "Of limit"} if rows["fraction"].notna().any() else {})
        whole = layered(layers, 380)
        yield Figure(f"{roof.device}-{roof.dtype}{number}", caption, columns, whole, shown, roof.dtype, roof.device)


def scalings(frame: pd.DataFrame, style: Mapping[str, Style]) -> Iterator[Figure]:
    """Draw efficiency over ranks of one sweep; ``frame`` is from ``scaling.speedups``.

    There is one figure for each kind of scaling, device and element type, at the largest size. Of each arithmetic it
    shows the two labels that are fastest on the most ranks by the kernel alone, and the two fastest end to end.
    """
    for (kind, device, dtype, setting), rows in frame.groupby(["kind", "device", "dtype", "setting"], sort=False):
        if kind == "memory-constrained":  # its table has the numbers; no question of its own
            continue
        work = OPERATIONS[rows["operation"].iloc[0]].metric
        last = rows[rows["ranks"] == rows["ranks"].max()]
        at = last.loc[last[work].idxmax()]
        rows = rows[(rows[base_columns()] == at[base_columns()]).all(axis=1)]
        last = rows[rows["ranks"] == at["ranks"]]
        best = {
            label
            for _, alike in last.groupby("arithmetic")
            for prefix in ("", "call_")
            for label in alike.dropna(subset=[prefix + "speedup"]).nsmallest(2, prefix + "seconds")["label"]
        }
        if not best:  # not timed in the same way on one rank
            continue
        what = ", ".join(filter(None, (dtype, setting)))
        shown = " of the fastest variants" if rows["label"].nunique() > len(best) else ""
        where = f"{shown} on the {formats.device(device)}, {what}"
        caption = f"{kind.capitalize()} scaling{where}, relative to the fastest on one rank"
        yield _scaling(rows[rows["label"].isin(best)], style, caption, f"{kind}-{device}-{dtype}")


def _scaling(rows: pd.DataFrame, style: Mapping[str, Style], caption: str, name: str, height: int = 300) -> Figure:
    shown = {"series": "Variant", "size": "Size", "of": "Timed", "ranks": "Ranks"}
    shown |= {"efficiency": "Efficiency", "speedup": "Speedup"}
    columns: dict[str, list] = {name: [] for name in shown}
    for row in analysis.row_dicts(rows.sort_values(["place", "ranks"], kind="stable")):
        for prefix, what in (("", "kernel alone"), ("call_", "end to end")):
            if math.isfinite(row[prefix + "efficiency"]):
                columns["series"].append(row["label"])
                columns["of"].append(what)
                columns["size"].append(formats.size(row))
                columns["ranks"].append(int(row["ranks"]))
                columns["efficiency"].append(float(f"{row[prefix + 'efficiency']:.5g}"))
                columns["speedup"].append(float(f"{row[prefix + 'speedup']:.5g}"))
    labels = list(dict.fromkeys(columns["series"]))
    x, y = ranks_axis(columns["ranks"]), quantity("efficiency", title="efficiency", axis={"format": ".0%"})
    color, shape, _ = styled("series", labels, style)
    dashes = {what: dash for what, dash in (("kernel alone", [1, 0]), ("end to end", [4, 3])) if what in columns["of"]}
    dash = category("of", legend={"title": None}, scale={"domain": list(dashes), "range": list(dashes.values())})
    tooltip = [{"field": field, "title": shown[field].lower()} for field in ("series", "size", "of", "ranks")]
    tooltip += [quantity("efficiency", format=".1%"), quantity("speedup", format=".3r")]
    layers = [
        AT_ONE,
        {"mark": {"type": "line"}, "encoding": {"x": x, "y": y, "color": color, "strokeDash": dash}},
        {"mark": dots(60), "encoding": {"x": x, "y": y, "color": color, "shape": shape, "tooltip": tooltip}},
    ]
    caption = f"{caption}, up to {max(columns['ranks'])} ranks"
    of = rows["dtype"].iloc[0], rows["device"].iloc[0]
    return Figure(name, caption, columns, layered(layers, height), shown, *of)


def predictions(frame: pd.DataFrame, style: Mapping[str, Style]) -> Iterator[Figure]:
    """Draw predicted rates of the largest problem of a sweep over ranks, with the measured rates.

    ``frame`` is from ``scaling.predictions``. Nothing is drawn for fewer than 4 measured ranks, which could
    not contradict the model.
    """
    for (device, dtype), rows in frame.groupby(["device", "dtype"], sort=False):
        if rows["measured_ranks"].max() < 4:
            continue
        rows = rows[rows["work"] == rows["work"].max()].sort_values(["place", "ranks", "seconds"])
        rows = rows.drop_duplicates(["label", "ranks"])
        largest = (rows["work"] / rows[["seconds", "predicted_seconds"]].min(axis=1)).max()
        rates = formats.rate_unit(rows["operation"].iloc[0], largest)
        unit = rates.name
        columns = {
            "label": list(rows["label"].where(rows["of"] != "end to end", rows["label"] + ", end to end")),
            "ranks": [int(ranks) for ranks in rows["ranks"]],
            "predicted": rounded(rows["work"] / rows["predicted_seconds"] / rates.scale),
            "rate": rounded(rows["work"] / rows["seconds"] / rates.scale),
        }
        own = {shown: style[label] for shown, label in zip(columns["label"], rows["label"], strict=True)}
        color, shape, dash = styled("label", list(own), own, symbolStrokeWidth=0)
        x, log = ranks_axis(columns["ranks"]), {"title": unit, "scale": {"type": "log"}, "axis": tens_axis(0, 10)}
        tooltip = [{"field": "label", "title": "variant"}, {"field": "ranks"}]
        tooltip += [
            quantity(field, title=f"{title}, {unit}", format=",.3r")
            for field, title in (("rate", "measured"), ("predicted", "predicted"))
        ]
        layers = [
            {
                "mark": {"type": "line"},
                "encoding": {"x": x, "y": quantity("predicted", **log), "color": color, "strokeDash": dash},
            },
            {
                "mark": dots(60),
                "transform": [{"filter": "isValid(datum.rate)"}],
                "encoding": {"x": x, "y": quantity("rate", **log), "color": color, "shape": shape, "tooltip": tooltip},
            },
        ]
        caption = (
            f"Predicted rates on the {formats.device(device)}, {dtype}, at {formats.size(rows.iloc[0])}. Lines are "
            "predictions of the cost model, marks are measurements; kernel alone unless labelled end to end"
        )
        shown = {"label": "Variant", "ranks": "Ranks", "rate": f"Measured, {unit}", "predicted": f"Predicted, {unit}"}
        name, whole = f"predicted-{device}-{dtype}", layered(layers, 300)
        yield Figure(name, caption, columns, whole, shown, dtype, device, group=PREDICTED)


def clocks(frame: pd.DataFrame) -> Iterator[Figure]:
    """Draw clocks, temperature and power during the run; ``frame`` is from ``analysis.clock_samples``."""
    quantities = {"sm_clock": ("SM clock, MHz", 1e-6), "memory_clock": ("memory clock, MHz", 1e-6)}
    quantities |= {"temperature": ("temperature, °C", 1.0), "power": ("power, W", 1.0)}
    for hue, (name, (title, unit)) in zip(PALETTE, quantities.items(), strict=False):
        rows = frame[frame[name].notna()]
        if rows[name].nunique() < 2:  # what never changed is no figure
            continue
        columns = {"sample": [int(each) for each in rows["sample"]], "sweep": list(rows["sweep"])}
        columns["value"] = rounded(rows[name] * unit)
        along = {"axis": {"format": ",d"}, "scale": {"nice": False}}
        value = quantity("value", title=title, format=",.4r")
        spec = {
            "width": "container",
            "height": 120,
            "mark": {"type": "line", "strokeWidth": 1, "color": hue, "point": {"size": 14, "color": hue}},
            "encoding": {
                "x": quantity("sample", title="sample, in the order of the file", **along),
                "y": quantity("value", title=title, scale={"zero": False}, axis={"tickCount": 4}),
                "tooltip": [{"field": "sample"}, {"field": "sweep"}, value],
            },
        }
        caption = f"{title[0].upper()}{title[1:]}, GPU of rank 0 during the run, medians of adjacent samples"
        yield Figure(name, caption, columns, spec, {"sample": "Sample", "sweep": "Sweep", "value": title})
