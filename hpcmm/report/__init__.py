"""From a timings file to tables, figures and one HTML page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from operator import attrgetter
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd
from markupsafe import escape

from hpcmm import analysis, store
from hpcmm.analysis import Series, Summary, documents, occupancy, scaling
from hpcmm.analysis import why as analysis_why
from hpcmm.analysis.views import SERIES
from hpcmm.report import chapters, csv_files, drawing, formats, hardware, markup, opening, page, tables, vega
from hpcmm.report.chapters import courses, energy, ladder, memory, ranks, reductions, same_bits, sizes, transfers, why
from hpcmm.report.chapters.chapter import TEXTS, Experiment, chapter
from hpcmm.report.findings import Finding
from hpcmm.report.markup import Table
from hpcmm.report.page import Panel, View
from hpcmm.report.vega import Figure, Style
from hpcmm.system.text import printable

MOST_SIZES = 32  # of a table on the page; the Markdown file has all
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
            columns, frame = analysis.of_sweeps(columns, frame, names)
        frame = analysis.split_by_machine(frame)
        folder = Folder(results)
        overview = not names and len(analysis.points(frame)) > MANY
        every = list(analysis.series(frame))
        members = {name: list(own) for name, own in groupby(every, key=attrgetter("sweep"))}
        whole = _experiment(columns, frame, overview)
        sweeps = [Sweep.of(name, own) for name, own in chapters.in_order(members, whole.known.counters).items()]
        drawn = [] if overview else [_figures(sweep, folder) for sweep in sweeps]
        begun = len(folder.stills) if len(folder.stills) > FEW else 0
        drawings = [background.submit(drawing.svgs, list(folder.stills.values())[:begun])]  # the longest step
        runs, summary = analysis.runs(columns), analysis.summary(columns, frame)
        views: dict[str, list[View]] = {name: [] for name in (OVERVIEW.id, *chapters.CHAPTERS, OWN.id)}
        kinds = {}
        if overview:
            views[OVERVIEW.id] = [_overview(sweeps, folder)]
        else:
            for sweep, figures in zip(sweeps, drawn, strict=True):
                for chapter, view in _sweep(sweep, figures, whole, folder):
                    views[chapter].append(view)
            kinds = _add_views(views, columns, frame, whole, summary, folder)
            added = [figure for draw in own for figure in folder.add("extension", draw(frame))]
            views[OWN.id] += _by_type("extension", "Own figures", added)
        first = opening.panels(frame, every, whole.scaling, {sweep.name: sweep.styles for sweep in sweeps}, whole.known)
        for panel in first:
            folder.add("opening", panel.figures)
        drawings.append(background.submit(drawing.svgs, list(folder.stills.values())[begun:]))
        device = hardware.device_table(gpus := page.gpus(runs))
        if device:
            folder.tabulate("gpu.properties", [device], hardware.device_csv(gpus))
        svgs = [svg for part in drawings for svg in part.result()]
        undrawn = [str(svg) for svg in svgs if isinstance(svg, drawing.DrawingError)]
        try:
            vega_script = script.result() if folder.stills else ""
        except drawing.DrawingError as error:
            vega_script, undrawn = "", [*undrawn, str(error)]
        head = page.Head(
            summary=summary,
            opening=first,
            runs=runs,
            points=analysis.points(frame),
            kinds=[kind for kind, things in kinds.items() if things],
            device=device,
            timings=printable(timings.name),
            source=store.page_source(timings),
            vega=vega_script,
            undrawn=undrawn[0] if undrawn else "",
            notes=notes,
        )
        shown = [(each, views[each.id]) for each in (OVERVIEW, *chapters.CHAPTERS.values(), OWN) if views[each.id]]
        html = page.render(shown, head)
        folder.write_stills(svgs)
    if undrawn:
        warn(f"{len(undrawn)} figures are not drawn; the first: {undrawn[0]}")
    if overview:
        too_many = f"{summary.points} points are too many for one page"
        warn(f"{too_many}: hpcmm report {timings} SWEEP makes the page of a sweep")
    name = "-".join(["report", *(quote(each, safe="") for each in names)])
    folder.write(f"{name}.html", html)
    return results / f"{name}.html", summary


def _overview(sweeps: Sequence[Sweep], folder: Folder) -> View:
    """Return the view of an overview: a table of the sweeps."""
    table = tables.sweeps_table([(each.title, chapters.CHAPTERS[each.chapter].title, each.rows) for each in sweeps])
    folder.tabulate("gpu.sweeps", [table], csv_files.written(table.head, table.texts))
    return View("all-sweeps", "Sweeps", {"": Panel(tables=[table], open=True)})


def _experiment(columns: analysis.Columns, frame: pd.DataFrame, overview: bool) -> Experiment:
    """Return the results over all sweeps; an overview needs only the products over ranks, and the counters."""
    products = frame[frame["operation"] == "matmul"] if overview else frame
    some = frame[:0] if overview else frame
    return Experiment(
        activities={} if overview else _activities(analysis.row_dicts(analysis.activities(columns, frame))),
        known=analysis_why.Known.of(columns, frame),
        resources=occupancy.resources(some),
        scaling=scaling.speedups(products),
        predictions=some if overview else scaling.predictions(columns, frame),
        profiles=analysis.profiles(columns),
    )


def _activities(rows: Sequence[Mapping[str, Any]]) -> dict[tuple, list[Mapping[str, Any]]]:
    """Return the rows of ``analysis.activities`` of each series, by its key."""
    found: dict[tuple, list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in SERIES), []).append(row)
    return found


def _add_views(
    views: dict[str, list[View]],
    columns: analysis.Columns,
    frame: pd.DataFrame,
    whole: Experiment,
    summary: Summary,
    folder: Folder,
) -> dict[str, Any]:
    """Add the views of all sweeps together to those of each; return what the file has, by its kind."""
    levels = analysis.levels(frame)
    reasons = analysis.unprofiled(columns) if analysis.on_accelerator(frame).any() else {}
    rooflines = folder.add("roofline", why.rooflines(frame))
    views["why"] += [
        *_by_type("rooflines", "Rooflines", rooflines, ABOUT["rooflines"]),
        *_resources(whole, reasons, folder),
    ]
    views["memory"][:0] = _levels(levels, folder)
    expected = tables.failure_table(summary.failures[summary.failures["expected"]])
    views["tiles"] += _of_table("expected-failures", "Expected wrong results", expected, ABOUT["expected"])
    state = folder.add("state", energy.clocks(analysis.clock_samples(columns, frame)))
    views["clocks"][:0] = _by_type("state", "During the run", state, ABOUT["state"])
    throttled = tables.points_table(
        *("Throttled", summary.throttlings, "Reason"),
        lambda row: markup.words(analysis.throttling_names(row["throttle_reasons"])),
    )
    views["clocks"] += _of_table("throttlings", "Throttled", throttled)
    views["courses"] += _courses(documents.documents(columns, frame), folder)
    views["bits"] += _bits(frame, folder)
    kinds = {"rooflines": rooflines, "resources": len(whole.resources), "profiles": len(whole.profiles)}
    kinds |= {"levels": len(levels), "scaling": len(whole.scaling)}
    by_column = {"limits": "fraction", "energy": "watts", "errors": "error_uniform", "bits": "first_run"}
    return kinds | {kind: frame[column].notna().any() for kind, column in by_column.items()}


@dataclass(frozen=True)
class Sweep:
    """A sweep, split into series, with its chapter and the styles of its labels."""

    name: str
    title: str
    series: Sequence[Series]
    rows: Sequence[Mapping[str, Any]]
    chapter: str
    styles: Mapping[str, Style]

    @classmethod
    def of(cls, name: str, series: Sequence[Series]) -> Sweep:
        rows = [row for each in series for row in each.rows]
        return cls(name, chapters.title_of(name, rows[0]), series, rows, chapters.chapter_of(rows), vega.styles(rows))

    @property
    def stem(self) -> str:
        """The file name. The sweep name comes from a file and must not contain a path."""
        return quote(self.name, safe="")

    def view(self, panels: Mapping[str, Panel], suffix: str = "", alone: bool = False) -> View:
        """Return a view of the sweep; ``suffix`` distinguishes several, in the title only if not alone in a chapter."""
        operation, machine = self.series[0].operation, self.rows[0]["machine"]
        words = re.sub(r"(\d) bit\b", r"\1-bit", self.title.replace("_", " "))
        words = re.sub(r"\b(cpu|gpu|amx)\b", lambda found: found[0].upper(), words)
        name = self.title if "_" in self.title else ""  # as commands take it
        return View(
            page.slug(f"sweep-{self.name} {suffix}"),
            f"{words[:1].upper()}{words[1:]} {'' if alone else suffix}".rstrip(),
            panels,
            ", ".join(filter(None, (name, operation if operation != self.title else ""))),
            machine=machine,
            devices=list(dict.fromkeys(row["device"] for row in self.rows)),
            sweep=self.name,
        )


@dataclass(frozen=True)
class Folder:
    """The folder that the report is written to."""

    path: Path
    stills: dict[str, str] = field(default_factory=dict)  # file name: specification to draw

    def write(self, name: str, text: str) -> None:
        """Write one file, replaced whole or not at all."""
        store.write_text(self.path / name, text)

    def write_stills(self, svgs: Sequence[str | drawing.DrawingError]) -> None:
        """Write the queued figures; one that could not be drawn has no file, not even that of an earlier report."""
        for name, svg in zip(self.stills, svgs, strict=True):
            if isinstance(svg, str):
                self.write(name, svg)
            else:
                (self.path / name).unlink(missing_ok=True)

    def tabulate(self, stem: str, shown: Sequence[Table], csv: str, whole: Sequence[Table] = ()) -> None:
        """Write tables as Markdown, LaTeX and CSV; the Markdown has the ``whole`` tables if they are given.

        A sweep name has no dot, so tables whose stem has one collide with no sweep.
        """
        if shown:
            self.write(f"tables/{stem}.csv", csv)
            self.write(f"tables/{stem}.md", markup.markdown(whole or shown))
            self.write(f"tables/{stem}.tex", markup.latex(shown))

    def add(self, stem: str, drawn: Iterable[Figure], of: str = "") -> list[Figure]:
        """Queue figures for drawing; ``of`` is the second line of their titles."""
        drawn = list(drawn)
        for figure in drawn:
            if figure.size:  # the page can show it; the files have the largest size
                continue
            title = [figure.caption, of] if of else [figure.caption]
            self.stills[f"figures/{stem}-{figure.name}.svg"] = vega.still(figure, title)
        return drawn


def _figures(sweep: Sweep, folder: Folder) -> list[list[Figure]]:
    """Queue the figures of each series of a sweep for drawing."""
    drawn: list[list[Figure]] = []
    for i, series in enumerate(sweep.series):
        earlier = sum((other.dtype, other.ranks) == (series.dtype, series.ranks) for other in sweep.series[:i])
        number = f"-{earlier + 1}" if earlier else ""
        stem = f"{sweep.stem}-{quote(series.dtype, safe='')}-r{series.ranks}{number}"
        own = chapters.figures_of(series, sweep.styles, sweep.chapter)
        drawn.append(folder.add(stem, own, f"{sweep.name}: {formats.conditions(series)}"))
    return drawn


def _sweep(
    sweep: Sweep, drawn: Sequence[Sequence[Figure]], whole: Experiment, folder: Folder
) -> Iterator[tuple[str, View]]:
    """Write the tables of one sweep; yield its views, each with its chapter."""
    made = [[sizes.size_table(series, most=MOST_SIZES)] for series in sweep.series]
    every = [
        sizes.size_table(series) if len(analysis.by_size(series.rows)) > MOST_SIZES else shown
        for series, (shown,) in zip(sweep.series, made, strict=True)
    ]
    folder.tabulate(sweep.stem, [shown for (shown,) in made], csv_files.of_kind("points", sweep.rows), whole=every)
    watts: dict[str, list[Table]] = {}
    for each in chapters.TABLES:
        rows = [each.rows(series, whole) for series in sweep.series]
        own = [each.table(series, part) for series, part in zip(sweep.series, rows, strict=True)]
        if some := [table for table in own if table]:
            folder.tabulate(
                f"{sweep.stem}.{each.kind}", some, csv_files.of_kind(each.kind, list(chain.from_iterable(rows)))
            )
        for series, table, of_series in zip(sweep.series, own, made, strict=True):
            if table and each in energy.CHAPTER.tables:
                watts.setdefault(series.dtype, []).append(table)
            elif table and (each not in transfers.CHAPTER.tables or sweep.chapter in (transfers.CHAPTER.id, "ranks")):
                # the ladder at one size comes first; it has all of the row of that size but times end to end
                first = each is ladder.TABLE and len(of_series[0].rows) == 1
                of_series[: 1 if first and sweep.chapter != ranks.CHAPTER.id else 0] = [table] if first else []
                of_series += [] if first else [table]
    over = ranks.over_ranks(sweep.name, sweep.rows, whole)
    for kind, table, rows in over:
        folder.tabulate(f"{sweep.stem}.{kind}", [table], csv_files.of_kind(kind, rows))
    scaled = [table for _, table, _ in over]
    gains, predicted = (rows[rows["sweep"] == sweep.name] for rows in (whole.scaling, whole.predictions))
    efficiencies = folder.add(sweep.stem, ranks.scalings(gains, sweep.styles), sweep.name)
    models = folder.add(sweep.stem, ranks.predictions(predicted, sweep.styles), sweep.name)
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
            tables=[*(table for i in places for table in made[i]), *(scaled if distributed else ())],
        )
    yield sweep.chapter, sweep.view(panels)
    if scaled and not distributed:
        yield "ranks", sweep.view(_panels(efficiencies, scaled), "over ranks")
    if models:
        yield "ranks", sweep.view(_panels(models), "predicted")
    of_one_size = len(analysis.by_size(sweep.rows)) == 1
    if sweep.chapter == ladder.CHAPTER.id or (sweep.chapter == reductions.CHAPTER.id and of_one_size):
        explained = {series.dtype: analysis_why.steps(series.rows, whole.known) for series in sweep.series}
        if some := {
            dtype: Panel(steps=why.rows(steps), notes=why.notes(steps)) for dtype, steps in explained.items() if steps
        }:
            yield "why", sweep.view(some, "steps", alone=True)
    if watts:
        bars = folder.add(sweep.stem, [figure for each in sweep.series for figure in energy.efficiencies(each)])
        by_type = _panels(bars)
        yield (
            "clocks",
            sweep.view({dtype: replace(by_type[dtype], tables=own) for dtype, own in watts.items()}, "energy", True),
        )


def _panels(figures: Sequence[Figure], shown: Sequence[Table] = ()) -> dict[str, Panel]:
    """Return a panel with these tables for each element type of some figures."""
    dtypes = dict.fromkeys(figure.dtype for figure in figures) or [""]
    return {dtype: Panel(figures=[each for each in figures if each.dtype == dtype], tables=shown) for dtype in dtypes}


def _by_type(anchor: str, title: str, figures: Sequence[Figure], text: str = "") -> list[View]:
    return [View(anchor, title, _panels(figures), text=text)] if figures else []


def _of_table(anchor: str, title: str, table: Table, text: str = "") -> list[View]:
    return (
        [View(anchor, title, {"": Panel(tables=[table], open=len(table.rows) <= 8)}, text=text)] if table.rows else []
    )


def _bits(frame: pd.DataFrame, folder: Folder) -> list[View]:
    """Write what the bits of results depend on, and return a view of each operation."""
    views = []
    for operation, points in same_bits.compared(frame).groupby("operation", sort=False):
        made = same_bits.bits_table(points)
        folder.tabulate(f"{operation}.same_bits", [made], csv_files.of_kind("same_bits", analysis.row_dicts(points)))
        views.append(View(f"bits-{operation}", operation, {"": Panel(tables=[made], open=True)}))
    return views


def _resources(whole: Experiment, reasons: Mapping[str, str], folder: Folder) -> list[View]:
    """Write the tables of kernel resources and counters; return their views."""
    made: dict[str, list[Table]] = {}
    for kind, rows, tabulate in (
        ("resources", whole.resources, hardware.resource_table),
        ("profile", whole.profiles, hardware.profile_table),
    ):
        made[kind] = []
        for operation, part in rows.groupby("operation", sort=False):
            known = analysis.row_dicts(part.dropna(axis=1, how="all"))
            own = [tabulate(analysis.row_dicts(on_gpu)) for _, on_gpu in part.groupby("gpu", sort=False)]
            folder.tabulate(f"{operation}.{kind}", own, csv_files.of_kind(kind, known))
            made[kind] += own
    without: dict[str, list[str]] = {}
    for operation, reason in reasons.items():
        without.setdefault(reason, []).append(operation)
    told = [f"<p>Not profiled: {', '.join(names)}. Reason: {escape(reason)}.</p>" for reason, names in without.items()]
    views = []
    if made["resources"]:
        views.append(View("resources", "Resources", {"": Panel(tables=made["resources"])}, text=ABOUT["resources"]))
    if made["profile"] or told:
        text = (ABOUT["profile"] if made["profile"] else "") + "".join(told)
        views.append(View("profiler", "Profile", {"": Panel(tables=made["profile"])}, text=text))
    return views


def _levels(rows: pd.DataFrame, folder: Folder) -> list[View]:
    """Write the tables of the levels of memory; return their view."""
    several = rows.groupby("device")["owner"].nunique()
    shown = [
        memory.level_table(own, formats.device(device) + (f", {owner}" if several[device] > 1 else ""))
        for (owner, device), own in rows.groupby(["owner", "device"], sort=False)
    ]
    folder.tabulate("memory.levels", shown, csv_files.of_kind("levels", analysis.row_dicts(rows)))
    return (
        [View("levels", "Levels of memory", {"": Panel(tables=shown, open=True)}, text=ABOUT["levels"])]
        if shown
        else []
    )


def _courses(known: Sequence[documents.Document], folder: Folder) -> list[View]:
    """Write the tables of the course documents; return the view of each that the file answers."""
    views = []
    for document in filter(courses.is_shown, known):
        stem = f"course.{document.number}"
        shown = [courses.course_table(table, document.number) for table in document.tables]
        folder.tabulate(stem, shown, csv_files.written(courses.COLUMNS, courses.cells(document)))
        sentences = [f"{table.caption}: {courses.sentence(table)}".replace("`", "") for table in document.tables]
        figures = folder.add(f"course-{document.number}", courses.curves(document))
        text = f"<p>{escape(document.title)}. {escape(document.source)}. Hardware: {escape(document.hardware)}.</p>"
        panel = Panel(findings=list(map(Finding, sentences)), figures=figures, tables=shown, open=True)
        views.append(View(f"course-{document.number}", document.number, {"": panel}, text=text))
    return views
