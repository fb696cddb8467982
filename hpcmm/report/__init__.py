"""From a timings file to tables, figures and one HTML page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd

from hpcmm import analysis, store
from hpcmm.analysis import Series, Summary, links, occupancy, scaling, why
from hpcmm.bench import done
from hpcmm.experiment import extensions
from hpcmm.report import (
    chapters,
    csv_files,
    drawing,
    exchanges,
    figures,
    findings,
    formats,
    hardware,
    headlines,
    markup,
    opening,
    page,
    steps,
    tables,
    vega,
)
from hpcmm.report.markup import Table
from hpcmm.report.page import Part, SweepSection
from hpcmm.report.vega import Figure, Style
from hpcmm.text import printable

MOST_SIZES = 32  # of a table on the page; the Markdown file has all
FEW = 12  # figures: they wait for the others, because a renderer starts no faster than it draws so many


def build(timings: Path, results: Path) -> tuple[Path, Summary]:
    """Make the whole report from a timings file alone.

    Parameters
    ----------
    timings : Path
        A file from ``Journal.complete`` or ``store.merge``.
    results : Path
        Folder to write ``report.html``, ``tables/`` and ``figures/`` into.

    Returns
    -------
    tuple of Path and Summary
        The path of the page, and the counts of points.

    Raises
    ------
    StoreError
        If the timings cannot be read.
    """
    columns = store.read(timings)
    with ThreadPoolExecutor(2) as background:
        script = background.submit(drawing.script)  # takes a second
        frame = analysis.split_by_machine(analysis.measurements(columns))
        summary = analysis.summary(columns, frame)
        folder = Folder(results)
        sweeps: dict[str, list[Series]] = {}
        for series in analysis.series(frame):
            sweeps.setdefault(series.sweep, []).append(series)
        styles = {
            name: vega.styles(pd.concat([series.points for series in members])) for name, members in sweeps.items()
        }
        chapter = {
            name: chapters.chapter_of(pd.concat([each.points for each in members])) for name, members in sweeps.items()
        }
        sweeps = chapters.in_order(sweeps)
        machines = formats.machines(frame["machine"])
        drawn = {name: _figures(name, members, styles[name], chapter[name], folder) for name, members in sweeps.items()}
        begun = len(folder.stills) if len(folder.stills) > FEW else 0
        drawings = [background.submit(drawing.svgs, list(folder.stills.values())[:begun])]  # the longest step
        whole = Experiment(
            activities=analysis.activities(columns, frame),
            known=why.Known.of(columns, frame),
            resources=occupancy.resources(frame),
            scaling=scaling.speedups(frame),
            predictions=scaling.predictions(columns, frame),
            profiles=analysis.profiles(columns),
        )
        over_ranks = {name: _figures_over_ranks(name, whole, styles[name], folder) for name in sweeps}
        rooflines = folder.add("roofline", figures.rooflines(frame))
        own = [draw for module in extensions.LOADED.values() for draw in getattr(module, "FIGURES", ())]
        extended = [figure for draw in own for figure in folder.add("extension", draw(frame))]
        panels = opening.panels(frame, [each for members in sweeps.values() for each in members], whole.scaling, styles)
        for panel in panels:
            folder.add("opening", panel.figures)
        clocks = folder.add("state", figures.clocks(analysis.clock_samples(columns, frame)))
        drawings.append(background.submit(drawing.svgs, list(folder.stills.values())[begun:]))
        runs = analysis.runs(columns)
        shown = [
            _sweep(name, members, machines, chapter[name], drawn[name], over_ranks[name], whole, folder)
            for name, members in sweeps.items()
        ]
        occupied, device = _resources(whole.resources, page.gpus(runs), folder)
        html = page.render(
            summary=summary,
            panels=panels,
            headlines=headlines.headlines(frame, whole.scaling),
            runs=runs,
            sweeps=shown,
            rooflines=rooflines,
            levels=_levels(analysis.levels(frame), folder),
            extensions=extended,
            clocks=clocks,
            resources=occupied,
            device=device,
            profiles=_profiles(whole.profiles, folder),
            unprofiled=analysis.unprofiled(columns) if analysis.on_accelerator(frame).any() else {},
            timings=printable(timings.name),
            source=done.page_source(timings),
            vega=script.result() if folder.stills else "",
        )
        svgs = [svg for part in drawings for svg in part.result()]
        for name, svg in zip(folder.stills, svgs, strict=True):
            folder.write(name, svg)
    folder.write("report.html", html)
    return results / "report.html", summary


def build_grades(result: Mapping[str, Any], target: Path) -> None:
    """Write the page of the grades of many submissions."""
    submissions = []
    for each in result["submissions"]:
        lines = {grade["exercise"]: grade["why"].splitlines() for grade in each["exercises"]}
        errors = {name: "\n".join(map(printable, why)) for name, why in lines.items() if len(why) > 1}
        submissions.append((printable(each["name"]), tables.exercises_table(each), errors))
    Folder(target.parent).write(target.name, page.render_grades(result, tables.grades_table(result), submissions))


@dataclass(frozen=True)
class Experiment:
    """The results over all sweeps, from ``analysis``, ``why`` and ``scaling``."""

    activities: pd.DataFrame
    known: why.Known
    resources: pd.DataFrame
    scaling: pd.DataFrame
    predictions: pd.DataFrame
    profiles: pd.DataFrame


@dataclass(frozen=True)
class Folder:
    """The folder that the report is written to."""

    path: Path
    stills: dict[str, str] = field(default_factory=dict)  # file name: specification to draw

    def write(self, name: str, text: str) -> None:
        """Write one file, replaced whole or not at all."""
        with store.replacing(self.path / name) as temporary:
            temporary.write_text(text, encoding="utf-8")

    def tabulate(self, stem: str, shown: Sequence[Table], csv: str, whole: Sequence[Table] = ()) -> None:
        """Write tables as Markdown, LaTeX and CSV; the Markdown has the ``whole`` tables if they are given."""
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


def _stem(sweep: str) -> str:
    """Return the file name of a sweep. The sweep name comes from a file and must not contain a path."""
    return quote(sweep, safe="")


def _figures(
    name: str, members: Sequence[Series], style: Mapping[str, Style], chapter: str, folder: Folder
) -> list[list[Figure]]:
    """Queue the figures of each series of a sweep for drawing."""
    drawn: list[list[Figure]] = []
    for i, series in enumerate(members):
        earlier = sum((other.dtype, other.ranks) == (series.dtype, series.ranks) for other in members[:i])
        number = f"-{earlier + 1}" if earlier else ""
        stem = f"{_stem(name)}-{quote(series.dtype, safe='')}-r{series.ranks}{number}"
        own = [*figures.of_series(series, style, chapter), *figures.efficiencies(series)]
        drawn.append(folder.add(stem, own, f"{name}: {formats.conditions(series)}"))
    return drawn


def _figures_over_ranks(name: str, whole: Experiment, style: Mapping[str, Style], folder: Folder) -> list[Figure]:
    gains, predicted = (rows[rows["sweep"] == name] for rows in (whole.scaling, whole.predictions))
    return folder.add(_stem(name), [*figures.scalings(gains, style), *figures.predictions(predicted, style)], name)


def _sweep(
    name: str,
    members: Sequence[Series],
    machines: Mapping[str, str],
    chapter: str,
    drawn: Sequence[Sequence[Figure]],
    over_ranks: Sequence[Figure],
    whole: Experiment,
    folder: Folder,
) -> SweepSection:
    """Write the tables of one sweep; return its section of the page."""
    stem = _stem(name)
    copies = [series.of(whole.activities) for series in members]
    parts = [
        Part(
            series,
            own_figures,
            tables.size_table(series, most=MOST_SIZES),
            ladder,
            tables.phase_table(series),
            tables.activity_table(series, own_copies),
            tables.energy_table(series),
            tables.accuracy_table(series),
            steps.rows(why.steps(series.points, whole.known)) if ladder and chapter == "ladder" else (),
        )
        for series, own_figures, own_copies, ladder in zip(
            members, drawn, copies, map(tables.ladder_table, members), strict=True
        )
    ]
    ladders = [analysis.ladder(part.series.points) for part in parts if part.ladder]
    calls = [analysis.phases(series.points) for series in members]
    judged = [series.points[series.points["error_uniform"].notna()] for series in members]
    measured = [series.points[series.points["watts"].notna()] for series in members]
    points = pd.concat([series.points for series in members])
    sizes = [
        tables.size_table(series) if len(set(analysis.shapes(series.points))) > MOST_SIZES else part.sizes
        for series, part in zip(members, parts, strict=True)
    ]
    folder.tabulate(stem, [part.sizes for part in parts], csv_files.csv([points], csv_files.POINT_COLUMNS), whole=sizes)
    for kind, shown, frames, columns in (
        ("ladder", [part.ladder for part in parts], ladders, csv_files.LADDER_COLUMNS),
        ("phases", [part.phases for part in parts], calls, csv_files.PHASE_COLUMNS),
        ("energy", [part.energy for part in parts], measured, csv_files.ENERGY_COLUMNS),
        ("accuracy", [part.accuracy for part in parts], judged, csv_files.ERROR_COLUMNS),
        ("activities", [part.activities for part in parts], copies, csv_files.ACTIVITY_COLUMNS),
    ):
        if some := [table for table in shown if table]:
            folder.tabulate(f"{stem}.{kind}", some, csv_files.csv(frames, columns))
    scaled = []
    for kind, all_rows, tabulate, columns in (
        ("scaling", whole.scaling, tables.scaling_table, csv_files.SCALING_COLUMNS),
        ("predictions", whole.predictions, tables.prediction_table, csv_files.PREDICTION_COLUMNS),
    ):
        rows = all_rows[all_rows["sweep"] == name]
        if not rows.empty:
            scaled.append(tabulate(rows))
            folder.tabulate(f"{stem}.{kind}", scaled[-1:], csv_files.csv([rows], columns))
    exchanged = links.exchanges(points)
    if not exchanged.empty:
        scaled.append(exchanges.table(exchanged))
        folder.tabulate(f"{stem}.exchanges", scaled[-1:], csv_files.csv([exchanged], exchanges.COLUMNS))
    found = {dtype: findings.what_to_see(own, chapter) for dtype, own in points.groupby("dtype", sort=False)}
    title = chapters.title_of(name, points)
    machine = machines[points["machine"].iloc[0]] if title != name else ""
    return SweepSection(name, title, machine, chapter, parts, found, scaled, over_ranks)


def _resources(
    rows: pd.DataFrame, gpus: Sequence[Mapping[str, Any]], folder: Folder
) -> tuple[list[Table], Table | None]:
    """Write the tables of kernel resources and GPU properties, and return them."""
    shown = []
    # A sweep name has no dot, so these files collide with no sweep.
    for operation, part in rows.groupby("operation", sort=False):
        own = [hardware.resource_table(on_gpu) for _, on_gpu in part.groupby("gpu", sort=False)]
        csv = csv_files.csv([part.dropna(axis=1, how="all")], csv_files.RESOURCE_COLUMNS)
        folder.tabulate(f"{operation}.resources", own, csv)
        shown += own
    device = hardware.device_table(gpus)
    if device:
        folder.tabulate("gpu.properties", [device], hardware.device_csv(gpus))
    return shown, device


def _levels(rows: pd.DataFrame, folder: Folder) -> list[Table]:
    """Write the tables of the levels of memory, and return them."""
    several = rows.groupby("device")["owner"].nunique()
    shown = [
        tables.level_table(own, formats.device(device) + (f", {owner}" if several[device] > 1 else ""))
        for (owner, device), own in rows.groupby(["owner", "device"], sort=False)
    ]
    # A sweep name has no dot, so these files collide with no sweep.
    folder.tabulate("memory.levels", shown, csv_files.csv([rows], csv_files.LEVEL_COLUMNS))
    return shown


def _profiles(rows: pd.DataFrame, folder: Folder) -> list[Table]:
    """Write the profile tables of each operation, and return them."""
    shown = []
    for operation, part in rows.groupby("operation", sort=False):
        own = [hardware.profile_table(on_gpu) for _, on_gpu in part.groupby("gpu", sort=False)]
        folder.tabulate(f"{operation}.profile", own, csv_files.csv([part], csv_files.PROFILE_COLUMNS))
        shown += own
    return shown
