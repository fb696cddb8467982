"""A history as a table for the terminal and as a page."""

import math
from collections import Counter
from pathlib import Path
from statistics import geometric_mean

from hpcmm import store
from hpcmm.analysis import compare
from hpcmm.analysis.history import History, Run, Trend
from hpcmm.report import definitions, formats, sheet, vega
from hpcmm.report.markup import EMPTY, Cell, Table, words
from hpcmm.report.vega import INTERVAL, LINE, PALETTE, Figure
from hpcmm.system.text import plural, printable, short_revision, whole

MOST_FIGURES = 40  # of the trends with the largest changes; the table has all


def changes_table(history: History) -> Table:
    """Make the table of all changes, the newest first."""
    changes = [(step.run, step.change, step, trend) for trend in history.trends for step in trend.steps]
    rows = []
    for at, change, step, trend in sorted(changes, key=lambda each: (-each[0], each[1].ratio)):
        run = history.runs[at]
        verdict = Cell(change.verdict, kind="fail" if change.verdict in compare.WORSE else "text")
        speedup = (Cell(formats.times(each)) for each in (change.ratio, change.low, change.high))
        times = (Cell(formats.duration(each)) for each in (step.before, step.after))
        rows.append([words(date(run)), verdict, *speedup, *_point(trend), *times, _revision(run)])
    head = ("Since", "Change", "Speedup", "from", "to", *POINT, "Before", "After", "Revision")
    return Table("Changes; speedup of the runs after over the runs before", head, rows)


def _revision(run: Run) -> Cell:
    return words(short_revision(run.revision, 12))


POINT = ("Sweep", "Variant", "Size", "Type", "Ranks")


def _point(trend: Trend) -> list[Cell]:
    point = trend.point
    texts = (point["sweep"], trend.label, formats.size(point), point["dtype"])
    return [*map(words, texts), Cell(whole(point["ranks"]))]


def points_table(history: History) -> Table:
    rows = []
    for trend in history.trends:
        known = [seconds for seconds in trend.seconds if math.isfinite(seconds)]
        ends = [Cell(formats.duration(known[i])) for i in (0, -1)] if known else [EMPTY, EMPTY]
        newest = Cell(trend.results[-1], kind="text" if trend.results[-1] == "PASS" else "fail")
        counts = [Cell(str(len(each))) for each in (trend.runs, trend.steps)]
        rows.append([*_point(trend), words(str(trend.point["machine"])), *counts, *ends, newest])
    head = (*POINT, "Machine", "Runs", "Changes", "First", "Newest", "Newest result")
    return Table("Points of at least two runs", head, rows)


def runs_table(history: History) -> Table:
    """Make the table of the files in the order of time, each with what differs from the one before."""
    texts = ((", ".join(run.hosts), printable(run.name), "; ".join(run.differences)) for run in history.runs)
    rows = [
        [words(date(run)), _revision(run), *map(words, each)] for run, each in zip(history.runs, texts, strict=True)
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
    seconds, *ends, levels = ([each * scale for each in s] for s in (trend.seconds, trend.low, trend.high, levels))
    columns = {"run": [f"{i + 1}: {date(history.runs[i])}" for i in trend.runs]}
    columns["revision"] = [short_revision(history.runs[i].revision, 12) for i in trend.runs]
    columns["result"] = list(trend.results)
    numbers = zip(("seconds", "low", "high", "level"), (seconds, *ends, levels), strict=True)
    columns |= {name: vega.rounded(values) for name, values in numbers}
    title = f"time, {unit}"
    y = vega.framed(vega.rate_axis(seconds, title, zero=False), seconds, *ends)
    along = {"labelAngle": -40, "labelOverlap": True}
    x = {"field": "run", "type": "ordinal", "sort": None, "title": "run", "axis": along}
    shown = {"run": "Run", "revision": "Revision", "seconds": title, "low": "from", "high": "to", "result": "Result"}
    step = {"type": "line", "interpolate": "step", "color": LINE, "opacity": 0.5}
    interval, dots = INTERVAL | {"color": PALETTE[0], "clip": True}, vega.dots(45) | {"color": PALETTE[0]}
    layers = [
        vega.layer(step, x=x, y=vega.quantity("level", **y)),
        vega.layer(interval, x=x, y=vega.quantity("low", **y), y2={"field": "high"}),
        vega.layer(dots, x=x, y=vega.quantity("seconds", **y), tooltip=vega.tooltip(shown)),
    ]
    point = trend.point
    parts = (trend.label, formats.size(point), point["dtype"], plural(point["ranks"], "rank"), point["setting"])
    caption = f"{point['sweep']}: {', '.join(filter(None, parts))}"
    return Figure(name, caption, columns, vega.layered(layers, 220), shown)


def build(history: History, target: Path) -> None:
    changed = [trend for trend in history.trends if trend.steps]
    sizes = {}  # of the largest change of a trend
    for i, trend in enumerate(changed):
        if known := [abs(math.log(step.change.ratio)) for step in trend.steps if math.isfinite(step.change.ratio)]:
            sizes[i] = max(known)
    drawn = sorted(sizes, key=sizes.__getitem__, reverse=True)[:MOST_FIGURES]
    verdicts = Counter(step.change.verdict for trend in changed for step in trend.steps)
    kinds = {"slower": "wrong", "faster": "pass", **dict.fromkeys(compare.WORSE, "wrong"), "mended": "pass"}
    counts = [("runs", len(history.runs), ""), ("points", len(history.trends), "")]
    counts += [(verdict, verdicts[verdict], kind) for verdict, kind in kinds.items()]
    notes = [f"{note}." for note in history.noise]
    if drawn:
        notes.append("The line in a figure is the level between changes. Bars are the 95 % intervals of the medians.")
    if len(drawn) < len(sizes):
        notes.append(f"The {len(drawn)} points with the largest changes of {len(sizes)} are drawn; the table has all.")
    none = "No point changed." if history.judged else compare.NONE_JUDGED
    sections = []
    if changed:
        figures = [figure(history, changed[at], f"trend-{i}") for i, at in enumerate(drawn, 1)]
        states = [("fail" if kinds[v] == "wrong" else "pass", f"{verdicts[v]} {v}") for v in kinds if v in verdicts]
        sections.append(sheet.Section("Changes", figures=figures, tables=[changes_table(history)], states=states))
    sections += [
        sheet.Section("Points", [] if changed else [none], folded=[points_table(history)]),
        sheet.Section("Runs", tables=[runs_table(history)]),
        sheet.Section("What counts as a change", definition=definitions.of("history")),
    ]
    about = f"{len(history.runs)} runs, {date(history.runs[0])} to {date(history.runs[-1])} UTC"
    store.write_text(target, sheet.render("History", about, counts, notes, sections))
