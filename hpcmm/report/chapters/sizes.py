"""Rates over sizes and shapes."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import geometric_mean

from hpcmm import analysis
from hpcmm.model import TEXTBOOK
from hpcmm.model.devices import DEVICES
from hpcmm.operations import OPERATIONS
from hpcmm.report import formats, vega
from hpcmm.report.chapters.chapter import Answer, chapter
from hpcmm.report.chapters.ladder import best, ladders
from hpcmm.report.findings import fastest_of, first_series, listed, rate_ratio
from hpcmm.report.formats import RateUnit, at_sizes, conditions, rate, rate_unit_of, size_title
from hpcmm.report.markup import EMPTY, Cell, Table
from hpcmm.report.points import calculations, columns_of, described, titles_of, tooltips
from hpcmm.report.ratio import Ratio, differing, is_itself
from hpcmm.report.tables import Row, against_baseline, clock, failed, libraries, marked, marked_caption, of_size, result
from hpcmm.store import DIMENSIONS
from hpcmm.system.text import percent

LINES = 7  # of rungs in a figure of rates; more cannot be distinguished
MANY, MOST_LEAD = 24, 1.25  # shapes from which on a map shows them, and the ratio at the end of its colours
RATIOS = 5  # of rungs in a figure of ratios, beside the tuned library
MOST_SIZES = 32  # of a table; the CSV file has all


def ratio_against_size(series: analysis.Series, height: int = 300) -> Iterator[vega.Figure]:
    """Draw the speed of the fastest rungs relative to the library, with that of the tuned library."""
    known = [row for row in series.rows if row["ratio"] > 0 and not row["baseline"] and row["algorithm"] == TEXTBOOK]
    known = [row for row in known if row["role"] == "rung" or not row["arithmetic"]]
    if any(row["role"] == "rung" for row in known):
        yield from _against_size(series, known, height, RATIOS, "ratio")


def map_of_shapes(series: analysis.Series) -> Iterator[vega.Figure]:
    """Draw the speed of a rung relative to the faster library as the colour of a point for each of many shapes."""
    points = _leading(series.rows)
    if len(points) < MANY or formats.size_is_one_number(points):
        return
    names = dict.fromkeys(row[name] for row in points for name in ("library", "tuned_library") if row[name])
    library = " and ".join(names)
    axis = {"scale": {"type": "log", "base": 2, "nice": False, "padding": 12}, "axis": {"format": "d", "tickCount": 8}}
    x, y = vega.quantity("side", title="√(m n)", **axis), vega.quantity("k", title="k", **axis)
    hues = [vega.PALETTE[1], vega.GREY, vega.PALETTE[0]]
    scale = {"domain": [1 / MOST_LEAD, 1, MOST_LEAD], "range": hues, "clamp": True}
    legend = {"format": ".2f", "values": scale["domain"], "gradientLength": 200, "titleLimit": 300}
    heat = vega.quantity("lead", title="over the faster library", scale=scale, legend=legend)
    tooltip = [*tooltips(series), vega.quantity("lead", title="lead", format=".3r")]
    layers = [vega.layer(vega.dots(90), transform=calculations(series), x=x, y=y, color=heat, tooltip=tooltip)]
    own = {"side": [math.sqrt(row["m"] * row["n"]) for row in points]}
    own |= {name: [row[name] for row in points] for name in ("k", "lead")}
    columns = columns_of(points, series) | {name: vega.rounded(values) for name, values in own.items()}
    caption = f"Speed of {points[0]['label']} over the faster of {library} at {len(points)} shapes, {described(series)}"
    devices = list({row["device"] for row in points})
    yield vega.Figure("map", caption, columns, vega.layered(layers, 360), titles_of(series), series.dtype, devices[0])


def rate_against_size(series: analysis.Series) -> Iterator[vega.Figure]:
    """Draw GFLOP/s or GB/s of the kernel alone with 95 % intervals, the baselines and the hardware limits.

    Baselines are thick dashed lines in the colour of the text, above the others. Of many rungs the fastest are shown.
    """
    column = formats.rate_column(series.operation)
    timed = [row for row in series.rows if row[column] > 0]
    yield from _against_size(series, timed, 340, LINES, "rate")


def _against_size(
    series: analysis.Series, known: Sequence[Row], height: int, lines: int, field: str
) -> Iterator[vega.Figure]:
    rates = formats.rate_unit_of(series.rows)
    relative = field == "ratio"
    column, scaled = ("ratio", 1.0) if relative else (rates.column, rates.scale)
    known, which = formats.at_sizes(known, 128)
    known, among = _fastest(known, lines)
    multiples = {} if relative else _multiples(known)
    if multiples:  # the baseline, far above, would flatten the steps at the multiples
        known = [row for row in known if not row["baseline"]]
    one_number, sizes = formats.size_is_one_number(known), analysis.by_size(known)
    if len(sizes) < 3:
        return
    baseline = known[0]["library"]
    unit = f"speed relative to {baseline}" if relative else rates.name
    dense = len({row["n"] for row in known}) > 24  # markers would hide the lines
    symbol = {"symbolType": "stroke", "symbolSize": 400} if dense else {"symbolSize": 70, "symbolStrokeWidth": 0}
    color, shape, dash = vega.styled(known, symbolOpacity=1, **symbol)
    values, *ends = ([row[column + end] / scaled for row in known] for end in ("", "_low", "_high"))
    if relative:
        axis, limit = {"title": f"over {baseline}", "scale": {"zero": True}}, 1.0
    else:
        axis = vega.rate_axis(values, unit, zero=not multiples)
        _, limit = vega.extent(row[column] / (row["fraction"] or math.nan) / scaled for row in known)
    axis = vega.framed(axis, values, *ends, limit)
    some_ends = any(each > 0 for each in ends[0])
    first, last = ("from", "to") if relative else ("low", "high")
    rate, low, high = vega.quantity(field, **axis), vega.quantity(first, **axis), {"field": last}
    at_one = vega.layer({"type": "rule", "strokeWidth": 1.5}, **{"y" if one_number else "x": {"datum": 1}})
    layers: list[vega.Spec] = [at_one] if relative else []
    if one_number:
        position = {"x": vega.size_axis(known), "y": rate}
        ends = {"x": position["x"], "y": low, "y2": high}
        if not relative:
            x = position["x"]
            layers += _multiple_layers(multiples, x) if multiples else _limit_layers(known, x, axis)
        # the library last: lines of rungs that are as fast must not hide it
        for baseline, own in ((0, {"strokeWidth": 1.75}), (1, {"strokeWidth": 3, "strokeDash": [7, 4]})):
            if any(row["baseline"] == baseline for row in known):
                encoding = {**position, "color": color} | ({} if baseline else {"strokeDash": dash})
                layers.append(vega.layer({"type": "line"} | own, f"datum.baseline == {baseline}", **encoding))
    else:
        # Shapes have no order for a line, and long names: one row each.
        shapes = [formats.size(at[0]) for at in sizes.values()]
        y = vega.category("size", title=None, sort=shapes, axis={"grid": True})
        ticks = {"labelBound": True, "tickCount": {"expr": "ceil(width / 80)"}}
        position = {"x": rate | {"axis": ticks | axis.get("axis", {})}, "y": y}
        ends, height = {"x": low, "x2": high, "y": y}, max(120, 44 * len(shapes))
    if some_ends:  # Vega warns about the extent of an empty layer
        interval = vega.layer(vega.INTERVAL | {"clip": True}, f"isValid(datum.{first})", **ends, color=color)
        layers.append(interval | {"name": f"needs_{first}"})
    marks = {"color": color, "tooltip": tooltips(series)} | ({} if dense else {"shape": shape})
    layers.append(vega.layer(vega.dots(12 if dense else 60), transform=calculations(series), **position, **marks))
    what = unit[:1].upper() + unit[1:] if relative else f"{unit} of the kernel alone"
    caption = f"{what} by {'size' if one_number else 'shape'}, {described(series)}{among}"
    differs = {row["label"]: differing(row, {"dtype": series.dtype}) for row in known if row["arithmetic"] and relative}
    caption += "".join(f"; {label}: {text}" for label, text in differs.items())
    if multiples:
        widths = ", ".join(str(tile) for tile in sorted(set(multiples.values())))
        caption += f", without the baseline; vertical lines at the multiples of the tiles ({widths})"
    devices = list({row["device"] for row in known})
    columns = columns_of(known, series)
    if relative:
        lows, highs = ([row[f"ratio_{end}"] for row in known] for end in ("low", "high"))
        columns |= {"from": vega.rounded(lows), "to": vega.rounded(highs)}
    spec, device = vega.layered(layers, height), devices[0] if len(devices) == 1 else ""
    yield vega.Figure(field, caption + which, columns, spec, titles_of(series), series.dtype, device)


def _fastest(known: Sequence[Row], lines: int) -> tuple[Sequence[Row], str]:
    """Return the rows of the libraries and of at most ``lines`` rungs, and a text about those that are not shown."""
    rungs = [label for (label,) in vega.lags((row for row in known if row["role"] == "rung"), "label")]
    if len(rungs) <= lines:
        return known, ""
    kept = rungs[:lines]
    among = f"; the {len(kept)} fastest of {len(rungs)} rungs, the table has all"
    return [row for row in known if row["role"] != "rung" or row["label"] in kept], among


def _limit_layers(known: Sequence[Row], x: vega.Spec, axis: vega.Spec) -> list[vega.Spec]:
    """Draw the hardware limit of each arithmetic as a dotted line with its name."""
    limited = [row for row in known if row["fraction"] > 0]  # a limit may be unknown
    if not limited:
        return []
    # a limit is named at its largest size; one that holds at smaller sizes only would be a line without a name
    largest = max(row["n"] for row in limited)
    named = json.dumps(sorted({row["ceiling"] for row in limited if row["n"] == largest}), ensure_ascii=False)
    median = [
        {"filter": f"isValid(datum.fraction) && indexof({named}, datum.ceiling) >= 0"},
        {"calculate": "datum.rate / datum.fraction", "as": "limit"},
        {"aggregate": [{"op": "median", "field": "limit", "as": "limit"}], "groupby": ["n", "size", "ceiling"]},
    ]
    y = vega.quantity("limit", **axis)
    tooltip = [{"field": "ceiling", "title": "limit"}, {"field": "size"}, vega.quantity("limit", format=",.3r")]
    last = {"filter": f"datum.n == {largest}"}
    line = {"type": "line", "strokeDash": [1, 3], "strokeWidth": 2, "color": vega.LINE, "point": False}
    name = [*median, last, {"calculate": "'limit of ' + datum.ceiling", "as": "name"}]
    text = {"type": "text", "align": "right", "dy": -8, "fontSize": 11}
    layers = [
        vega.layer(line, transform=median, x=x, y=y, detail={"field": "ceiling"}, tooltip=tooltip),
        vega.layer(text, transform=name, x=x, y=y, text={"field": "name"}),
    ]
    # the page leaves a layer out if the chosen rows lack what it needs
    return [layer | {"name": f"needs_fraction_{i}"} for i, layer in enumerate(layers, 1)]


def _multiples(known: Sequence[Row]) -> dict[int, int]:
    """Map sizes that are multiples of a tile to the widest such tile; empty unless the sweep has every size."""
    tiles, sizes = sorted({row["tile"] for row in known if row["tile"]}), sorted({row["n"] for row in known})
    if not tiles or len(sizes) < 24 or sizes[-1] - sizes[0] >= len(sizes):
        return {}
    return {n: max(t for t in tiles if n % t == 0) for n in sizes if any(n % t == 0 for t in tiles)}


def _multiple_layers(multiples: Mapping[int, int], x: vega.Spec) -> list[vega.Spec]:
    widest = max(multiples.values())
    values = [{"n": n, "width": 2 if tile == widest else 1} for n, tile in multiples.items()]
    mark, width = {"type": "rule", "opacity": 0.25}, vega.quantity("width", scale=None, legend=None)
    return [{"data": {"values": values}, "mark": mark, "encoding": {"x": x, "strokeWidth": width}}]


def size_table(series: analysis.Series) -> Table:
    """Make the table of sizes by variants: kernel rate, ratio to the baseline, part of the limit."""
    labels = vega.first_of_labels(series.rows)
    points, which = at_sizes(series.rows, MOST_SIZES)
    unit, lines = rate_unit_of(series.rows), []
    for at in analysis.by_size(points).values():
        rows = {row["label"]: row for row in at}
        known = [_rate_cell(rows[row["label"]], unit) if row["label"] in rows else EMPTY for row in labels]
        lines.append([of_size(at[0]), *known])
    caption = "; ".join(filter(None, (f"{unit.name}, {conditions(series)}{which}", libraries(series.rows))))
    head = (size_title(series.rows), *(row["label"] for row in labels))
    return Table(marked_caption(caption, points), head, lines, (), ("", *(row["device"] for row in labels)))


def _rate_cell(row: Row, unit: RateUnit) -> Cell:
    if row["result"] != "PASS":
        return failed(row)
    alone = math.isfinite(row["seconds"])  # otherwise the algorithm is timed end to end only
    prefix = "" if alone else "call_"
    limit = f"{percent(row['fraction'])} at {clock(row)}" if row["clock"] > 0 else percent(row["fraction"])
    ratio = Ratio.to_library(row, "tuned_ratio").short  # empty if it is unknown
    tuned = f"{ratio} tuned" if ratio and not is_itself(row, "tuned_ratio") else ""
    parts = ", ".join(filter(None, (against_baseline(row, prefix), tuned, limit)))
    notes = filter(None, ("" if alone else "end to end", parts, result(row).replace(", ", ",\n")))
    return Cell(marked(rate(row, prefix, unit), row), "\n".join(notes))


SEVERAL_SIZES = 4  # sizes over which a mean says more than each of them


def over_sizes(rows: Sequence[Row]) -> str:
    """Give the speed of a rung relative to the library over all sizes, for each element type.

    Of the rungs in the arithmetic of the type that were measured at each size, it is the one with the highest geometric
    mean of the speed relative to the faster of the library and the tuned library.
    """
    texts = []
    for (dtype,), of_type in analysis.grouped(rows, "dtype").items():
        points = _leading(first_series(of_type))
        if len(points) < SEVERAL_SIZES:
            continue
        of_rung = sorted(points, key=lambda row: row["lead"])
        means = [
            f"{formats.times(geometric_mean(row[ratio] for row in points))} {points[0][library]}"
            for ratio, library in (("ratio", "library"), ("tuned_ratio", "tuned_library"))
            if all(row[ratio] > 0 for row in points)
        ]
        several = len(means) > 1
        least, most = (f"{formats.times(row['lead'])} at {formats.at(row)}" for row in (of_rung[0], of_rung[-1]))
        text = f"Over {len(points)} sizes in {dtype}, {points[0]['label']} has {listed(means)} (geometric mean"
        text += f"{'s). Relative to the faster of both it is' if several else '),'} from {least} to {most}"
        slower = [formats.size(row) for row in of_rung if row["lead_high"] < 1]
        texts.append(f"{text}; significantly slower at {listed(slower)}." if slower else f"{text}.")
    return " ".join(texts)


def _leading(rows: Sequence[Row]) -> Sequence[Row]:
    """Return the points of the rung with the highest mean lead, of those in the type's arithmetic with all sizes.

    Sizes at which no result of the library is right do not count.
    """
    compared = [row for row in rows if row["role"] == "rung" and not row["arithmetic"] and row["lead"] > 0]
    sizes, of_rung = analysis.by_size(compared), analysis.grouped(compared, "label")
    whole = [points for _, points in sorted(of_rung.items()) if len(analysis.by_size(points)) == len(sizes)]
    return max(whole, key=lambda points: geometric_mean(row["lead"] for row in points), default=())


def shapes(rows: Sequence[Row]) -> str:
    """Compare the rate of other shapes with that of the square product of equal work."""
    if OPERATIONS[rows[0]["operation"]].dimensions != DIMENSIONS:
        return ""
    texts = []
    on_devices = ([row for row in rows if row["device"] == device] for device in DEVICES)
    # of each device the fastest rung at the largest size, and the baseline
    for label in [row["label"] for own in on_devices for row in fastest_of(analysis.largest(own), "baseline")]:
        own = [row for row in rows if row["label"] == label]
        square = [row for row in own if row["m"] == row["n"] == row["k"]]
        others = ((row, equal) for row in own if not row["m"] == row["n"] == row["k"] for equal in square)
        alike = [(row, equal) for row, equal in others if abs(row["flops"] / equal["flops"] - 1) < 0.01]
        if found := sorted(((rate_ratio(*pair), *pair) for pair in alike), key=lambda each: each[0].value):
            (low, at_low, square_row), (high, at_high, _) = found[0], found[-1]
            text = f"{label} {formats.times(low.value)} ({formats.size(at_low)})"
            if len(found) > 1:
                text += f" to {formats.times(high.value)} ({formats.size(at_high)})"
            texts.append((formats.size(square_row), text))
    if not texts:
        return ""
    sizes, rates = listed(size for size, _ in texts), ", ".join(text for _, text in texts)
    return f"Rate relative to the square product of equal work ({sizes}): {rates}."


CHAPTER = chapter(
    "sizes",
    figures=(map_of_shapes, ratio_against_size, rate_against_size, ladders),
    answers=(Answer(best, each_device=True), Answer(over_sizes, "rungs", each_device=True), Answer(shapes)),
)
