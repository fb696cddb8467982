"""From a timings file to tables, figures and one HTML page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain, groupby
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

import pandas as pd
from markupsafe import escape

from hpcmm import analysis, store
from hpcmm.analysis import Series, Summary, documents, occupancy, scaling
from hpcmm.analysis import why as analysis_why
from hpcmm.analysis.views import SERIES, of_sweeps
from hpcmm.report import chapters, csv_files, drawing, formats, hardware, markup, opening, page, tables, vega
from hpcmm.report.chapters import courses, energy, ladder, memory, ranks, reductions, same_bits, sizes, transfers, why
from hpcmm.report.chapters.chapter import TEXTS, Experiment, chapter
from hpcmm.report.findings import Finding
from hpcmm.report.markup import Table
from hpcmm.report.page import Panel, View
from hpcmm.report.vega import Figure
from hpcmm.system.text import printable

OWN = chapter("own-figures")  # of extensions
OVERVIEW = chapter("sweeps")
ABOUT = TEXTS["views"]  # HTML below the titles of views
MANY = 20_000  # points; a file with more gets an overview, and a page for each sweep that is asked for
FEW = 12  # figures: they wait for the others, because a renderer starts no faster than it draws so many


def build(
    timings: Path,
    results: Path,
    warn: Callable[[str], None] = lambda text: None,
    own: Sequence[Callable] = (),
    names: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> tuple[Path, Summary]:
    """Make the whole report from a timings file alone, or an overview if it has more than ``MANY`` points.

    ``results`` is the folder of ``report.html``, ``tables/`` and ``figures/``. ``warn`` is called with a sentence if
    figures cannot be drawn, such as for want of address space. ``own`` are functions from the frame to further figures.
    The page has the sweeps of these ``names``, by default all; their numbers are those of the whole file. It
    begins with the ``notes``.

    Return the path of the page, and the counts of points. Raise HpcmmError if the timings cannot be read, or have no
    such sweep.
    """
    columns = store.read(timings)
    with ThreadPoolExecutor(2) as background:
        script = background.submit(drawing.script)  # takes a second
        frame = analysis.measurements(columns)
        if names:
            columns, frame = of_sweeps(columns, frame, names)
        frame = analysis.split_by_machine(frame)
        overview = not names and len(analysis.points(frame)) > MANY
        folder, summary = Folder(results, background), analysis.summary(columns, frame)
        views, shown = _shown(columns, frame, own, folder, overview)
        undrawn = folder.write_stills()
        try:
            vega_script = script.result() if folder.drawings else ""
        except drawing.DrawingError as error:
            vega_script, undrawn = "", [*undrawn, str(error)]
    parts = [(each, views[each.id]) for each in (OVERVIEW, *chapters.CHAPTERS.values(), OWN) if views[each.id]]
    shown |= {"timings": printable(timings.name), "source": store.page_source(timings), "notes": notes}
    shown |= {"vega": vega_script, "undrawn": undrawn[0] if undrawn else ""}
    html = page.render(parts, summary, columns, analysis.points(frame), **shown)
    if undrawn:
        warn(f"{len(undrawn)} figures are not drawn; the first: {undrawn[0]}")
    if overview:
        too_many = f"{summary.points} points are too many for one page"
        warn(f"{too_many}: hpcmm report {timings} SWEEP makes the page of a sweep")
    name = "-".join(["report", *(quote(each, safe="") for each in names)])
    folder.write(f"{name}.html", html)
    return results / f"{name}.html", summary


def _shown(
    columns: analysis.Columns, frame: pd.DataFrame, own: Sequence[Callable], folder: Folder, overview: bool
) -> tuple[dict[str, list[View]], dict[str, Any]]:
    """Return the views of each chapter, and what the page shows besides: the first screen and the GPUs."""
    every = list(analysis.series(frame))
    members = {name: list(series) for name, series in groupby(every, key=attrgetter("sweep"))}
    whole = _experiment(columns, frame, overview)
    sweeps = [Sweep.of(name, series) for name, series in chapters.in_order(members, whole.known.counters).items()]
    views: dict[str, list[View]] = {name: [] for name in (OVERVIEW.id, *chapters.CHAPTERS, OWN.id)}
    if overview:
        table = tables.sweeps_table([(each.title, chapters.CHAPTERS[each.chapter].title, each.rows) for each in sweeps])
        folder.tabulate("gpu.sweeps", [table], csv_files.written(table.head, table.texts))
        views[OVERVIEW.id] = [View("all-sweeps", "Sweeps", {"": Panel(tables=[table], open=True)})]
    else:
        drawn = [_figures(sweep, folder) for sweep in sweeps]
        folder.draw(FEW)  # the longest step
        for sweep, figures in zip(sweeps, drawn, strict=True):
            for chapter, view in _sweep(sweep, figures, whole, folder):
                views[chapter].append(view)
        _add_views(views, columns, frame, whole, folder)
        added = [figure for draw in own for figure in folder.add("extension", draw(frame))]
        views[OWN.id] += _by_type("extension", "Own figures", added)
    first = opening.panels(frame, every, whole.scaling, whole.known)
    for panel in first:
        folder.add("opening", panel.figures)
    folder.draw()
    if device := hardware.device_table(page.gpus(analysis.runs(columns))):
        folder.tabulate("gpu.properties", [device], csv_files.written(device.head, device.texts))
    return views, {"opening": first, "device": device}


def _experiment(columns: analysis.Columns, frame: pd.DataFrame, overview: bool) -> Experiment:
    """Return the results over all sweeps; an overview needs only the products over ranks, and the counters."""
    some = frame[:0] if overview else frame
    activities = () if overview else analysis.row_dicts(analysis.activities(columns, frame))
    return Experiment(
        activities=analysis.grouped(activities, *SERIES),
        known=analysis_why.Known.of(columns, frame),
        resources=occupancy.resources(some),
        scaling=scaling.speedups(frame[frame["operation"] == "matmul"] if overview else frame),
        predictions=some if overview else scaling.predictions(columns, frame),
        profiles=analysis.profiles(columns),
    )


def _add_views(
    views: dict[str, list[View]], columns: analysis.Columns, frame: pd.DataFrame, whole: Experiment, folder: Folder
) -> None:
    """Add the views of all sweeps together to those of each."""
    current = frame[~frame["superseded"]]
    reasons = analysis.unprofiled(columns) if analysis.on_accelerator(frame).any() else {}
    rooflines = folder.add("roofline", why.rooflines(frame))
    views["why"] += _by_type("rooflines", "Rooflines", rooflines, ABOUT["rooflines"])
    views["why"] += _resources(whole, reasons, folder)
    views["memory"][:0] = _levels(analysis.levels(frame), folder)
    expected = tables.failure_table(current[(current["result"] == "FAIL") & current["expected"]])
    views["tiles"] += _of_table("expected-failures", "Expected wrong results", expected, ABOUT["expected"])
    state = folder.add("state", energy.clocks(analysis.clock_samples(columns, frame)))
    views["clocks"][:0] = _by_type("state", "During the run", state, ABOUT["state"])

    def reason(row: Mapping[str, Any]) -> markup.Cell:
        return markup.words(analysis.throttling_names(row["throttle_reasons"]))

    throttled = tables.points_table("Throttled", current[current["throttled"]], "Reason", reason)
    views["clocks"] += _of_table("throttlings", "Throttled", throttled)
    views["courses"] += _courses(documents.documents(columns, frame), folder)
    for operation, points in same_bits.compared(frame).groupby("operation", sort=False):
        made = same_bits.bits_table(points)
        folder.tabulate(f"{operation}.same_bits", [made], csv_files.of_kind("same_bits", analysis.row_dicts(points)))
        views["bits"].append(View(f"bits-{operation}", operation, {"": Panel(tables=[made], open=True)}))


@dataclass(frozen=True)
class Sweep:
    """A sweep, split into series, with its chapter."""

    name: str
    title: str
    series: Sequence[Series]
    rows: Sequence[Mapping[str, Any]]
    chapter: str

    @classmethod
    def of(cls, name: str, series: Sequence[Series]) -> Sweep:
        rows = [row for each in series for row in each.rows]
        return cls(name, chapters.title_of(name, rows[0]), series, rows, chapters.chapter_of(rows))

    @property
    def stem(self) -> str:
        """The file name. The sweep name comes from a file and must not contain a path."""
        return quote(self.name, safe="")

    def view(self, panels: Mapping[str, Panel], suffix: str = "", alone: bool = False) -> View:
        """Return a view of the sweep; ``suffix`` distinguishes several, in the title only if not alone in a chapter."""
        operation = self.series[0].operation
        words = re.sub(r"(\d) bit\b", r"\1-bit", self.title.replace("_", " "))
        words = re.sub(r"\b(cpu|gpu|amx)\b", lambda found: found[0].upper(), words)
        name = self.title if "_" in self.title else ""  # as commands take it
        anchor, title = page.slug(f"sweep-{self.name} {suffix}"), f"{words[:1].upper()}{words[1:]}"
        note = ", ".join(filter(None, (name, operation if operation != self.title else "")))
        where = {"machine": self.rows[0]["machine"], "devices": list(dict.fromkeys(row["device"] for row in self.rows))}
        return View(anchor, f"{title} {'' if alone else suffix}".rstrip(), panels, note, sweep=self.name, **where)


@dataclass(frozen=True)
class Folder:
    """The folder that the report is written to, and its figures, which other threads draw."""

    path: Path
    background: Executor
    waiting: dict[str, str] = field(default_factory=dict)  # file name: specification to draw
    drawings: list[tuple[list[str], Future]] = field(default_factory=list)  # file names, and what is drawn

    def write(self, name: str, text: str) -> None:
        """Write one file, replaced whole or not at all."""
        store.write_text(self.path / name, text)

    def draw(self, few: int = 0) -> None:
        """Begin to draw the figures that wait for it, if there are more than a ``few``."""
        if len(self.waiting) > few:
            specs = list(self.waiting.values())
            self.drawings.append((list(self.waiting), self.background.submit(drawing.svgs, specs)))
            self.waiting.clear()

    def write_stills(self) -> list[str]:
        """Write the figures; return why some are not drawn: those have no file, not even that of an earlier report."""
        undrawn = []
        drawn = [pair for names, future in self.drawings for pair in zip(names, future.result(), strict=True)]
        for name, svg in drawn:
            if isinstance(svg, str):
                self.write(name, svg)
            else:
                (self.path / name).unlink(missing_ok=True)
                undrawn.append(str(svg))
        return undrawn

    def tabulate(self, stem: str, shown: Sequence[Table], csv: str) -> None:
        """Write tables as Markdown and CSV. A sweep name has no dot, so a stem with one collides with no sweep."""
        if shown:
            self.write(f"tables/{stem}.csv", csv)
            self.write(f"tables/{stem}.md", markup.markdown(shown))

    def add(self, stem: str, drawn: Iterable[Figure], of: str = "") -> list[Figure]:
        """Queue figures for drawing; ``of`` is the second line of their titles."""
        drawn = list(drawn)
        for figure in drawn:
            titles = filter(None, (figure.caption, of))
            self.waiting[f"figures/{stem}-{figure.name}.svg"] = vega.still(figure, list(titles))
        return drawn


def _figures(sweep: Sweep, folder: Folder) -> list[list[Figure]]:
    drawn: list[list[Figure]] = []
    for i, series in enumerate(sweep.series):
        earlier = sum((other.dtype, other.ranks) == (series.dtype, series.ranks) for other in sweep.series[:i])
        number = f"-{earlier + 1}" if earlier else ""
        stem = f"{sweep.stem}-{quote(series.dtype, safe='')}-r{series.ranks}{number}"
        own = chapters.figures_of(series, sweep.chapter)
        drawn.append(folder.add(stem, own, f"{sweep.name}: {formats.conditions(series)}"))
    return drawn


def _sweep(
    sweep: Sweep, drawn: Sequence[Sequence[Figure]], whole: Experiment, folder: Folder
) -> Iterator[tuple[str, View]]:
    """Write the tables of one sweep; yield its views, each with its chapter."""
    made, watts = _tables(sweep, whole, folder)
    over = ranks.over_ranks(sweep.name, sweep.rows, whole)
    scaled: dict[str, list[Table]] = {}  # by element type, as the page shows one of them
    for kind, make, rows in over:
        folder.tabulate(f"{sweep.stem}.{kind}", [make(rows)], csv_files.of_kind(kind, rows))
        for (dtype,), own in analysis.grouped(rows, "dtype").items():
            scaled.setdefault(dtype, []).append(make(own))
    gains = whole.scaling[whole.scaling["sweep"] == sweep.name]
    efficiencies = folder.add(sweep.stem, ranks.scalings(gains), sweep.name)
    distributed = sweep.chapter == ranks.CHAPTER.id
    panels = {}
    for dtype in dict.fromkeys(series.dtype for series in sweep.series):
        places = [i for i, series in enumerate(sweep.series) if series.dtype == dtype]
        rows = [row for i in places for row in sweep.series[i].rows]
        # where ranks are compared, the most ranks are shown
        shown = max(places, key=lambda i: sweep.series[i].ranks) if distributed else places[0]
        panels[dtype] = Panel(
            chapters.what_to_see(rows, sweep.chapter),
            [*(each for each in efficiencies if distributed and each.dtype == dtype), *drawn[shown]],
            tables=[*(table for i in places for table in made[i]), *(scaled.get(dtype, ()) if distributed else ())],
        )
    yield sweep.chapter, sweep.view(panels)
    if scaled and not distributed:
        yield "ranks", sweep.view(_panels(efficiencies, scaled), "over ranks")
    of_one_size = len(analysis.by_size(sweep.rows)) == 1
    if sweep.chapter == ladder.CHAPTER.id or (sweep.chapter == reductions.CHAPTER.id and of_one_size):
        explained = {series.dtype: analysis_why.steps(series.rows, whole.known) for series in sweep.series}
        some = {dtype: Panel(steps=why.rows(of), notes=why.notes(of)) for dtype, of in explained.items() if of}
        if some:
            yield "why", sweep.view(some, "steps", alone=True)
    if watts:
        panels = {dtype: Panel(tables=tables, open=True) for dtype, tables in watts.items()}
        yield "clocks", sweep.view(panels, "energy", alone=True)


def _tables(sweep: Sweep, whole: Experiment, folder: Folder) -> tuple[list[list[Table]], dict[str, list[Table]]]:
    """Write the tables of a sweep; return those of each series, and those of energy by element type."""
    made = [[sizes.size_table(series)] for series in sweep.series]
    folder.tabulate(sweep.stem, [shown for (shown,) in made], csv_files.of_kind("points", sweep.rows))
    watts: dict[str, list[Table]] = {}
    for each in chapters.TABLES:
        rows = [each.rows(series, whole) for series in sweep.series]
        own = [each.table(series, part) if part else None for series, part in zip(sweep.series, rows, strict=True)]
        if some := [table for table in own if table]:
            csv = csv_files.of_kind(each.kind, list(chain.from_iterable(rows)))
            folder.tabulate(f"{sweep.stem}.{each.kind}", some, csv)
        for series, table, of_series in zip(sweep.series, own, made, strict=True):
            if table and each in energy.CHAPTER.tables:
                watts.setdefault(series.dtype, []).append(table)
            elif table and (each not in transfers.CHAPTER.tables or sweep.chapter in (transfers.CHAPTER.id, "ranks")):
                # the ladder at one size comes first; it has all of the row of that size but times end to end
                first = each is ladder.TABLE and len(of_series[0].rows) == 1
                of_series[: 1 if first and sweep.chapter != ranks.CHAPTER.id else 0] = [table] if first else []
                of_series += [] if first else [table]
    return made, watts


def _panels(figures: Sequence[Figure], shown: Mapping[str, Sequence[Table]] = MappingProxyType({})) -> dict[str, Panel]:
    dtypes = dict.fromkeys([*shown, *(figure.dtype for figure in figures)])
    return {
        dtype: Panel(figures=[each for each in figures if each.dtype == dtype], tables=shown.get(dtype, ()))
        for dtype in dtypes
    }


def _by_type(anchor: str, title: str, figures: Sequence[Figure], text: str = "") -> list[View]:
    return [View(anchor, title, _panels(figures), text=text)] if figures else []


def _of_table(anchor: str, title: str, table: Table, text: str = "") -> list[View]:
    panel = Panel(tables=[table], open=len(table.rows) <= 8)
    return [View(anchor, title, {"": panel}, text=text)] if table.rows else []


def _resources(whole: Experiment, reasons: Mapping[str, str], folder: Folder) -> list[View]:
    views = []
    for kind, anchor, title, rows, tabulate in (
        ("resources", "resources", "Resources", whole.resources, hardware.resource_table),
        ("profile", "profiler", "Profile", whole.profiles, hardware.profile_table),
    ):
        made = []
        for operation, part in rows.groupby("operation", sort=False):
            known = analysis.row_dicts(part.dropna(axis=1, how="all"))
            own = [tabulate(analysis.row_dicts(on_gpu)) for _, on_gpu in part.groupby("gpu", sort=False)]
            folder.tabulate(f"{operation}.{kind}", own, csv_files.of_kind(kind, known))
            made += own
        text = ABOUT[kind] if made else ""
        for reason in dict.fromkeys(reasons.values()) if kind == "profile" else ():
            names = ", ".join(operation for operation, why_not in reasons.items() if why_not == reason)
            text += f"<p>Not profiled: {names}. Reason: {escape(reason)}.</p>"
        views += [View(anchor, title, {"": Panel(tables=made)}, text=text)] if text else []
    return views


def _levels(rows: pd.DataFrame, folder: Folder) -> list[View]:
    several = rows.groupby("device")["owner"].nunique()
    shown = []
    for (owner, device), own in rows.groupby(["owner", "device"], sort=False):
        shown.append(memory.level_table(own, formats.device(device) + (f", {owner}" if several[device] > 1 else "")))
    folder.tabulate("memory.levels", shown, csv_files.of_kind("levels", analysis.row_dicts(rows)))
    panels = {"": Panel(tables=shown, open=True)}
    return [View("levels", "Levels of memory", panels, text=ABOUT["levels"])] if shown else []


def _courses(known: Sequence[documents.Document], folder: Folder) -> list[View]:
    """Write the tables of the course documents; return the view of each that the file answers."""
    views = []
    for document in filter(courses.is_shown, known):
        shown = [courses.course_table(table, document.number) for table in document.tables]
        cells = csv_files.written(courses.COLUMNS, courses.cells(document))
        folder.tabulate(f"course.{document.number}", shown, cells)
        sentences = [f"{table.caption}: {courses.sentence(table)}".replace("`", "") for table in document.tables]
        figures = folder.add(f"course-{document.number}", courses.curves(document))
        text = f"<p>{escape(document.title)}. {escape(document.source)}. Hardware: {escape(document.hardware)}.</p>"
        panel = Panel(findings=list(map(Finding, sentences)), figures=figures, tables=shown, open=True)
        views.append(View(f"course-{document.number}", document.number, {"": panel}, text=text))
    return views
