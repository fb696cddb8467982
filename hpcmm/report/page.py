"""The page of the report: one offline HTML file."""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import chain, count
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined, Template

from hpcmm import analysis
from hpcmm.analysis import Series, Summary, limits
from hpcmm.devices import DEVICES
from hpcmm.operations import OPERATIONS
from hpcmm.report import definitions, drawing, figures, formats, steps, tables
from hpcmm.report.chapters import CHAPTERS
from hpcmm.report.findings import MOST_SIZES, Finding
from hpcmm.report.headlines import Headline
from hpcmm.report.markup import Table
from hpcmm.report.opening import Panel
from hpcmm.report.vega import CONFIG, Figure
from hpcmm.text import short_revision

# Provenance that differs between runs on one machine; the rest is the environment.
OF_THE_RUN = ("utc", "arguments", "slurm", "counters", "counters_at_end")


@dataclass(frozen=True)
class Part:
    """The figures and tables of one series on the page; ``why`` has the lines of ``steps.rows``."""

    series: Series
    figures: Sequence[Figure]
    sizes: Table
    ladder: Table | None
    phases: Table | None
    activities: Table | None
    energy: Table | None
    accuracy: Table | None
    why: Sequence[Mapping[str, str]] = ()

    @property
    def conditions(self) -> str:
        return formats.conditions(self.series)

    @property
    def tables(self) -> list[Table]:
        """All tables, the most important first: the ladder if there is one size only, else the sizes."""
        first = [self.sizes, self.ladder]
        if self.ladder and len(self.sizes.rows) == 1:
            first.reverse()
        return [table for table in (*first, self.phases, self.activities, self.energy, self.accuracy) if table]


@dataclass(frozen=True)
class SweepSection:
    """The section of one sweep on the page, in its chapter.

    ``title`` is its name in the config, ``machine`` the kind of machine if it was measured on several; ``findings`` are
    by element type.
    """

    name: str
    title: str
    machine: str
    chapter: str
    parts: Sequence[Part]
    findings: Mapping[str, Sequence[Finding]]
    scaling: Sequence[Table]
    efficiencies: Sequence[Figure]

    @property
    def operation(self) -> str:
        return self.parts[0].series.operation

    @property
    def note(self) -> str:
        """The text after its title: the operation and the machine, unless the title names them."""
        return ", ".join(filter(None, (self.operation if self.operation != self.title else "", self.machine)))

    @property
    def unit(self) -> str:
        """The units of its tables."""
        return " and ".join(dict.fromkeys(formats.rate_unit_of(part.series.points).name for part in self.parts))

    @property
    def panels(self) -> list[tuple[str, list[Part]]]:
        """The parts of each element type; where ranks are compared, the most ranks come first."""
        parts = sorted(self.parts, key=lambda part: -part.series.ranks) if self.chapter == "ranks" else self.parts
        dtypes = dict.fromkeys(part.series.dtype for part in self.parts)
        return [(dtype, [part for part in parts if part.series.dtype == dtype]) for dtype in dtypes]

    @property
    def devices(self) -> list[str]:
        return list(dict.fromkeys(device for part in self.parts for device in part.series.points["device"].unique()))


@dataclass(frozen=True)
class Choices:
    """The choices of the switch of the page: element types, devices, and sizes by the kind of problem.

    The first type is shown at first: that of the most points.
    """

    dtypes: Sequence[str]
    devices: Sequence[str]
    sizes: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, sweeps: Sequence[SweepSection]) -> Choices:
        dtypes: dict[str, int] = {}
        devices: dict[str, None] = {}
        sizes: dict[str, dict[str, float]] = {}
        for part in (part for sweep in sweeps for part in sweep.parts):
            points = part.series.points
            dtypes[part.series.dtype] = dtypes.get(part.series.dtype, 0) + len(points)
            devices |= dict.fromkeys(points["device"])
            known = analysis.sizes(points)
            if 1 < len(known) <= MOST_SIZES:
                operation = OPERATIONS[part.series.operation]
                kind = "Products" if operation.metric == "flops" else "Vectors"
                work = {formats.size(row): row[operation.metric] for row in analysis.row_dicts(known)}
                sizes.setdefault(kind, {}).update(work)
        ordered = {kind: sorted(known, key=known.__getitem__) for kind, known in sizes.items()}
        return cls(
            sorted(dtypes, key=lambda dtype: -dtypes[dtype]),
            sorted(devices, key=lambda name: not DEVICES[name].accelerator),
            ordered,
        )


def render(
    *,
    summary: Summary,
    panels: Sequence[Panel],
    headlines: Sequence[Headline],
    runs: Sequence[Mapping[str, Any]],
    sweeps: Sequence[SweepSection],
    rooflines: Sequence[Figure],
    levels: Sequence[Table],
    extensions: Sequence[Figure],
    clocks: Sequence[Figure],
    resources: Sequence[Table],
    device: Table | None,
    profiles: Sequence[Table],
    unprofiled: Mapping[str, str],
    timings: str,
    source: str,
    vega: str,
) -> str:
    """Return the page.

    Parameters
    ----------
    summary : Summary
    panels : sequence of Panel
        The first screen.
    headlines : sequence of Headline
        Findings of chapters that have no panel.
    runs : sequence of mapping
        From ``analysis.runs``.
    sweeps : sequence of SweepSection
    rooflines, extensions, clocks : sequence of Figure
        From all sweeps together.
    levels : sequence of Table
        Levels of memory, one per device.
    resources : sequence of Table
        One per operation with CUDA kernels.
    device : Table, or None
        Properties of the GPUs.
    profiles : sequence of Table
        Profiler counters, one per operation.
    unprofiled : mapping of str to str
        The reason for each operation without a profile.
    timings : str
        Name of the timings file.
    source : str
        From ``done.page_source``.
    vega : str
        From ``drawing.script``; empty if there are no figures.
    """
    embedded = Embedded()
    limited = any(part.series.points["fraction"].notna().any() for sweep in sweeps for part in sweep.parts)
    kinds = {
        "limits": limited,
        "energy": any(part.series.points["watts"].notna().any() for sweep in sweeps for part in sweep.parts),
        "errors": any(part.accuracy for sweep in sweeps for part in sweep.parts),
        "rooflines": rooflines,
        "levels": levels,
        "scaling": any(sweep.scaling for sweep in sweeps),
        "resources": resources,
        "profiles": profiles,
    }
    taken: dict[str, Any] = {}
    for sweep in sweeps:
        taken[unique(f"sweep-{slug(sweep.name)}", taken)] = sweep
    described = conditions(runs)
    return template("page.html.j2").render(
        summary=summary,
        noise=[formats.noise(*each) for each in summary.noise],
        panels=panels,
        headlines=headlines,
        line=machine_line(described),
        alarms=tables.failure_table(summary.alarms),
        failures=tables.failure_table(summary.failures[summary.failures["expected"]]),
        unmeasured=[
            tables.unmeasured_table(summary.missing),
            tables.omitted_table("Not measured: no result of their job", summary.of_failed_jobs),
            tables.omitted_table("Left out", summary.omitted),
        ],
        throttlings=tables.throttling_table(summary.throttlings),
        conditions=described,
        provenance=provenance(runs),
        chapters=CHAPTERS,
        anchors={id(sweep): anchor for anchor, sweep in taken.items()},
        states=states(summary, sweeps),
        sweeps=sweeps,
        choices=Choices.of(sweeps),
        device_title=formats.device,
        slug=slug,
        page_of=steps.page_of,
        predicted=[each.name for sweep in sweeps for each in sweep.efficiencies if each.group == figures.PREDICTED],
        rooflines=rooflines,
        levels=levels,
        extensions=extensions,
        clocks=clocks,
        resources=resources,
        device=device,
        defined=definitions.DEFINED,
        limited=limited,
        definitions=definitions.shown([kind for kind, things in kinds.items() if things]),
        profiles=profiles,
        unprofiled=unprofiled,
        ladders=[operation for operation in OPERATIONS.values() if operation.name in {s.operation for s in sweeps}],
        timings=timings,
        source=source,
        embed=embedded.add,
        say=embedded.say,
        embedded=embedded.text,
        vega=vega,
    )


class Embedded:
    """The figures of one page, which its script draws; the templates add them."""

    def __init__(self):
        self.figures: dict[str, Any] = {}
        self.sentences: list[Mapping[str, str]] = []

    def say(self, finding: Finding) -> int:
        """Add the texts of a finding by size; return its number."""
        self.sentences.append(finding.at)
        return len(self.sentences) - 1

    def add(self, where: str, figure: Figure) -> str:
        """Add a figure of a part of the page; return its identity."""
        identity = unique(slug(f"{where}-{figure.name}"), self.figures)
        self.figures[identity] = {"columns": packed(figure.columns), "spec": figure.spec, "shown": figure.shown}
        return identity

    def text(self) -> str:
        """Return all figures as compressed text."""
        found = {"config": CONFIG, "figures": self.figures, "sentences": self.sentences}
        return drawing.compressed(json.dumps(found, allow_nan=False, separators=(",", ":"), ensure_ascii=False))


def slug(text: str) -> str:
    """Return a text as an anchor: letters, digits, ``-`` and ``_``."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-")


def unique(name: str, taken: Mapping[str, Any]) -> str:
    """Return the name, with a number if it is taken."""
    return next(each for each in chain([name], (f"{name}-{i}" for i in count(2))) if each not in taken)


def states(summary: Summary, sweeps: Sequence[SweepSection]) -> dict[str, list[tuple[str, str]]]:
    """Return the states of each chapter for the navigation, as pairs of a CSS class and a text.

    Failures that a sweep expects do not mark its chapter.
    """
    found: dict[str, list[tuple[str, str]]] = {}
    for chapter in {sweep.chapter for sweep in sweeps}:
        names = {sweep.name for sweep in sweeps if sweep.chapter == chapter}
        wrong = int(summary.alarms["sweep"].isin(names).sum())
        counts = [("fail", wrong, "FAIL"), ("warn", summary.unmeasured_of(names), "not measured")]
        found[chapter] = [(kind, f"{number} {word}") for kind, number, word in counts if number] or [("pass", "PASS")]
    return found


def machine_line(conditions: Sequence[tuple[str, Sequence[str]]]) -> str:
    """Return machine, date and revision in one line: the GPUs, or else the CPUs."""
    known = {name: list(values) for name, values in conditions}
    parts = [known.get("GPU") or known.get("CPU", []), known.get("Date (UTC)", [])]
    if revisions := known.get("Revision"):
        one = f"revision {short_revision(revisions[0])}"
        parts.append([one if len(revisions) == 1 else f"{len(revisions)} revisions"])
    return " · ".join(" and ".join(part) for part in parts if part)


def render_grades(
    result: Mapping[str, Any], points: Table, submissions: Sequence[tuple[str, Table, Mapping[str, str]]]
) -> str:
    """Return the page of the grades of many submissions.

    Parameters
    ----------
    result : mapping
        As ``grading.submissions.result`` returns it.
    points : Table
        One row per submission.
    submissions : sequence of (str, Table, mapping of str to str)
        The name of each, its exercises, and by exercise the errors of several lines.
    """
    return template("grades.html.j2").render(result=result, points=points, submissions=submissions, defined={})


@functools.cache
def template(name: str) -> Template:
    """Return a template of this folder. Compiling one takes longer than rendering it."""
    folder = files(__package__)
    environment = Environment(
        loader=FunctionLoader(lambda name: folder.joinpath(name).read_text("utf-8")),
        autoescape=True,  # applies to included files too; they contain no text from timings files
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["identity"] = id
    return environment.get_template(name)


def packed(columns: Mapping[str, list]) -> dict[str, Any]:
    """Encode columns for the page; a column of texts becomes its distinct texts and an index per row."""
    found: dict[str, Any] = {}
    for name, values in columns.items():
        texts = list(dict.fromkeys(values))
        if all(isinstance(text, str) for text in texts) and len(texts) < len(values):
            number = {text: i for i, text in enumerate(texts)}
            found[name] = {"texts": texts, "rows": [number[value] for value in values]}
        else:
            found[name] = values
    return found


def conditions(runs: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    """List machine, devices and software, each with all distinct values of the runs."""
    found: dict[str, list[str]] = {}
    for run in runs:
        for name, values in _conditions_of(run["provenance"]):
            known = found.setdefault(name, [])
            known.extend(value for value in values if value not in known)
    if kinds := _gpus(runs):
        found["GPU"] = kinds
    if dates := sorted(found.pop("Date", [])):
        found["Date (UTC)"] = [dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"]
    return [(name, values) for name, values in found.items() if values]


def _conditions_of(provenance: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    cpu, mpi = analysis.mapping(provenance.get("cpu")), analysis.mapping(provenance.get("mpi"))
    packages = analysis.mapping(provenance.get("packages"))
    devices = gpus([{"provenance": provenance}])
    revision = short_revision(str(provenance.get("revision") or ""), 12)
    cores = f", {cpu['cores']} cores" if cpu.get("cores") else ""
    return [
        ("Machine", _known(provenance.get("host"))),
        ("GPU", _known(*(gpu.get("name") for gpu in devices))),
        ("Driver", _known(*(gpu.get("driver") for gpu in devices))),
        ("CUDA", _known(*(gpu.get("cuda") for gpu in devices))),
        ("CPU", _known(cpu.get("model") and f"{cpu['model']}{cores}")),
        ("BLAS", _known(cpu.get("blas"))),
        ("MPI", _known(mpi.get("library"))),
        ("Python", _known(provenance.get("python"))),
        ("Packages", [", ".join(f"{name} {version}" for name, version in packages.items())] if packages else []),
        ("hpcmm", _known(provenance.get("hpcmm"))),
        ("Revision", _known(revision and revision + (" with uncommitted changes" if provenance.get("dirty") else ""))),
        ("Date", _known(str(provenance.get("utc") or "")[:10])),
    ]


def gpus(runs: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the GPU records of all runs in order, with the peak rates of each GPU."""
    return [dict(gpu) | _peaks(gpu) for run in runs for gpu in analysis.gpus_of(run["provenance"])]


def _peaks(gpu: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for dtype in ("float32", "float64"):
        flops, units, _ = limits.peaks([gpu], dtype)
        if math.isfinite(flops):
            found |= {f"peak_{dtype}": flops, f"units_{dtype}": units}
    return found


def _gpus(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """List the kinds of GPU with the number of distinct GPUs used, on one machine or on all."""
    devices, machines = {}, set()
    for run in runs:
        machines.add(json.dumps([run["provenance"].get("host"), run["provenance"].get("cpu")], sort_keys=True))
        for i, gpu in enumerate(analysis.gpus_of(run["provenance"])):
            if gpu.get("name"):
                devices[gpu.get("uuid") or (run["provenance"].get("host"), i)] = str(gpu["name"])
    names = list(devices.values())
    kinds = [f"{names.count(name)} × {name}" for name in dict.fromkeys(names)]
    if kinds and len(machines) > 1:
        kinds[-1] += " in total"
    return kinds


def _known(*values: Any) -> list[str]:
    return list(dict.fromkeys(" ".join(str(value).splitlines()[0].split()) for value in values if value))


def provenance(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Divide the provenance of all runs: what all share, what differs, and a row for each run.

    Returns
    -------
    dict
        ``shared``, JSON; ``differing``, for each field its values with their numbers of runs; ``runs``.
    """
    records = [{name: value for name, value in run["provenance"].items() if name not in OF_THE_RUN} for run in runs]
    fields: dict[str, dict[str, int]] = {}
    for flat in map(_flat, records):
        for name, value in flat.items():
            values = fields.setdefault(name, {})
            values[value] = values.get(value, 0) + 1
    common = {name for name, values in fields.items() if len(values) == 1 and sum(values.values()) == len(runs)}
    rows = []
    for run in runs:
        own = {name: run["provenance"].get(name) for name in OF_THE_RUN}
        arguments = own["arguments"] if isinstance(own["arguments"], list) else []
        slurm = json.dumps(own["slurm"], ensure_ascii=False) if own["slurm"] else ""
        row = {"batch": run["batch"], "utc": str(own["utc"] or ""), "arguments": " ".join(map(str, arguments))}
        rows.append(row | {"slurm": slurm})
    shared = {name: json.loads(next(iter(fields[name]))) for name in sorted(common)}
    return {
        "shared": json.dumps(shared, indent=2, ensure_ascii=False) if shared else "",
        "differing": [(name, list(fields[name].items())) for name in sorted(set(fields) - common)],
        "runs": rows,
    }


def _flat(value: Any, name: str = "") -> dict[str, str]:
    """Return the fields of nested mappings by their path, ``"cpu.cores"``, as JSON."""
    if isinstance(value, Mapping) and value:
        found = {}
        for key, each in value.items():
            found |= _flat(each, f"{name}.{key}" if name else str(key))
        return found
    return {name: json.dumps(value, ensure_ascii=False, sort_keys=True)} if name else {}
