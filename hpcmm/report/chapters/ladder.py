"""The ladder: one bar a rung."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from hpcmm import analysis
from hpcmm.model import TEXTBOOK
from hpcmm.operations import OPERATIONS
from hpcmm.report import findings, formats, tables, vega
from hpcmm.report.chapters.chapter import Answer, Tabulated, chapter
from hpcmm.report.findings import fastest_of, name_of, relative
from hpcmm.report.markup import EMPTY, Cell, Table, words
from hpcmm.report.points import calculations, columns_of, described, titles_of, tooltips
from hpcmm.report.ratio import Ratio, arithmetic_of, is_itself
from hpcmm.report.tables import Column, Row
from hpcmm.report.vega import BESIDE, LINE, PALETTE, Figure, Spec
from hpcmm.system.text import number, percent

OTHERS = "others:"  # the label between the climb and the other rungs
NARROW = "width < 300"  # a plot, as on a phone: beside a bar stands the factor alone
LEAST_BRANCHES = 3  # that have a figure of their own


def ladders(series: analysis.Series) -> Iterator[Figure]:
    """Draw the climb: the rungs from the first to the fastest, each the counterpart of the next, then all others.

    A bar is the speed relative to the library. Rungs in another arithmetic and libraries have other marks. Lessons that
    branch off the climb are in a second figure, each relative to its counterpart. Where no rung has a ratio, the bars
    are rates. All are of the largest size.
    """
    for (device,), points in analysis.grouped(series.rows, "device").items():
        # the fastest tile represents the rung; a wrong one does only if all are wrong
        rungs: dict[tuple, Row] = {}
        for row in findings.fastest_first(analysis.largest(points)):
            rungs.setdefault((row["variant"], row["algorithm"], row["memory"]), row)
        shown = sorted(rungs.values(), key=lambda row: row["place"])
        exchanging = [row for row in shown if row["algorithm"] != TEXTBOOK]
        if exchanging:  # the kernel of TEXTBOOK exchanges nothing
            shown = [row for row in exchanging if row["result"] != "PASS" or row["seconds"] > 0]
        for figure in _climb(series, shown):
            yield replace(figure, dtype=series.dtype, device=device, name=f"{figure.name}-{device}")


def _climb(series: analysis.Series, rows: Sequence[Row]) -> Iterator[Figure]:
    """Draw the rungs at one size on one device: the climb with the others, and the branches."""
    rungs = {row["label"]: row for row in rows}
    steps = {row["label"]: row for row in analysis.ladder(rows) if row["step"] > 0}
    climb = chain_of(rungs, steps)
    lessons = {each.name for each in OPERATIONS[series.operation].ladder if each.shelf == "lesson"}
    branches = [label for label in steps if label not in climb and rungs[label]["variant"] in lessons]
    branches = branches if len(climb) > 2 and len(branches) >= LEAST_BRANCHES else []
    labels = [*climb, *(each for each in rungs if each not in (*climb, *branches))]
    if figure := _ladder(series, [rungs[label] for label in labels], len(climb)):
        yield figure
    if branches:
        yield _branches(series, [steps[label] for label in branches])


def chain_of(rungs: Mapping[str, Row], steps: Mapping[str, Row]) -> list[str]:
    """Return the labels from the first rung to the fastest one in the arithmetic of the type, by counterparts."""
    own = [label for label, row in rungs.items() if label in steps and not row["arithmetic"]]
    if not own:
        return []
    chain = [min(own, key=lambda label: rungs[label]["seconds"])]
    while chain[0] in steps:
        chain.insert(0, steps[chain[0]]["counterpart"])
    return chain


def _ladder(series: analysis.Series, rows: Sequence[Row], climb: int) -> Figure | None:
    """Draw the ``climb``, which is the first rows, and the others."""
    # the ratio of a distributed algorithm is to TEXTBOOK with the same variant, not to the library
    own = [row for row in rows if row["result"] == "PASS" and not row["baseline"] and row["algorithm"] == TEXTBOOK]
    relative = any(row["ratio"] > 0 for row in own)
    rates = formats.rate_unit_of(series.rows)
    prefix, scale = ("ratio", 1.0) if relative else (rates.column, rates.scale)
    value = [row[prefix] / scale for row in rows]
    if len(rows) < 2 or not any(each > 0 for each in value):
        return None
    texts = [_bar_text(row, relative, rates) for row in rows]
    gains = [""] + [f"↓ {formats.times(one['seconds'] / row['seconds'])}" for one, row in pairwise(rows[:climb])]
    kinds = ["mark" if row["arithmetic"] else "bar" for row in rows]
    columns = columns_of(rows, series) | {"value": vega.rounded(value)}
    for name, end in (("from", "_low"), ("to", "_high")):
        columns[name] = vega.rounded([row[prefix + end] / scale for row in rows])
    columns["gain"] = gains + [""] * (len(rows) - len(gains))
    columns["kind"] = [kind if number > 0 else "none" for kind, number in zip(kinds, value, strict=True)]
    columns["text"] = texts
    climbing, others = columns["label"][:climb], columns["label"][climb:]
    low = min(each for each in value if each > 0) / 1.5
    labels = [*climbing, *([OTHERS] if climb and others else []), *others]
    # leaves room for the labels after the bars, and after the line at 1
    floor = 1.0 if relative else low
    ends = [max(filter(None, (*pair, floor))) for pair in zip(columns["value"], columns["to"], strict=True)]
    baseline = rows[0]["library"]
    title = f"speed relative to {baseline}" if relative else rates.name
    axis = f"over {baseline}" if relative else rates.name  # the caption says what it is; a narrow axis has no room
    x, y = _axes(axis, low, ends, texts, labels)
    tooltip = tooltips(series)
    end = f"max(isValid(datum.to) ? datum.to : 0, isValid(datum.value) ? datum.value : 0, {floor:.6g})"
    bars = [*calculations(series), {"filter": "datum.kind == 'bar'"}]
    above = {"type": "text", "align": "left", "dx": 6, "dy": {"expr": f"-height / {2 * len(labels)}"}, "fontSize": 10}
    # libraries are in the colour of the text
    hues, test = {"color": (LINE, PALETTE[0]), "opacity": (0.45, 1)}, {"test": "datum.library == 1"}
    grey = {name: {"condition": test | {"value": one}, "value": other} for name, (one, other) in hues.items()}
    layers: list[Spec] = [
        _bars(x, y, low, grey | {"tooltip": tooltip}, bars),
        _beside(y, end),
        vega.layer(above, "datum.gain != ''", x={"datum": floor}, y=y, text={"field": "gain"}),
    ]
    if "mark" in columns["kind"]:
        mark = {"type": "point", "shape": "diamond", "filled": True, "size": 90, "color": PALETTE[1]}
        layers.append(vega.layer(mark, "datum.kind == 'mark'", calculations(series), x=x, y=y, tooltip=tooltip))
    if any(each is not None for each in columns["from"]):  # Vega warns about the extent of an empty layer
        mark = {"type": "rule", "strokeWidth": 1.5, "clip": True}  # a wide interval would cross the labels
        enough = "isValid(datum.from) && !datum.baseline"
        layers.append(vega.layer(mark, enough, x=vega.quantity("from"), x2={"field": "to"}, y=y))
    if relative:
        layers.insert(1, vega.layer({"type": "rule", "opacity": 0.35}, x={"datum": 1}))
    caption = f"{formats.device(rows[0]['device'])} at {formats.size(rows[0])}, {described(series)}: {title}"
    caption += "; between the bars the gain of a step" if climb > 1 else ""
    caption += "; diamond: other arithmetic" if "mark" in columns["kind"] else ""
    caption += "; grey: for comparison, no rungs" if columns["library"].count(1) > sum(columns["baseline"]) else ""
    spec = vega.layered(layers, 25 * len(labels) + 8)
    return Figure("ladder", caption, columns, spec, titles_of(series) | {"gain": "Gain"})


def _axes(
    title: str, low: float, ends: Sequence[float], texts: Sequence[str], labels: Sequence[str]
) -> tuple[Spec, Spec]:
    """Return a logarithmic axis from ``low`` with room for a text after the end of each bar, and that of the labels."""
    needed = []
    for end, text in zip(ends, texts, strict=True):
        short = vega.text_width("".join(text.partition("×")[:2]))
        room = f"width - {short} - {vega.text_width(text) - short} * (1 - ({NARROW}))"
        needed.append(f"{low:.6g} * pow({end / low:.6g}, width / max({room}, 24))")
    tens = range(math.floor(math.log10(low)), math.ceil(math.log10(max(ends))) + 1)
    ticks = [step * 10.0**ten for ten in tens for step in (1, 2, 5)]
    scale = {"type": "log", "domainMin": low, "domainMax": {"expr": f"max({', '.join(needed)})"}, "nice": False}
    axis = {"labelBound": True, "grid": False, "format": "~r", "labelOverlap": "greedy"}
    axis["values"] = [tick for tick in ticks if low <= tick <= 2 * max(ends)]
    x = vega.quantity("value", title=title, scale=scale, axis=axis)
    axis = {"labelLimit": 200, "labelPadding": 6, "ticks": False, "domain": False}
    return x, vega.category("label", scale={"domain": labels}, title=None, axis=axis)


def _bars(x: Spec, y: Spec, start: float, channels: Spec, transform: Sequence[Spec] = ()) -> Spec:
    steps = [*transform, {"calculate": f"{start:.6g}", "as": "start"}]
    bar = {"type": "bar", "height": {"band": 0.55}}
    return vega.layer(bar, transform=steps, x=x, x2={"field": "start"}, y=y, **channels)


def _beside(y: Spec, end: str) -> Spec:
    """Return a layer with the text of each bar after its end, an expression."""
    short = f"{NARROW} ? replace(datum.text, regexp('×.*'), '×') : datum.text"
    mark = {"type": "text", "align": "left", "dx": 6}
    steps = [{"calculate": end, "as": "end"}, {"calculate": short, "as": "beside"}]
    return vega.layer(mark, transform=steps, x=vega.quantity("end"), y=y, text={"field": "beside"}) | {"name": BESIDE}


def _branches(series: analysis.Series, steps: Sequence[Row]) -> Figure:
    """Draw the speed of each branch relative to its counterpart, whose name stands beside it."""
    ratios = [Ratio.of(row, row["compared"]) for row in steps]
    texts = [f"{formats.times(ratio.value)} {row['counterpart']}" for row, ratio in zip(steps, ratios, strict=True)]
    columns = {"label": [row["label"] for row in steps], "text": texts}
    columns |= {name: vega.rounded([getattr(ratio, name) for ratio in ratios]) for name in ("value", "low", "high")}
    least = min(1.0, *columns["value"]) / 1.3
    ends = [max(value, 1.0) for value in columns["value"]]
    x, y = _axes("relative to the counterpart", least, ends, texts, columns["label"])
    color = {"condition": {"test": "datum.value < 1", "value": PALETTE[5]}, "value": PALETTE[0]}
    tooltip = [{"field": "label"}, {"field": "text"}, *(vega.quantity(name, format=".3r") for name in ("low", "high"))]
    layers: list[Spec] = [
        _bars(x, y, 1.0, {"color": color, "tooltip": tooltip}),
        vega.layer({"type": "rule", "opacity": 0.35}, x={"datum": 1}),
        _beside(y, "max(datum.value, 1)"),
    ]
    shown = {"label": "Rung", "text": "Speed over its counterpart", "low": "from", "high": "to"}
    at = f"{formats.device(steps[0]['device'])} at {formats.size(steps[0])}, {described(series)}"
    spec = vega.layered(layers, 25 * len(steps) + 8)
    return Figure("branches", f"{at}: what one idea changes alone", columns, spec, shown)


def _bar_text(row: Mapping, relative: bool, unit: formats.RateUnit) -> str:
    """Return the text beside a bar, ``"0.85× (43 TFLOP/s)"``, or with the arithmetic if it is not the library's."""
    if row["result"] != "PASS":
        return row["result"]
    rate = formats.rate_text(row)
    if not relative or row["baseline"]:
        return rate
    ratio = Ratio.to_library(row)
    if not math.isfinite(ratio.value):
        return rate
    # the library's arithmetic is that of the element type, which the caption names; more would not fit beside a bar
    return f"{formats.times(ratio.value)} ({arithmetic_of(row) if ratio.arithmetics else rate})"


def tuned_cell(row: Row) -> Cell:
    """Return the ratio to the tuned library with its interval, or why there is none."""
    ratio = Ratio.to_library(row, "tuned_ratio")
    if math.isfinite(ratio.value):
        ends = formats.ends(row, "tuned_ratio", number)
        return words("itself") if is_itself(row, "tuned_ratio") else Cell(ratio.short, ends)
    if not row["tuned_library"]:
        return Cell("–", "this library has no tuned call")
    return Cell("–", f"{row['tuned_library'].partition(' ')[0]} was not measured beside it")


def ladder_table(series: analysis.Series) -> Table | None:
    """Make the table of the ladder at each size; None for a product at several sizes."""

    def if_passed(cell: Column, otherwise: Column = lambda row: EMPTY) -> Column:
        return lambda row: cell(row) if row["result"] == "PASS" else otherwise(row)

    def ratio_cell(row: Row) -> Cell:
        return Cell(tables.against_baseline(row), "" if row["baseline"] else formats.ends(row, "ratio", number))

    def time_cell(row: Row) -> Cell:
        time = tables.marked(formats.duration(row["seconds"]), row)
        return Cell(time, formats.ends(row, "seconds", formats.duration))

    if OPERATIONS[series.operation].metric == "flops" and len(analysis.by_size(series.rows)) > 1:
        return None
    some, which = formats.at_sizes(series.rows, 4)
    unit = formats.rate_unit_of(series.rows)
    columns: dict[str, Column] = {
        formats.size_title(series.rows): tables.of_size,
        "Device": tables.text("device"),
        "Rung": tables.text("label"),
        "Time": time_cell,
        unit.name: lambda row: Cell(formats.rate(row, unit=unit)),
        "Step": tables.value("step", formats.times),
        "Cumulative": tables.value("cumulative", formats.times),
        "Ratio to baseline": if_passed(ratio_cell),
    }
    if any(row["ratio"] > 0 and row["tuned_library"] for row in series.rows):
        columns["Ratio to tuned library"] = if_passed(tuned_cell)
    columns["Of limit"] = if_passed(lambda row: Cell(percent(row["fraction"]), row["ceiling"]))
    if any(row["fraction"] > 0 for row in series.rows):
        columns["SM clock"] = if_passed(lambda row: Cell(tables.clock(row)))
    columns["Result"] = if_passed(lambda row: words(tables.result(row)), tables.failed)
    parts = f"Ladder, {formats.conditions(series)}{which}", tables.libraries(some)
    caption = tables.marked_caption("; ".join(filter(None, parts)), some)
    return tables.table(caption, analysis.ladder(some), columns, leading=2)


def best(rows: Sequence[Row]) -> str:
    """Name the fastest rung at the largest size, and also the fastest one in the arithmetic of the element type."""
    ours = [row for row in analysis.largest(rows) if row["role"] == "rung"]
    row = findings.quickest(ours)
    if row is None:
        return ""
    at = f"At {formats.at(row)} in {row['dtype']} the fastest rung of the {formats.device(row['device'])}"
    if len({each["variant"] for each in ours}) == 1:
        return f"{at.replace('fastest rung of', 'only rung timed on')} is {_reached(row)}."
    text = f"{at} is {_reached(row)}."
    plain = findings.quickest(each for each in ours if not each["arithmetic"])
    if row["arithmetic"] and plain:
        text += f" In {row['dtype']} arithmetic the fastest rung is {_reached(plain)}."
    return text


def _reached(row: Row) -> str:
    return f"{name_of(row)}: {', '.join([formats.rate_text(row), *relative(row)])}"


def order(rows: Sequence[Row]) -> str:
    """Say how far the ladder climbs at the largest size and in how many steps, and name the largest ones."""
    fastest = {row["label"]: row for row in fastest_of(filter(analysis.climbs, analysis.largest(rows)))}
    steps = {row["label"]: row for row in analysis.ladder(fastest.values()) if row["step"] > 0}
    chain = chain_of(fastest, steps)
    if len(chain) < 3:
        return ""
    climbed = [(steps[label], Ratio.of(steps[label], steps[label]["compared"])) for label in chain[1:]]
    faster = sum(ratio.faster for _, ratio in climbed)
    largest = sorted(climbed, key=lambda each: -each[1].value)[:3]
    row = fastest[chain[-1]]
    gain = formats.times(fastest[chain[0]]["seconds"] / row["seconds"])
    text = f"On the {formats.device(row['device'])} at {formats.at(row)}, {chain[-1]} is {gain} {chain[0]}, in "
    unknown = sum(not ratio.known for _, ratio in climbed)
    without = f" ({unknown} without an interval)" if unknown else ""
    text += f"{len(climbed)} steps, {faster} of them significantly faster{without}. The largest: "
    return text + ", ".join(f"{step['label']} {formats.times(ratio.value)}" for step, ratio in largest) + "."


TABLE = Tabulated("ladder", lambda series, _: analysis.ladder(series.rows), lambda series, _: ladder_table(series))
ANSWERS = (Answer(best, each_device=True), Answer(order, each_device=True))
CHAPTER = chapter("ladder", figures=(ladders,), answers=ANSWERS, tables=(TABLE,))
