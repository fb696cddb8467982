"""End-to-end calls with their copies."""

import math
from collections.abc import Iterator, Sequence

from hpcmm import analysis
from hpcmm.model import TEXTBOOK
from hpcmm.model.devices import DEVICES
from hpcmm.model.quantities import PHASES
from hpcmm.operations import dimensions
from hpcmm.report import formats
from hpcmm.report.chapters.chapter import Answer, Tabulated, chapter
from hpcmm.report.chapters.ladder import ladders
from hpcmm.report.chapters.sizes import rate_against_size
from hpcmm.report.findings import fastest_of
from hpcmm.report.formats import at_sizes, conditions, duration, rate, rate_unit_of, size_title
from hpcmm.report.markup import Cell, Table, words
from hpcmm.report.points import SECONDS, described
from hpcmm.report.ratio import Ratio
from hpcmm.report.tables import Column, Row, columns_of, of_size, table, text, value
from hpcmm.report.vega import PALETTE, Figure, category, layer, layered, quantity, rounded, transposed
from hpcmm.system.text import percent


def calls(series: analysis.Series) -> Iterator[Figure]:
    """Draw the end-to-end time of each label by phase, at the largest size."""
    largest = analysis.largest(analysis.phases(series.rows))
    for (device,), here in analysis.grouped(largest, "device").items():
        if not DEVICES[device].accelerator and series.ranks == 1:
            continue  # nothing is copied
        rows = sorted(here, key=lambda row: row["place"])
        what = f"{formats.size(largest[0])}, {described(series)}"
        caption = f"End-to-end time on the {formats.device(device)} by phase at {what}"
        if who := " and ".join(dict.fromkeys(row["algorithm"] for row in rows if row["algorithm"] != TEXTBOOK)):
            caption += f"; phases of {who} overlap, so the end-to-end time is shorter than the bar"
        yield _stacked(f"calls-{device}", caption, rows)


def _stacked(name: str, caption: str, rows: Sequence[Row]) -> Figure:
    unit, scale = formats.unit_of(max(row["call_seconds"] for row in rows))
    bars = []
    for row in rows:
        start = 0.0
        for phase in (phase for phase in PHASES[:-1] if math.isfinite(row["call_" + phase])):
            seconds = row["call_" + phase]
            end = start + seconds * scale
            numbers = zip(("start", "end", "seconds"), rounded([start, end, seconds], 5), strict=True)
            share = rounded([row["share_" + phase]], 4)[0]
            bars.append({"name": row["label"], "phase": phase, **dict(numbers), "share": share})
            start = end
    columns = transposed(bars)
    present = [phase for phase in PHASES if phase in columns["phase"]]
    hues = [PALETTE[PHASES.index(phase) % len(PALETTE)] for phase in present]
    y = category("name", sort=[row["label"] for row in rows], title=None, axis={"labelLimit": 240})
    longest = max(columns["end"])
    # the domain of the bars alone: if no label fits into a bar, Vega warns about an empty domain of the labels
    scale_x = {"domain": [0, longest], "nice": True}
    x = quantity("start", title=unit, axis={"format": ",~r", "labelBound": True}, stack=None, scale=scale_x)
    color = category("phase", scale={"domain": present, "range": hues}, legend={"title": None})
    tooltip = [{"field": "name", "title": "variant"}, {"field": "phase"}, {"field": "time"}]
    tooltip.append(quantity("share", format=".1%"))
    stacked = {"type": "bar", "stroke": "#ffffff", "strokeWidth": 1, "height": {"band": 0.75}}
    time = [{"calculate": SECONDS, "as": "time"}]
    inside = {"type": "text", "color": "#ffffff", "fontSize": 11, "fontWeight": "bold"}
    middle = [
        # only where the label fits into the bar
        {"filter": f"(datum.end - datum.start) * width / {longest:.6g} > 8 * length(datum.phase)"},
        {"calculate": "(datum.start + datum.end) / 2", "as": "middle"},
    ]
    layers = [
        layer(stacked, transform=time, x=x, x2={"field": "end"}, y=y, color=color, tooltip=tooltip),
        layer(inside, transform=middle, x=quantity("middle"), y=y, text={"field": "phase"}),
    ]
    shown = {"name": "Variant", "phase": "Phase", "seconds": "Seconds", "share": "Share"}
    spec = layered(layers, 26 * len(rows) + 8)
    return Figure(name, caption, columns, spec, shown, rows[0]["dtype"], rows[0]["device"])


def phase_table(series: analysis.Series, rows: Sequence[Row]) -> Table:
    """Make the table of end-to-end times by phase, with both rates."""
    rows, which = at_sizes(rows, 3)
    unit = rate_unit_of(series.rows)
    columns: dict[str, Column] = {size_title(rows): of_size, "Variant": text("label")}
    for phase in PHASES[:-1]:
        names = f"call_{phase}", f"share_{phase}"
        columns[phase.capitalize()] = lambda row, of=names: Cell(duration(row[of[0]]), percent(row[of[1]]))
    columns["Total"] = value("call_seconds", duration)
    columns[f"{unit.name}, kernel alone"] = lambda row: Cell(rate(row, unit=unit))
    columns[f"{unit.name}, end to end"] = lambda row: Cell(rate(row, "call_", unit))
    return table(f"End-to-end times, {conditions(series)}{which}", rows, columns, leading=1)


MEMORIES = ("pinned", "pageable", "")
# Phases of a call, under the names that profilers use
ACTIVITIES = {
    "scatter": "scatter (MPI)",
    "broadcast": "broadcast (MPI)",
    "upload": "host to device",
    "pitch": "device to device (pitch)",
    "kernel": "kernel",
    "download": "device to host",
    "gather": "gather (MPI)",
}


def activity_table(series: analysis.Series, activities: Sequence[Row]) -> Table | None:
    """Make the table of copies and kernels as a profiler lists them, from ``analysis.activities``; None without any."""
    activities = [row for row in activities if DEVICES[row["device"]].accelerator or row["ranks"] > 1]
    if not activities:
        return None
    with_memory = any(row["memory"] for row in activities)
    first = {}  # the least place of each rung
    for row in sorted(activities, key=lambda row: row["place"]):
        first.setdefault(row["rung"], row["place"])

    def place(row: Row) -> tuple:
        """By size, rung and phase; page-locked memory first."""
        sizes = (row[name] for name in dimensions())
        return *sizes, first[row["rung"]], PHASES.index(row["activity"]), MEMORIES.index(row["memory"])

    activities = sorted(activities, key=place)
    some, which = at_sizes(activities, 4 if with_memory else 1)
    columns = {size_title(activities): of_size} | columns_of(
        "activities", activity=lambda row: words(ACTIVITIES.get(row["activity"], row["activity"]))
    )
    return table(f"Copies and kernel, {conditions(series)}{which}", some, columns, leading=3)


def host_memory(rows: Sequence[Row]) -> str:
    """Give the speedup from page-locked host memory, end to end and of the copies, at the largest size."""
    here = analysis.largest([row for row in rows if row["call_seconds"] > 0])
    kinds = {kind: fastest_of((row for row in here if row["memory"] == kind), "rung") for kind in MEMORIES}
    pageable = {row["rung"]: row for row in kinds["pageable"]}
    rungs = (row for row in kinds["pinned"] if row["rung"] in pageable and row["role"] == "rung")
    both = [(row, pageable[row["rung"]]) for row in rungs]
    if not both:
        return ""
    pinned, other = min(both, key=lambda pair: pair[0]["call_seconds"])
    call, kernel = Ratio.of(pinned, other, "call_seconds"), Ratio.of(pinned, other)
    copies = {phase: other["call_" + phase] / pinned["call_" + phase] for phase in ("upload", "download")}
    known = [f"{phase} {formats.times(gain)}" for phase, gain in copies.items() if math.isfinite(gain)]
    factors = ", ".join([f"end to end {call}", *known, f"kernel alone {kernel}"])
    where = f"{pinned['rung']} at {formats.size(pinned)}"
    return f"Speedup of pinned over pageable host memory, {where}: {factors}."


TABLES = (
    Tabulated("phases", lambda series, whole: analysis.phases(series.rows), phase_table),
    Tabulated("activities", lambda series, whole: whole.activities.get(series.key, ()), activity_table),
)
CHAPTER = chapter(
    "transfers", figures=(calls, rate_against_size, ladders), answers=(Answer(host_memory),), tables=TABLES
)
