"""Measured points for other programs: JSON, CSV and Prometheus' text format."""

import json
import math
from collections.abc import Callable
from datetime import datetime

import pandas as pd

from hpcmm import analysis
from hpcmm.model.records import beside
from hpcmm.operations import OPERATIONS, dimensions
from hpcmm.report import csv_files, formats
from hpcmm.store import DIMENSIONS
from hpcmm.system.text import json_of

VERSION = 1  # of the columns: a column that is removed or changes its meaning raises it

_TABLES = beside(__file__)
COLUMNS: dict[str, str] = _TABLES["columns"]  # of CSV, and keys of JSON, each with its meaning
GAUGES: dict[str, list[str]] = _TABLES["gauges"]  # of Prometheus: the column of the point and the help text
UNMEASURED = "hpcmm_unmeasured_points"  # a gauge of the whole file: points of jobs that failed have no row
LABELS = ("sweep", "operation", "variant", "algorithm", "setting", "dtype", "size", "tile", "memory", "ranks")
LABELS += ("device", "machine")


def export(columns: analysis.Columns, form: str) -> str:
    """Return the newest measurement of each point of a timings file in one of ``FORMS``."""
    frame = analysis.measurements(columns)
    return FORMS[form](_points(columns, frame), analysis.summary(columns, frame).unmeasured)


def points(columns: analysis.Columns) -> pd.DataFrame:
    """Return ``COLUMNS`` of the newest measurement of each point of a timings file."""
    return _points(columns, analysis.measurements(columns))[list(COLUMNS)]


def _points(columns: analysis.Columns, frame: pd.DataFrame) -> pd.DataFrame:
    rows = analysis.points(frame)
    by_flops = rows["operation"].map({name: each.metric == "flops" for name, each in OPERATIONS.items()}).astype(bool)
    for end in ("", "_low", "_high"):
        rows["rate" + end] = rows["flops_per_second" + end].where(by_flops, rows["bytes_per_second" + end])
    provenances = analysis.runs(columns)
    for name in ("host", "utc", "revision"):
        rows[name] = [str(provenances[run].get(name) or "") for run in rows["run"]]
    return rows


def as_json(points: pd.DataFrame, unmeasured: int) -> str:
    last = list(COLUMNS).index(DIMENSIONS[-1]) + 1
    others = [name for name in dimensions() if name not in DIMENSIONS]
    names = [*list(COLUMNS)[:last], *others, *list(COLUMNS)[last:]]
    found = {"format": "hpcmm export", "version": VERSION, "unmeasured": unmeasured}
    return json_of(found | {"points": analysis.row_dicts(points[names])}) + "\n"


def as_prometheus(points: pd.DataFrame, unmeasured: int) -> str:
    """Return gauges for the textfile collector of Prometheus' node exporter."""
    rows = []
    for row in analysis.row_dicts(points):
        own = formats.rate_column(row["operation"])
        rates = {name: row[name] if name == own else math.nan for name in ("flops_per_second", "bytes_per_second")}
        size = "x".join(str(row[name]) for name in OPERATIONS[row["operation"]].dimensions)
        rows.append(row | rates | {"size": size, "timestamp": _timestamp(row["utc"])})
    lines = [f"# HELP {UNMEASURED} Points without a result, also those of jobs that failed."]
    lines += [f"# TYPE {UNMEASURED} gauge", f"{UNMEASURED} {unmeasured}"]
    for gauge, (column, text) in GAUGES.items():
        known = [row for row in rows if math.isfinite(row[column])]
        if known:
            lines += [f"# HELP {gauge} {text}", f"# TYPE {gauge} gauge"]
        for row in known:
            labels = {name: str(row[name]) for name in LABELS if row[name] != "" and (name, row[name]) != ("tile", 0)}
            # texts of a file have no control characters: JSON escapes what this format does
            shown = ",".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in labels.items())
            lines.append(f"{gauge}{{{shown}}} {float(row[column])!r}")
    return "".join(line + "\n" for line in lines)


def _timestamp(utc: str) -> float:
    """Return Unix time; NaN if a file has no time, or another text."""
    try:
        return datetime.fromisoformat(utc).timestamp()
    except ValueError:
        return math.nan


FORMS: dict[str, Callable[[pd.DataFrame, int], str]] = {
    "json": as_json,
    "csv": lambda points, unmeasured: csv_files.csv(analysis.row_dicts(points), tuple(COLUMNS)),
    "prometheus": as_prometheus,
}
