"""The page of the report: one offline HTML file."""

import functools
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from hpcmm import analysis
from hpcmm.analysis import Summary, limits
from hpcmm.model.devices import DEVICES
from hpcmm.operations import OPERATIONS
from hpcmm.report import definitions, drawing, formats, tables
from hpcmm.report.chapters import why
from hpcmm.report.chapters.chapter import Chapter
from hpcmm.report.findings import Finding
from hpcmm.report.markup import Table, words
from hpcmm.report.vega import CONFIG, Figure
from hpcmm.system.text import percent, short_revision, unbroken

# Provenance that differs between runs on one machine; the rest is the environment.
OF_THE_RUN = ("utc", "arguments", "slurm", "counters", "counters_at_end")


@dataclass(frozen=True)
class Panel:
    """What a view shows of one element type: findings, figures, steps with notes, and tables in a fold."""

    findings: Sequence[Finding] = ()
    figures: Sequence[Figure] = ()
    steps: Sequence[Mapping[str, str]] = ()
    notes: Sequence[str] = ()
    tables: Sequence[Table] = ()
    open: bool = False  # whether its tables are shown at once

    @property
    def captions(self) -> str:
        """The subjects of its tables."""
        return "; ".join(dict.fromkeys(re.split(r"[,;]| \[", table.caption)[0] for table in self.tables))


@dataclass(frozen=True)
class View:
    """One of the views of a chapter, mostly of a sweep; the page shows one of them."""

    anchor: str
    title: str
    panels: Mapping[str, Panel]  # by element type; ``""`` for all
    note: str = ""  # what stands beside the title
    text: str = ""  # HTML above the panels
    machine: str = ""  # the kind of machine; empty for all
    devices: Sequence[str] = ()
    sweep: str = ""  # its sweep, for the states in the navigation


def render(
    chapters: Sequence[tuple[Chapter, Sequence[View]]],
    summary: Summary,
    columns: analysis.Columns,
    points: pd.DataFrame,
    **more: Any,
) -> str:
    """Return the page: its head, and each chapter with its views.

    ``points`` are from ``analysis.points``. Of ``more``, ``opening`` is the first screen; ``device`` is the table of
    the GPUs; ``timings`` is the name of the file, ``source`` is from ``store.page_source``, and ``vega`` from
    ``drawing.script``. ``undrawn`` says why figures are not drawn. The page begins with the ``notes``.
    """
    runs, operations = analysis.runs(columns), set(points["operation"])
    described = conditions(runs)
    unmeasured = (
        tables.points_table("Not measured", summary.missing, "Reason", tables.text("where")),
        tables.unplanned_table("Not measured: no result of their job", summary.of_failed_jobs),
        tables.unplanned_table("Variants not measured", summary.unplanned),
    )
    more |= {"noise": list(noises(points)), "choices": choices(points)}
    more |= {"alarms": tables.failure_table(summary.alarms), "unmeasured": [each for each in unmeasured if each.rows]}
    more |= {"conditions": described, "provenance": provenance(runs, columns["runs"]["batch"])}
    more |= {"states": {chapter.id: states(summary, views) for chapter, views in chapters}}
    more |= {"device_title": formats.device, "page_of": why.page_of, "embedded": Embedded()}
    more |= {"defined": definitions.defined(), "definitions": definitions.sections()}
    ladders = [operation for operation in OPERATIONS.values() if operation.name in operations]
    line = machine_line(described)
    return template("page.html.j2").render(more, summary=summary, chapters=chapters, ladders=ladders, line=line)


def noises(points: pd.DataFrame) -> Iterator[str]:
    """Say how much the visits of one job scatter on each machine and device, and how much jobs do beyond that."""
    names = formats.machines(points["machine"])
    for (machine, device), visits, jobs in analysis.noises(points).itertuples():
        place = f"{names[machine]}, {formats.device(device)}" if len(names) > 1 else formats.device(device)
        of_visits = "unknown" if math.isnan(visits) else percent(visits)
        of_jobs = "unknown" if math.isnan(jobs) else percent(jobs) if jobs else "no more"
        yield f"{place}: spread between visits of one job {of_visits}, between jobs {of_jobs}"


def choices(points: pd.DataFrame) -> dict[str, Any]:
    """Return what the switch of the page offers; the first type, that of the most points, is shown at first."""
    return {
        "machines": formats.machines(points["machine"]),
        "dtypes": points["dtype"].value_counts().index.tolist(),
        "devices": sorted(points["device"].unique(), key=lambda name: not DEVICES[name].accelerator),
    }


class Embedded:
    """The figures of a page and its parts that are shown later, compressed together: their texts repeat."""

    config = CONFIG

    def __init__(self):
        self.figures: dict[str, Any] = {}
        self.parts: list[str] = []

    def add(self, where: str, figure: Figure) -> str:
        """Add a figure of a part of the page; return its identity."""
        identity = unique(slug(f"{where}-{figure.name}"), self.figures)
        self.figures[identity] = {"columns": figure.columns, "spec": figure.spec, "shown": figure.shown}
        return identity

    def packed(self, html: str) -> Markup:
        """Keep a part; return its place, where the script inserts it when it is shown."""
        self.parts.append(html)
        return Markup('<template data-part="%d"></template>') % (len(self.parts) - 1)

    @property
    def stored(self) -> str:
        kept = {"parts": self.parts, "figures": self.figures}
        return drawing.compressed(json.dumps(kept, allow_nan=False, separators=(",", ":"), ensure_ascii=False))


def slug(text: str) -> str:
    """Return a text as an anchor: letters, digits, ``-`` and ``_``."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-")


def unique(name: str, taken: Mapping[str, Any]) -> str:
    """Return the name, with a number if it is taken."""
    return next(each for each in chain([name], (f"{name}-{i}" for i in count(2))) if each not in taken)


def states(summary: Summary, views: Sequence[View]) -> list[tuple[str, str]]:
    """Return the states of a chapter for the navigation, as pairs of a CSS class and a text."""
    names = {view.sweep for view in views if view.sweep}
    if not names:
        return []
    wrong = int(summary.alarms["sweep"].isin(names).sum())
    counts = [("fail", wrong, "FAIL"), ("warn", summary.unmeasured_of(names), "not measured")]
    return [(kind, f"{number} {word}") for kind, number, word in counts if number] or [("pass", "PASS")]


def machine_line(conditions: Sequence[tuple[str, Sequence[str]]]) -> str:
    """Return machine, date and revision in one line: the GPUs, or else the CPUs."""
    known = {name: list(values) for name, values in conditions}
    parts = [known.get("GPU") or known.get("CPU", []), known.get("Date (UTC)", [])]
    if revisions := known.get("Revision"):
        one = f"revision {short_revision(revisions[0])}"
        parts.append([one if len(revisions) == 1 else f"{len(revisions)} revisions"])
    return " · ".join(" and ".join(part) for part in parts if part)


@functools.cache
def template(name: str) -> Template:
    """Return a template of this folder. Compiling one takes longer than rendering it."""
    how = {"undefined": StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    loader = PackageLoader("hpcmm", "report")
    environment = Environment(loader=loader, autoescape=True, **how)  # included files, too: they have no text of others
    environment.filters["unbroken"] = unbroken
    return environment.get_template(name)


def conditions(runs: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    """List machine, devices and software, each with all distinct values of the runs."""
    listed: dict[str, list[str]] = {}
    for run in runs:
        for name, values in _conditions_of(run).items():
            texts = (" ".join(str(value).splitlines()[0].split()) for value in values if value)
            listed[name] = list(dict.fromkeys([*listed.get(name, ()), *texts]))
    listed |= {"GPU": _gpus(runs)} if listed else {}
    if dates := sorted(listed.pop("Date", [])):
        listed["Date (UTC)"] = [dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"]
    return [(name, values) for name, values in listed.items() if values]


def _conditions_of(provenance: Mapping[str, Any]) -> dict[str, list[Any]]:
    cpu, mpi, packages = (analysis.mapping(provenance.get(name)) for name in ("cpu", "mpi", "packages"))
    devices = analysis.gpus_of(provenance)
    revision = short_revision(str(provenance.get("revision") or ""), 12)
    cores = f", {cpu['cores']} cores" if cpu.get("cores") else ""
    listed = {"Machine": [provenance.get("host")], "GPU": []}  # which are counted over all runs
    listed |= {name: [gpu.get(name.lower()) for gpu in devices] for name in ("Driver", "CUDA")}
    listed |= {"CPU": [cpu.get("model") and f"{cpu['model']}{cores}"], "BLAS": [cpu.get("blas")]}
    listed |= {"MPI": [mpi.get("library")], "Python": [provenance.get("python")]}
    listed["Packages"] = [", ".join(f"{name} {version}" for name, version in packages.items())]
    changed = " with uncommitted changes" if provenance.get("dirty") else ""
    listed |= {"hpcmm": [provenance.get("hpcmm")], "Revision": [revision and revision + changed]}
    return listed | {"Date": [str(provenance.get("utc") or "")[:10]]}


def gpus(runs: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the GPU records of all runs in order, with the peak rates of each GPU."""
    records = []
    for gpu in (gpu for run in runs for gpu in analysis.gpus_of(run)):
        peaks = {"cores": cores} if (cores := limits.cores(gpu)) else {}
        for dtype in ("float32", "float64"):
            flops, units, _ = limits.peaks([gpu], dtype)
            peaks |= {f"peak_{dtype}": flops, f"units_{dtype}": units} if math.isfinite(flops) else {}
        records.append(dict(gpu) | peaks)
    return records


def _gpus(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """List the kinds of GPU with the number of distinct GPUs used, on one machine or on all."""
    devices, machines = {}, set()
    for run in runs:
        machines.add(json.dumps([run.get("host"), run.get("cpu")], sort_keys=True))
        for i, gpu in enumerate(analysis.gpus_of(run)):
            if gpu.get("name"):
                devices[gpu.get("uuid") or (run.get("host"), i)] = str(gpu["name"])
    names = list(devices.values())
    kinds = [f"{names.count(name)} × {name}" for name in dict.fromkeys(names)]
    if kinds and len(machines) > 1:
        kinds[-1] += " in total"
    return kinds


def provenance(runs: Sequence[Mapping[str, Any]], batches: Sequence[str]) -> dict[str, Any]:
    """Return the provenance that all runs share, the values that differ with their counts, and a row for each run."""
    fields: dict[str, Counter] = defaultdict(Counter)
    rows = []
    for run, batch in zip(runs, batches, strict=True):
        for name, value in _flat({key: each for key, each in run.items() if key not in OF_THE_RUN}).items():
            fields[name][value] += 1
        arguments = run["arguments"] if isinstance(run.get("arguments"), list) else []
        slurm = json.dumps(run["slurm"], ensure_ascii=False) if run.get("slurm") else ""
        rows.append(list(map(words, (batch, str(run.get("utc") or ""), " ".join(map(str, arguments)), slurm))))
    common = {name for name, values in fields.items() if list(values.values()) == [len(runs)]}
    shared = {name: json.loads(next(iter(fields[name]))) for name in sorted(common)}
    differing = [
        [words(name), words("", "\n".join(f"{value} (runs: {count})" for value, count in fields[name].items()))]
        for name in sorted(set(fields) - common)
    ]
    return {
        "shared": json.dumps(shared, indent=2, ensure_ascii=False) if shared else "",
        "differing": Table("What differs between the runs", ("Field", "Values"), differing),
        "runs": Table("Runs", ("Batch", "Time (UTC)", "Arguments", "Slurm"), rows),
    }


def _flat(value: Any, name: str = "") -> dict[str, str]:
    """Return the fields of nested mappings by their path, ``"cpu.cores"``, as JSON."""
    if isinstance(value, Mapping) and value:
        found = {}
        for key, each in value.items():
            found |= _flat(each, f"{name}.{key}" if name else str(key))
        return found
    return {name: json.dumps(value, ensure_ascii=False, sort_keys=True)} if name else {}
