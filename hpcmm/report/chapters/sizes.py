"""Rates over sizes and shapes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from statistics import geometric_mean

import pandas as pd

from hpcmm import analysis
from hpcmm.analysis import Series
from hpcmm.model import TEXTBOOK
from hpcmm.model.devices import DEVICES
from hpcmm.operations import OPERATIONS, dimensions
from hpcmm.report import formats, vega
from hpcmm.report.chapters.chapter import Answer, Chapter
from hpcmm.report.chapters.ladder import best, ladders
from hpcmm.report.findings import fastest_of, first_series, listed, rate_ratio
from hpcmm.report.formats import RateUnit, at_sizes, conditions, percent, rate, rate_unit_of, size_title
from hpcmm.report.markup import EMPTY, Cell, Table
from hpcmm.report.points import calculations, columns_of, described, titles_of, tooltips
from hpcmm.report.ratio import Ratio, differing, is_itself
from hpcmm.report.tables import Row, against_baseline, clock, failed, libraries, marked, marked_caption, of_size, result
from hpcmm.report.vega import INTERVAL, LINE, Figure, Spec, Style
from hpcmm.store import DIMENSIONS

LINES = 7  # of rungs in a figure of rates; more cannot be distinguished
RATIOS = 5  # of rungs in a figure of ratios, beside the tuned library


def ratio_against_size(series: Series, style: Mapping[str, Style], height: int = 300) -> Iterator[Figure]:
    """Draw the speed of the fastest rungs relative to the library, with that of the tuned library.

    Nothing is drawn for one or two sizes, or where no rung has a ratio.
    """
    known = series.points[series.points["ratio"].notna() & (series.points["baseline"] == 0)]
    known = known[(known["role"] == "rung") | (known["arithmetic"] == "")]
    known = known[known["algorithm"] == TEXTBOOK]
    if (known["role"] == "rung").any():
        yield from _against_size(series, known, style, height, RATIOS, "ratio")


def rate_against_size(series: Series, style: Mapping[str, Style], height: int = 340) -> Iterator[Figure]:
    """Draw GFLOP/s or GB/s of the kernel alone with 95 % intervals, the baselines and the hardware limits.

    Baselines are thick dashed lines in the colour of the text, above the others. Of many rungs the fastest are shown.
    Nothing is drawn for one or two sizes, which do not make a curve.
    """
    column = formats.rate_column(series.operation)
    yield from _against_size(series, series.points[series.points[column].notna()], style, height, LINES, "rate")


def _against_size(
    series: Series, known: pd.DataFrame, style: Mapping[str, Style], height: int, lines: int, field: str
) -> Iterator[Figure]:
    rates = formats.rate_unit_of(series.points)
    relative = field == "ratio"
    column, scaled = ("ratio", 1.0) if relative else (rates.column, rates.scale)
    known, which = formats.at_sizes(known, 128)
    known, among = _fastest(known, lines)
    multiples = {} if relative else _multiples(known)
    if multiples:  # the baseline, far above, would flatten the steps at the multiples
        known = known[known["baseline"] == 0]
    one_number = formats.size_is_one_number(known)
    if len(set(analysis.shapes(known))) < 3:
        return
    baseline = known["library"].iloc[0]
    unit = f"speed relative to {baseline}" if relative else rates.name
    known = known.assign(low_known=known[column + "_low"].notna())
    labels = known.sort_values("place", kind="stable")["label"].unique()
    style = vega.distinct(known, style)
    color, shape, dash = vega.styled("label", labels, style, symbolOpacity=1, symbolSize=70, symbolStrokeWidth=0)
    values, limit = known[column] / scaled, (known[column] / known["fraction"]).max() / scaled
    if relative:
        axis, limit = {"title": f"over {baseline}", "scale": {"zero": True}}, 1.0
    else:
        axis = vega.rate_axis(values, unit, zero=not multiples)
    axis = vega.framed(axis, values, *(known[column + end] / scaled for end in ("_low", "_high")), limit)
    first, last = ("from", "to") if relative else ("low", "high")
    rate, low, high = vega.quantity(field, **axis), vega.quantity(first, **axis), {"field": last}
    at_one = {"mark": {"type": "rule", "strokeWidth": 1.5}, "encoding": {"y" if one_number else "x": {"datum": 1}}}
    layers: list[Spec] = [at_one] if relative else []
    if one_number:
        position = {"x": vega.size_axis(known), "y": rate}
        ends = {"x": position["x"], "y": low, "y2": high}
        if not relative:
            limits = (
                _multiple_layers(multiples, position["x"]) if multiples else _limit_layers(known, position["x"], axis)
            )
            layers += limits
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
        y = vega.category("size", title=None, sort=shapes, axis={"grid": True})
        position = {"x": rate | {"axis": axis.get("axis", {}) | {"labelBound": True}}, "y": y}
        ends, height = {"x": low, "x2": high, "y": y}, max(120, 44 * len(shapes))
    marker = 60 if known["n"].nunique() <= 24 else 12  # a dense sweep's markers would hide its lines
    if known["low_known"].any():  # Vega warns about the extent of an empty layer
        enough = [{"filter": f"isValid(datum.{first})"}]
        interval = {"mark": INTERVAL | {"clip": True}, "transform": enough, "encoding": ends | {"color": color}}
        layers.append(interval | {"name": f"needs_{first}"})
    layers.append({
        "mark": vega.dots(marker),
        "transform": calculations(series),
        "encoding": {**position, "color": color, "shape": shape, "tooltip": tooltips(rates.name, series)},
    })  # fmt: skip
    what = unit[:1].upper() + unit[1:] if relative else f"{unit} of the kernel alone"
    caption = f"{what} by {'size' if one_number else 'shape'}, {described(series)}{among}"
    caption += _arithmetics(known, series) if relative else ""
    if multiples:
        widths = ", ".join(str(tile) for tile in sorted(set(multiples.values())))
        caption += f", without the baseline; vertical lines at the multiples of the tiles ({widths})"
    devices = known["device"].unique()
    columns = columns_of(known, series)
    if relative:
        columns |= {"from": vega.rounded(known["ratio_low"]), "to": vega.rounded(known["ratio_high"])}
    yield Figure(
        field, caption + which, columns, vega.layered(layers, height), titles_of(series), series.dtype,
        devices[0] if len(devices) == 1 else "",
    )  # fmt: skip


def _arithmetics(known: pd.DataFrame, series: Series) -> str:
    """Return what differs in the arithmetic of contenders, each after a semicolon."""
    rows = analysis.row_dicts(known.drop_duplicates("label"))
    named = [f"{row['label']}: {differing(row, {'dtype': series.dtype})}" for row in rows if row["arithmetic"]]
    return "".join(f"; {each}" for each in named)


def _fastest(known: pd.DataFrame, lines: int) -> tuple[pd.DataFrame, str]:
    """Return the rows of the libraries and of at most ``lines`` rungs, and a text about the rungs that are not shown.

    These are the rungs that lag least behind the fastest of their device, in the median over sizes.
    """
    rungs = known[known["role"] == "rung"]
    if rungs["label"].nunique() <= lines:
        return known, ""
    size = [rungs[name] for name in ("device", *dimensions())]
    lag = (rungs["seconds"] / rungs.groupby(size)["seconds"].transform("min")).groupby(rungs["label"]).median()
    kept = lag.nsmallest(lines, keep="first").index
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
    y = vega.quantity("limit", **axis)
    tooltip = [{"field": "ceiling", "title": "limit"}, {"field": "size"}, vega.quantity("limit", format=",.3r")]
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
    mark, width = {"type": "rule", "opacity": 0.25}, vega.quantity("width", scale=None, legend=None)
    return [{"data": {"values": values}, "mark": mark, "encoding": {"x": x, "strokeWidth": width}}]


POINT_COLUMNS = (
    *("sweep", "operation", "setting", "dtype", "ranks", *DIMENSIONS, "device", "machine", "variant", "tile"),
    *("label", "result", "where"),
    *("seconds", "seconds_low", "seconds_high", "repetitions"),
    *("flops_per_second", "flops_per_second_low", "flops_per_second_high"),
    *("bytes_per_second", "bytes_per_second_low", "bytes_per_second_high"),
    *("ratio", "ratio_low", "ratio_high", "library", "tuned_ratio", "tuned_ratio_low", "tuned_ratio_high"),
    *("tuned_library", "fraction", "ceiling", "clock"),
    *("error", "bound", "reference", "arithmetic", "pick", "schedule", "throttled", "event_seconds"),
    *("huge_pages", "huge_pages_most", "steal"),
)


def against_tuned(row: Row) -> str:
    """Format the ratio to the tuned library, ``"0.992× tuned"``; empty if it is unknown, and for that library."""
    ratio = Ratio.to_library(row, "tuned_ratio").short
    return f"{ratio} tuned" if ratio and not is_itself(row, "tuned_ratio") else ""


def size_table(series: Series, most: int | None = None) -> Table:
    """Make the table of sizes by variants: kernel rate, ratio to the baseline, fraction of the limit, PASS or FAIL.

    It has at most ``most`` sizes, if that is given.
    """
    labels = series.points.sort_values("place")["label"].unique()
    points, which = at_sizes(series.points, most or len(series.points))
    unit, lines = rate_unit_of(series.points), []
    for _, at in groupby(analysis.row_dicts(points), key=itemgetter(*dimensions())):
        rows = {row["label"]: row for row in at}
        known = [_rate_cell(rows[label], unit) if label in rows else EMPTY for label in labels]
        lines.append([of_size(next(iter(rows.values()))), *known])
    caption = "; ".join(filter(None, (f"{unit.name}, {conditions(series)}{which}", libraries(series.points))))
    head, of_rows = (size_title(series.points), *labels), [(line[0].text, "", "") for line in lines]
    devices = series.points.drop_duplicates("label").set_index("label")["device"]
    return Table(marked_caption(caption, points), head, lines, of_rows, ("", *(devices[label] for label in labels)))


def _rate_cell(row: Row, unit: RateUnit) -> Cell:
    if row["result"] != "PASS":
        return failed(row)
    alone = math.isfinite(row["seconds"])  # otherwise the algorithm is timed end to end only
    prefix = "" if alone else "call_"
    limit = f"{percent(row['fraction'])} at {clock(row)}" if row["clock"] > 0 else percent(row["fraction"])
    parts = ", ".join(filter(None, (against_baseline(row, prefix), against_tuned(row), limit)))
    notes = filter(None, ("" if alone else "end to end", parts, result(row).replace(", ", ",\n")))
    return Cell(marked(rate(row, prefix, unit), row), "\n".join(notes))


SEVERAL_SIZES = 4  # sizes over which a mean says more than each of them


def over_sizes(rows: pd.DataFrame) -> str:
    """Give the speed of a rung relative to the library over all sizes, for each element type.

    Of the rungs in the arithmetic of the type that were measured at each size, it is the one with the highest geometric
    mean of the speed relative to the faster of the library and the tuned library.
    """
    texts = []
    for dtype in dict.fromkeys(rows["dtype"]):
        here = first_series(rows[rows["dtype"] == dtype])
        sizes = set(analysis.shapes(here))
        ours = here[(here["role"] == "rung") & (here["arithmetic"] == "") & (here["ratio"] > 0)]
        whole = [own for _, own in ours.groupby("label") if set(analysis.shapes(own)) == sizes]
        if len(sizes) < SEVERAL_SIZES or not whole:
            continue
        own = max(whole, key=lambda own: geometric_mean(own["lead"]))
        of_rung = analysis.row_dicts(own.sort_values("lead", kind="stable"))
        means = [
            f"{formats.times(geometric_mean(own[ratio]))} {own[library].iloc[0]}"
            for ratio, library in (("ratio", "library"), ("tuned_ratio", "tuned_library"))
            if own[ratio].notna().all()
        ]
        several = len(means) > 1
        least, most = (f"{formats.times(row['lead'])} at {formats.size(row)}" for row in (of_rung[0], of_rung[-1]))
        text = f"Over {len(sizes)} sizes in {dtype}, {own['label'].iloc[0]} has {listed(means)} (geometric mean"
        text += f"{'s). Relative to the faster of both it is' if several else '),'} from {least} to {most}"
        slower = [formats.size(row) for row in of_rung if row["lead_high"] < 1]
        texts.append(f"{text}; significantly slower at {listed(slower)}." if slower else f"{text}.")
    return " ".join(texts)


def shapes(rows: pd.DataFrame) -> str:
    """Compare the rate of other shapes with that of the square product of equal work."""
    if OPERATIONS[rows["operation"].iloc[0]].dimensions != DIMENSIONS:
        return ""
    texts = []
    for label in _listed_first(rows):
        own = rows[rows["label"] == label]
        square = (own["m"] == own["n"]) & (own["k"] == own["n"])
        found = [
            (rate_ratio(row, equal), row, equal)
            for row in analysis.row_dicts(own[~square])
            for equal in analysis.row_dicts(own[square])
            if abs(row["flops"] / equal["flops"] - 1) < 0.01
        ]
        if found:
            (low, at_low, square_row), (high, at_high, _) = (
                f(found, key=lambda each: each[0].value) for f in (min, max)
            )
            text = f"{label} {formats.times(low.value)} ({formats.size(at_low)})"
            if len(found) > 1:
                text += f" to {formats.times(high.value)} ({formats.size(at_high)})"
            texts.append((formats.size(square_row), text))
    if not texts:
        return ""
    sizes, rates = listed(size for size, _ in texts), ", ".join(text for _, text in texts)
    return f"Rate relative to the square product of equal work ({sizes}): {rates}."


def _listed_first(rows: pd.DataFrame) -> list[str]:
    """Return the label of the fastest rung at the largest size and that of the baseline, for each device."""
    labels = []
    for device in DEVICES:
        here = rows[rows["device"] == device]
        if not here.empty:
            labels += [row["label"] for row in fastest_of(analysis.largest(here), ("baseline",))]
    return labels


CHAPTER = Chapter(
    "sizes",
    "Sizes and shapes",
    "At which sizes and shapes is which rung the fastest?",
    (ratio_against_size, rate_against_size, ladders),
    (Answer(best, each_device=True, each_size=True), Answer(over_sizes, "rungs", each_device=True), Answer(shapes)),
)
