"""The figures of the report, as Vega-Lite specifications over columns of values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from hpcmm import analysis
from hpcmm.analysis import Series
from hpcmm.analysis.scaling import base_columns
from hpcmm.devices import DEVICES
from hpcmm.model import PHASES, TEXTBOOK
from hpcmm.operations import OPERATIONS, dimensions
from hpcmm.report import formats
from hpcmm.report.vega import (
    AT_ONE,
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


def of_series(series: Series, style: Mapping[str, Style], with_calls: bool = True) -> list[Figure]:
    """Return all figures that the points of one series allow."""
    figures = [rate_against_size(series, style), *ladders(series), tile_map(series), pitch_gain(series, style)]
    return [figure for figure in [*figures, *(calls(series) if with_calls else [])] if figure]


def columns_of(rows: pd.DataFrame, series: Series) -> dict[str, list]:
    """Return the columns that all figures of a series share."""
    unit = formats.rate_unit_of(series.points)
    column, scale = unit.column, unit.scale
    return {
        "label": list(rows["label"]),
        "n": [int(n) for n in rows["n"]],
        "size": [formats.size(row) for row in analysis.row_dicts(rows)],
        "rate": rounded(rows[column] / scale),
        "low": rounded(rows[column + "_low"] / scale),
        "high": rounded(rows[column + "_high"] / scale),
        "seconds": rounded(rows["seconds"]),
        "ratio": rounded(rows["ratio"]),
        "baseline": [int(each) for each in rows["baseline"]],
        "fraction": rounded(rows["fraction"]),
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


def rate_against_size(series: Series, style: Mapping[str, Style]) -> Figure | None:
    """Draw GFLOP/s or GB/s of the kernel alone with 95 % intervals, the baselines and the hardware limit.

    Baselines are thick lines in the colour of the text. None if no point has a number.
    """
    rates = formats.rate_unit_of(series.points)
    column, unit = rates.column, rates.name
    known = series.points[series.points[column].notna()]
    known, which = formats.at_sizes(known, 128)
    multiples = _multiples(known)
    if multiples:  # the baseline, far above, would flatten the steps at the multiples
        known = known[known["baseline"] == 0]
    one_number = formats.size_is_one_number(known)
    if known.empty or (one_number and known["n"].nunique() == 1 and len(known) > 3):
        return None
    labels = known.sort_values("place", kind="stable")["label"].unique()
    color, shape, dash = styled("label", labels, style, symbolOpacity=1, symbolSize=70, symbolStrokeWidth=0)
    axis = rate_axis(known[column] / rates.scale, unit, zero=not multiples)
    rate, low, high = quantity("rate", **axis), quantity("low", **axis), {"field": "high"}
    layers: list[Spec] = []
    if one_number:
        position, height = {"x": size_axis(known), "y": rate}, 340
        ends = {"x": position["x"], "y": low, "y2": high}
        layers += _multiple_layers(multiples, position["x"]) if multiples else _limit_layers(known, position["x"], axis)
        for baseline, mark in ((1, {"strokeWidth": 3.5, "opacity": 0.55}), (0, {"strokeWidth": 1.75})):
            if (known["baseline"] == baseline).any():
                layers.append({
                    "mark": {"type": "line"} | mark,
                    "transform": [{"filter": f"datum.baseline == {baseline}"}],
                    "encoding": {**position, "color": color, "strokeDash": dash},
                })  # fmt: skip
    else:
        # Shapes have no order for a line, and long names: one row each.
        shapes = [formats.size(row) for row in analysis.row_dicts(known.drop_duplicates(list(dimensions())))]
        y = category("size", title=None, sort=shapes, axis={"grid": True})
        position = {"x": rate | {"axis": axis.get("axis", {}) | {"labelBound": True}}, "y": y}
        ends, height = {"x": low, "x2": high, "y": y}, max(120, 44 * len(shapes))
    marker = 60 if known["n"].nunique() <= 24 else 12  # a dense sweep's markers would hide its lines
    layers += [
        {"mark": INTERVAL, "transform": [{"filter": "isValid(datum.low)"}], "encoding": ends | {"color": color}},
        {
            "mark": dots(marker),
            "transform": _calculations(),
            "encoding": {**position, "color": color, "shape": shape, "tooltip": _tooltip(unit)},
        },
    ]
    caption = f"{unit} of the kernel alone against {'size' if one_number else 'shape'}"
    if multiples:
        widths = ", ".join(str(tile) for tile in sorted(set(multiples.values())))
        caption += f", without the baseline; vertical lines at the multiples of the tiles ({widths})"
    return Figure("rate", caption + which, columns_of(known, series), layered(layers, height), _shown(series))


def _limit_layers(known: pd.DataFrame, x: Spec, axis: Spec) -> list[Spec]:
    """Draw the hardware limit as a dotted line with a label at its end."""
    if not known["fraction"].notna().any():
        return []
    median = [
        {"filter": "isValid(datum.fraction)"},
        {"calculate": "datum.rate / datum.fraction", "as": "limit"},
        {"aggregate": [{"op": "median", "field": "limit", "as": "limit"}], "groupby": ["n", "size"]},
    ]
    y = quantity("limit", **axis)
    title = quantity("limit", title="hardware limit", format=",.3r")
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


def ladders(series: Series) -> Iterator[Figure]:
    """Draw one bar per rung at the largest size, labelled with step, cumulative speedup and ratio to the baseline."""
    rates = formats.rate_unit_of(series.points)
    column, unit = rates.column, rates.name
    for device, points in series.points.groupby("device", sort=False):
        # the fastest tile represents the rung; a wrong one does only if all are wrong
        rungs = analysis.largest(points).sort_values("seconds", kind="stable").drop_duplicates("variant")
        rows = analysis.ladder(rungs)
        if (rows["baseline"] == 0).sum() < 3 or rows["seconds"].isna().all():
            continue
        gains = [_gain(row) for row in analysis.row_dicts(rows)]
        y = category("label", sort=list(rows["label"]), title=None, axis={"labelLimit": 200})
        # leaves room for the labels after the bars; outside the axis they would reduce the width of the figure
        ends = rows[[column, column + "_high"]].max(axis=1).fillna(0) / rates.scale
        needed = (
            f"{end:.6g} * width / max(width - {text_width(gain)}, 40)" for end, gain in zip(ends, gains, strict=True)
        )
        scale = {"domainMin": 0, "domainMax": {"expr": f"max({', '.join(needed)})"}, "nice": False}
        x = quantity("rate", title=unit, scale=scale, axis={"labelBound": True})
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
                "encoding": {"x": quantity("low"), "x2": {"field": "high"}, "y": y},
            },
            {
                "mark": {"type": "text", "align": "left", "dx": 5},
                "transform": [end],
                "encoding": {"x": quantity("end"), "y": y, "text": {"field": "gain"}},
            },
        ]
        name, baseline = formats.device(device), OPERATIONS[series.operation].baseline(device, series.dtype).name
        size = formats.size(rows.iloc[0])
        caption = f"Ladder of the {name} at {size}: step, cumulative speedup, speed relative to {baseline}"
        columns, shown = columns_of(rows, series) | {"gain": gains}, _shown(series) | {"gain": "Gain"}
        yield Figure(f"ladder-{device}", caption, columns, layered(layers, 24 * len(rows) + 8), shown)


def _gain(row: Mapping) -> str:
    if row["result"] != "PASS" or row["baseline"]:
        return row["result"] if row["result"] != "PASS" else "baseline"
    return ", ".join(
        filter(None, (formats.times(row["step"]), formats.times(row["cumulative"]), formats.percent(row["ratio"])))
    )


def tile_map(series: Series) -> Figure | None:
    """Draw rates by tile and size, coloured relative to the fastest at that size; wrong results are marked."""
    points = series.points
    if not (points["tile"] > 0).any():
        return None
    rows = points[points["tile"] > 0]
    sizes = rows.drop_duplicates(list(dimensions()))
    if rows.groupby("variant")["tile"].nunique().max() in (0, 1) or not 1 <= len(sizes) <= 16 or rows.empty:
        return None
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
    light = {"test": "datum.relative > 0.55", "value": "#ffffff"}
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
    caption = f"{unit} by tile and size; an empty cell was not measured"
    return Figure("tiles", caption, columns, layered(layers, 26 * len(labels) + 20), _shown(series))


def pitch_gain(series: Series, style: Mapping[str, Style]) -> Figure | None:
    """Draw the speedup of padded rows over the same kernel without padding, at each size and tile."""
    pairs = analysis.pitch_pairs(series.points)
    if pairs["n"].nunique() < 2 or not formats.size_is_one_number(pairs):
        return None
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
        {"mark": INTERVAL, "encoding": ends | {"color": color}},
        {"mark": dots(60), "encoding": {"x": x, "y": y, "color": color, "shape": shape, "tooltip": tooltip}},
    ]
    caption = "Speedup from pitched rows, kernel alone"
    shown = {"label": "Variant", "n": "n", "gain": "Gain", "gain_low": "from", "gain_high": "to"}
    return Figure("pitch", caption, columns, layered(layers, 260), shown)


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
        caption = f"End-to-end time on the {formats.device(device)} by phase at {formats.size(largest.iloc[0])}"
        caption += _overlapping(rows)
        yield _stacked(f"calls-{device}", caption, rows, list(rows["label"]), share=False)
    sizes = formats.spread(frame.drop_duplicates(list(dimensions())), 8)
    ours = largest[(largest["baseline"] == 0) & analysis.on_accelerator(largest)]
    if len(sizes) < 3 or ours.empty:
        return
    rung = ours.loc[ours["call_seconds"].idxmin(), "rung"]
    rows = frame[frame["rung"] == rung].merge(sizes[list(dimensions())], on=list(dimensions()))
    names = [", ".join(filter(None, (formats.size(row), row["memory"]))) for row in analysis.row_dicts(rows)]
    yield _stacked(
        "shares",
        f"Share of each phase in the end-to-end time of {rung}, by size{_overlapping(rows)}",
        rows,
        names,
        share=True,
    )


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
    roofs = list(analysis.rooflines(frame))
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
        dashes = {"domain": [name for name, *_ in roof.ceilings], "range": [[1, 0], [6, 3]]}
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
        yield Figure(f"{roof.device}-{roof.dtype}{number}", caption, columns, layered(layers, 380), shown)


def scalings(frame: pd.DataFrame, style: Mapping[str, Style]) -> Iterator[Figure]:
    """Draw efficiency over ranks of one sweep; ``frame`` is from ``scaling.speedups``.

    There is one figure for each kind of scaling, device and element type, at the largest size. Of each arithmetic it
    shows the two labels that are fastest on the most ranks by the kernel alone, and the two fastest end to end.
    """
    for (kind, device, dtype, setting), rows in frame.groupby(["kind", "device", "dtype", "setting"], sort=False):
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
        yield _scaling(rows[rows["label"].isin(best)], style, caption, f"{kind}-{device}-{dtype}", dtype)


def _scaling(rows: pd.DataFrame, style: Mapping[str, Style], caption: str, name: str, dtype: str) -> Figure:
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
    return Figure(name, caption, columns, layered(layers, 300), shown, dtype)


def predictions(frame: pd.DataFrame, style: Mapping[str, Style]) -> Iterator[Figure]:
    """Draw predicted rates of the largest problem of a sweep up to 1,024 ranks, with the measured rates.

    ``frame`` is from ``scaling.predictions``.
    """
    for (device, dtype), rows in frame.groupby(["device", "dtype"], sort=False):
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
        yield Figure(f"predicted-{device}-{dtype}", caption, columns, layered(layers, 300), shown, dtype)


def clocks(frame: pd.DataFrame) -> Iterator[Figure]:
    """Draw clocks, temperature and power during the run; ``frame`` is from ``analysis.clock_samples``."""
    quantities = {"sm_clock": ("SM clock, MHz", 1e-6), "memory_clock": ("memory clock, MHz", 1e-6)}
    quantities |= {"temperature": ("temperature, °C", 1.0), "power": ("power, W", 1.0)}
    for hue, (name, (title, unit)) in zip(PALETTE, quantities.items(), strict=False):
        rows = frame[frame[name].notna()]
        if rows.empty:
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
