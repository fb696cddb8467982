"""A history as a table for the terminal and as a page."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import geometric_mean

from hpcmm import store
from hpcmm.analysis.history import History, Run, Step, Trend
from hpcmm.report import definitions, formats, sheet, vega
from hpcmm.report.markup import EMPTY, Cell, Table, words
from hpcmm.report.vega import INTERVAL, LINE, PALETTE, Figure
from hpcmm.system.text import printable, short_revision

MOST_FIGURES = 40  # of the trends with the largest changes; the table has all

HEAD = ("Since", "Change", "Speedup", "from", "to", "Sweep", "Variant", "Size", "Type", "Ranks", "Before", "After")
HEAD += ("Revision",)


def changes_table(history: History) -> Table:
    """Make the table of all changes, the newest first."""
    found = [(trend, step) for trend in history.trends for step in trend.steps]
    found.sort(key=lambda each: (-each[1].run, each[1].change.ratio))
    rows = []
    for trend, step in found:
        since, revision = _when(history.runs[step.run])
        rows.append([since, *_change(trend, step), revision])
    return Table("Changes; speedup of the runs after over the runs before", HEAD, rows)


def _when(run: Run) -> list[Cell]:
    return [words(date(run)), words(short_revision(run.revision, 12))]


def _change(trend: Trend, step: Step) -> list[Cell]:
    change = step.change
    cell = Cell(change.verdict, kind="fail" if change.verdict == "broken" else "text")
    times = [Cell(formats.duration(each)) for each in (step.before, step.after)]
    speedup = [Cell(formats.times(each)) for each in (change.ratio, change.low, change.high)]
    return [cell, *speedup, *_point(trend), *times]


def _point(trend: Trend) -> list[Cell]:
    point = trend.point
    texts = (point["sweep"], trend.label, formats.size(point), point["dtype"])
    return [*map(words, texts), Cell(formats.whole(point["ranks"]))]


def points_table(history: History) -> Table:
    """Make the table of all points: number of runs, first and newest time, number of changes."""
    rows = []
    for trend in history.trends:
        known = [seconds for seconds in trend.seconds if math.isfinite(seconds)]
        ends = [Cell(formats.duration(known[i])) for i in (0, -1)] if known else [EMPTY, EMPTY]
        newest = Cell(trend.results[-1], kind="text" if trend.results[-1] == "PASS" else "fail")
        counts = [Cell(str(len(each))) for each in (trend.runs, trend.steps)]
        rows.append([*_point(trend), words(str(trend.point["machine"])), *counts, *ends, newest])
    head = ("Sweep", "Variant", "Size", "Type", "Ranks", "Machine")
    head += ("Runs", "Changes", "First", "Newest", "Newest result")
    return Table("Points of at least two runs", head, rows)


def runs_table(history: History) -> Table:
    """Make the table of the files in the order of time, each with what differs from the one before."""
    rows = [
        [*_when(run), words(", ".join(run.hosts)), words(printable(run.name)), words("; ".join(run.differences))]
        for run in history.runs
    ]
    return Table("Runs in the order of time", ("Date (UTC)", "Revision", "Host", "File", "Differs"), rows)


def date(run: Run) -> str:
    """Return date and time to the minute, ``"2026-01-02 03:04"``."""
    return run.utc[:16].replace("T", " ")


def figure(history: History, trend: Trend, name: str) -> Figure:
    """Draw the times of a point over the runs, with intervals and the level between changes."""
    known = [seconds for seconds in trend.seconds if math.isfinite(seconds)]
    unit, scale = formats.unit_of(geometric_mean(known))
    steps = [step for step in trend.steps if math.isfinite(step.after)]
    levels = []
    for run in trend.runs:
        passed = [step for step in steps if step.run <= run]
        levels.append(passed[-1].after if passed else steps[0].before if steps else math.nan)
    columns = {
        "run": [f"{i + 1}: {date(history.runs[i])}" for i in trend.runs],
        "revision": [short_revision(history.runs[i].revision, 12) for i in trend.runs],
        "result": list(trend.results),
        **{
            key: vega.rounded([value * scale for value in values])
            for key, values in (("seconds", trend.seconds), ("low", trend.low), ("high", trend.high), ("level", levels))
        },
    }
    title = f"time, {unit}"
    seconds, *ends = ([each * scale for each in values] for values in (trend.seconds, trend.low, trend.high))
    y = vega.framed(vega.rate_axis(seconds, title, zero=False), seconds, *ends)
    along = {"labelAngle": -40, "labelOverlap": True}
    x = {"field": "run", "type": "ordinal", "sort": None, "title": "run", "axis": along}
    shown = {"run": "Run", "revision": "Revision", "seconds": title, "low": "from", "high": "to", "result": "Result"}
    tooltip = [vega.category(key, title=text) for key, text in shown.items()]
    step = {"type": "line", "interpolate": "step", "color": LINE, "opacity": 0.5}
    interval = INTERVAL | {"color": PALETTE[0], "clip": True}
    layers = [
        vega.layer(step, x=x, y=vega.quantity("level", **y)),
        vega.layer(interval, x=x, y=vega.quantity("low", **y), y2={"field": "high"}),
        vega.layer(vega.dots(45) | {"color": PALETTE[0]}, x=x, y=vega.quantity("seconds", **y), tooltip=tooltip),
    ]
    point = trend.point
    parts = (trend.label, formats.size(point), point["dtype"], formats.ranks(point["ranks"]), point["setting"])
    return Figure(
        name, f"{point['sweep']}: {', '.join(filter(None, parts))}", columns, vega.layered(layers, 220), shown
    )


def build(history: History, target: Path) -> None:
    """Write the page of a history."""

    def size(trend: Trend) -> float:
        return max(abs(math.log(step.change.ratio)) for step in trend.steps if math.isfinite(step.change.ratio))

    changed = [trend for trend in history.trends if trend.steps]
    drawn = [trend for trend in changed if any(math.isfinite(step.change.ratio) for step in trend.steps)]
    largest = sorted(drawn, key=size, reverse=True)[:MOST_FIGURES]
    verdicts = [step.change.verdict for trend in changed for step in trend.steps]
    kinds = {"slower": "wrong", "faster": "pass", "broken": "wrong", "mended": "pass"}
    counts = [sheet.Count("runs", len(history.runs)), sheet.Count("points", len(history.trends))]
    counts += [sheet.Count(verdict, verdicts.count(verdict), kind) for verdict, kind in kinds.items()]
    notes = [f"{note}." for note in history.noise]
    if drawn:
        notes.append("The line in a figure is the level between changes. Bars are the 95 % intervals of the medians.")
    if len(largest) < len(drawn):
        notes.append(
            f"The {len(largest)} points with the largest changes of {len(drawn)} are drawn; the table has all."
        )
    sections = []
    if changed:
        figures = [figure(history, trend, f"trend-{i}") for i, trend in enumerate(largest, 1)]
        states = [
            ("fail" if kinds[v] == "wrong" else "pass", f"{verdicts.count(v)} {v}") for v in kinds if v in verdicts
        ]
        sections.append(sheet.Section("Changes", [], figures, [changes_table(history)], states=states))
    sections += [
        sheet.Section("Points", [] if changed else ["No point changed."], folded=[points_table(history)]),
        sheet.Section("Runs", [], [], [runs_table(history)]),
        sheet.Section("What counts as a change", definition=definitions.of("history")),
    ]
    about = f"{len(history.runs)} runs, {date(history.runs[0])} to {date(history.runs[-1])} UTC"
    html = sheet.render("History", about, counts, notes, sections)
    store.write_text(target, html)
