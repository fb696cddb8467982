"""The tables of the course documents, each number of a document beside ours."""

from collections.abc import Iterator, Sequence

from hpcmm.analysis.documents import Answered, Column, Curve, Document, Pair
from hpcmm.report.chapters.chapter import chapter
from hpcmm.report.formats import times
from hpcmm.report.markup import EMPTY, Cell, Table, words
from hpcmm.report.vega import DASHES, PALETTE, Figure, Spec, category, layer, quantity, rounded
from hpcmm.system.text import number

TIMES, RATES, COUNTS = ("s", "ms", "µs"), ("GFLOP/s", "GB/s"), ("", "K", "KB")
ENOUGH = 0.5  # share of the cells of a document that are measured, from which the page shows it
WITH_CURVES = 2  # sizes at least of a line


def is_shown(document: Document) -> bool:
    """Whether the points of a file answer a document: at least half of the cells that need points have them."""
    tables = [table for table in document.tables if table.needs_points]
    return sum(table.measured for table in tables) >= ENOUGH * sum(len(table.pairs) for table in tables)


def course_table(answered: Answered, number_of: str) -> Table:
    """Make a table of a document: a column of the document beside each of ours, if it has numbers."""
    head, columns = [answered.axis], []
    units = {_unit(column) for column in answered.columns if not column.texts}
    shared = units.pop() if len(units) == 1 else ""
    for column in answered.columns:
        unit = _unit(column)
        name = column.name + (f" [{unit}]" if unit and not shared else "")
        if column.texts:
            head.append(name)
            columns.append([words(text) for text in column.texts])
            continue
        if column.documented:
            head.append(f"{name}, {number_of}")
            columns.append([_written(pair.document) for pair in column.pairs])
        where = f" on {column.gpu}" if column.gpu else ""
        head.append(f"{name}, hpcmm{where}" if column.documented else name + where)
        columns.append([_ours(pair) for pair in column.pairs])
    several = any(len({pair.unit for pair in column.pairs}) > 1 for column in answered.columns)
    labels = []
    for i, row in enumerate(answered.rows):
        units = {column.pairs[i].unit for column in answered.columns if column.pairs} if several else {""}
        labels.append(words(row + (f" [{units.pop()}]" if len(units) == 1 and units != {""} else "")))
    caption = answered.caption + (f" [{shared}]" if shared else "")
    caption += f"; hpcmm: {answered.machine}" if answered.machine else ""
    return Table(caption, head, [list(cells) for cells in zip(labels, *columns, strict=True)])


def _unit(column: Column) -> str:
    units = {pair.unit for pair in column.pairs}
    return units.pop() if len(units) == 1 else ""


def _written(number: float | str | None) -> Cell:
    return words(number) if isinstance(number, str) else EMPTY if number is None else Cell(_short(f"{number:,}"))


def _ours(pair: Pair) -> Cell:
    if isinstance(pair.ours, str):
        return Cell(pair.ours, kind="fail" if pair.ours == "FAIL" else "text")
    if pair.unit in TIMES and 1e-4 <= pair.ours < 1e-3:
        return Cell(f"{pair.ours:.3g}")  # as the documents write it, without an exponent
    return Cell(_short(f"{pair.ours:,.0f}") if pair.ours.is_integer() and pair.unit in COUNTS else number(pair.ours))


def _short(text: str) -> str:
    """Write the largest int32 as the documents do: the table of all capabilities would not fit a page."""
    return "2³¹ - 1" if text == f"{2**31 - 1:,}" else text


def sentence(answered: Answered) -> str:
    """Say how far our numbers are from those of the document, and why."""
    both = [pair for pair in answered.pairs if pair.compared and not isinstance(pair.ours, str)]
    both = [pair for pair in both if isinstance(pair.document, int | float)]
    texts = []
    gains = [pair.document / pair.ours for pair in both if pair.unit in TIMES]
    gains += [pair.ours / pair.document for pair in both if pair.unit in RATES]
    if gains:
        texts.append(f"hpcmm is {_between(gains)} as fast.")
    if gains := [pair.ours / pair.document for pair in both if pair.unit == "×"]:
        texts.append(f"Its speedups are {_between(gains)} those of the document.")
    counts = [pair for pair in both if pair.unit in COUNTS]
    if equal := sum(pair.ours == pair.document for pair in counts):
        texts.append("The counts are equal." if equal == len(counts) else f"{equal} of {len(counts)} counts are equal.")
    return " ".join([*texts, answered.why])


def _between(ratios: Sequence[float]) -> str:
    low, high = times(min(ratios)), times(max(ratios))
    return low if low == high else f"{low} to {high}"


def curves(document: Document) -> Iterator[Figure]:
    """Draw the curves of a document, over the size on a linear axis as there."""
    for curve in document.curves:
        if max(map(len, curve.lines.values())) >= WITH_CURVES:
            yield _curve(curve)


def _curve(curve: Curve) -> Figure:
    points = [(name, n, value) for name, line in curve.lines.items() for n, value in line]
    names, sizes, values = zip(*points, strict=True)
    columns = {"line": list(names), "n": list(sizes), "value": rounded(values)}
    along = {"scale": {"zero": False, "nice": False}, "axis": {"format": "d", "labelOverlap": "greedy"}}
    dense = max(sizes) - min(sizes) < 200  # the steps are small beside the rate
    lines = list(curve.lines)
    channels: dict[str, Spec] = {"x": quantity("n", title="N", **along)}
    channels["y"] = quantity("value", title=curve.unit, scale={"zero": not dense})
    for channel, each in {"color": PALETTE, "strokeDash": DASHES}.items():
        scale = {"domain": lines, "range": list(each[: len(lines)])}
        channels[channel] = category("line", legend={"title": None}, scale=scale)
    tooltip = [{"field": "line"}, {"field": "n"}, quantity("value", title=curve.unit, format=",.4r")]
    line = layer({"type": "line", "strokeWidth": 1.75}, **channels, tooltip=tooltip)
    spec = {"width": "container", "height": 280} | line
    shown = {"line": "Line", "n": "N", "value": curve.unit}
    return Figure(curve.name, f"{curve.caption}; {curve.machine}", columns, spec, shown)


COLUMNS = ("document", "table", "row", "column", "unit", "in_document", "measured")


def cells(document: Document) -> list[tuple]:
    """Return every cell of a document, with its number and ours."""
    columns = ((table, column) for table in document.tables for column in table.columns)
    pairs = ((*of, *both) for of in columns for both in zip(of[0].rows, of[1].pairs, strict=False))
    return [(document.number, t.caption, row, c.name, p.unit, p.document, p.ours) for t, c, row, p in pairs]


CHAPTER = chapter("courses")
