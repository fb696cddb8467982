"""From a timings file to tables, figures and one HTML page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd

from hpcmm import analysis, store
from hpcmm.analysis import Series
from hpcmm.report import figures, findings, page, tables
from hpcmm.report.page import Part, Sweep
from hpcmm.report.tables import Table


def build(timings: Path, results: Path) -> Path:
    """Make the whole report from a timings file alone.

    Parameters
    ----------
    timings : Path
        What ``store.write`` or ``store.merge`` wrote.
    results : Path
        Folder to write ``report.html``, ``tables/`` and ``figures/`` into.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    StoreError
        If the timings cannot be read.
    """
    columns = store.read(timings)
    frame = analysis.measurements(columns)
    sweeps: dict[str, list[Series]] = {}
    for series in analysis.series(frame):
        sweeps.setdefault(series.sweep, []).append(series)
    activities, resources = analysis.activities(columns, frame), analysis.resources(frame)
    shown = [_write_sweep(name, members, activities, resources, results) for name, members in sweeps.items()]
    runs = analysis.runs(columns)
    occupied, device = _write_resources(resources, page.gpus(runs), results)
    profiled = _write_profiles(analysis.profiles(columns), results), analysis.unprofiled(columns)
    html = page.render(analysis.summary(columns, frame), runs, shown, occupied, device, profiled, timings.name)
    _write(results / "report.html", html)
    return results / "report.html"


def _write_sweep(
    name: str, members: Sequence[Series], activities: pd.DataFrame, resources: pd.DataFrame, results: Path
) -> Sweep:
    """Write one sweep's tables and figures; return what the page shows of them."""
    # A sweep's name comes from a file: it must not lead out of the folder.
    stem = quote(name, safe="")
    parts, ladders, calls = [], [], []
    for i, series in enumerate(members):
        chart = figures.rate_against_size(series)
        ladder = tables.ladder_table(series) if tables.is_ladder(series) else None
        listed = tables.activity_table(series, series.of(activities))
        part = Part(series, tables.size_table(series), ladder, tables.phase_table(series), listed, chart)
        parts.append(part)
        if chart:
            earlier = sum((p.series.dtype, p.series.ranks) == (series.dtype, series.ranks) for p in parts[:i])
            number = f"-{earlier + 1}" if earlier else ""
            path = results / "figures" / f"{stem}-{quote(series.dtype, safe='')}-r{series.ranks}{number}.svg"
            _write(path, figures.svg(chart, f"{name}: {tables.conditions(series)}"))
        if ladder:
            ladders.append(analysis.ladder(series.points))
        calls.append(analysis.phases(series.points))
    folder = results / "tables"
    _write(folder / f"{stem}.csv", tables.csv([part.series.points for part in parts], tables.POINT_COLUMNS))
    _write(folder / f"{stem}.md", tables.markdown([part.sizes for part in parts]))
    if ladders:
        _write(folder / f"{stem}.ladder.csv", tables.csv(ladders, tables.LADDER_COLUMNS))
        _write(folder / f"{stem}.ladder.md", tables.markdown([part.ladder for part in parts if part.ladder]))
    if any(part.phases for part in parts):
        _write(folder / f"{stem}.phases.csv", tables.csv(calls, tables.PHASE_COLUMNS))
        _write(folder / f"{stem}.phases.md", tables.markdown([part.phases for part in parts if part.phases]))
    if any(part.activities for part in parts):
        own = [part.series.of(activities) for part in parts]
        _write(folder / f"{stem}.activities.csv", tables.csv(own, tables.ACTIVITY_COLUMNS))
        _write(folder / f"{stem}.activities.md", tables.markdown([p.activities for p in parts if p.activities]))
    seen = findings.what_to_see(pd.concat([series.points for series in members]), resources)
    return Sweep(name, parts, seen)


def _write_resources(
    rows: pd.DataFrame, gpus: Sequence[Mapping[str, Any]], results: Path
) -> tuple[list[Table], Table | None]:
    """Write what the kernels of each operation take and what the GPUs have; return the tables."""
    folder, shown = results / "tables", []
    # The name of a sweep has no dot, so that these files are nobody else's.
    for operation, part in rows.groupby("operation", sort=False):
        shown.append(tables.resource_table(part))
        _write(
            folder / f"{operation}.resources.csv", tables.csv([part.dropna(axis=1, how="all")], tables.RESOURCE_COLUMNS)
        )
        _write(folder / f"{operation}.resources.md", tables.markdown(shown[-1:]))
    device = tables.device_table(gpus)
    if device:
        _write(folder / "gpu.properties.csv", tables.device_csv(gpus))
        _write(folder / "gpu.properties.md", tables.markdown([device]))
    return shown, device


def _write_profiles(rows: pd.DataFrame, results: Path) -> list[Table]:
    """Write what a profiler counted of the kernels of each operation; return the tables."""
    folder, shown = results / "tables", []
    for operation, part in rows.groupby("operation", sort=False):
        shown.append(tables.profile_table(part))
        _write(folder / f"{operation}.profile.csv", tables.csv([part], tables.PROFILE_COLUMNS))
        _write(folder / f"{operation}.profile.md", tables.markdown(shown[-1:]))
    return shown


def _write(path: Path, text: str) -> None:
    with store.replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
