"""Measured points for other programs: JSON, CSV, Prometheus' text format and Bencher Metric Format."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import pandas as pd

from hpcmm import analysis
from hpcmm.analysis import Columns
from hpcmm.operations import OPERATIONS, dimensions
from hpcmm.report import csv_files, formats
from hpcmm.store import DIMENSIONS

VERSION = 1  # of the columns: a column that is removed or changes its meaning raises it

# Columns of CSV and keys of JSON, in order, each with its meaning
COLUMNS = {
    "sweep": "name of the sweep in the config",
    "operation": "operation",
    "variant": "variant",
    "algorithm": "distributed algorithm",
    "label": "variant, algorithm, tile and host memory, as the report shows them",
    "setting": "scalars of the operation, `alpha 1.5, beta 0.5`",
    "dtype": "element type",
    "m": "rows of C (0: no such dimension)",
    "n": "columns of C, or length of the vector",
    "k": "columns of A (0: no such dimension)",
    "tile": "width of the thread block (0: none)",
    "memory": "`pinned` or `pageable`, if the sweep sets it",
    "ranks": "MPI ranks",
    "device": "device",
    "machine": "kind of machine: CPU, cores, GPU",
    "gpu": "model of the GPU; empty on a CPU",
    "host": "host of rank 0",
    "utc": "start of the job (ISO 8601)",
    "revision": "commit of hpcmm",
    "result": "`PASS`, `FAIL`, or `missing`; only `PASS` has the numbers below",
    "where": "first wrong element, or why it is missing",
    "seconds": "kernel alone: median [s]",
    "seconds_low": "lower end of its 95 % interval",
    "seconds_high": "upper end of its 95 % interval",
    "visits": "number of visits",
    "repetitions": "number of repetitions",
    "rate": "kernel alone: `flops_per_second` or `bytes_per_second`, whichever its operation is counted in",
    "rate_low": "lower end of its 95 % interval",
    "rate_high": "upper end of its 95 % interval",
    "flops_per_second": "kernel alone: rate of arithmetic [s⁻¹]",
    "bytes_per_second": "kernel alone: rate of compulsory traffic [B/s]",
    "ratio": "seconds of the baseline over `seconds`",
    "ratio_low": "lower end of its 95 % interval",
    "ratio_high": "upper end of its 95 % interval",
    "library": "name and version of the baseline",
    "tuned_ratio": "seconds of the tuned library over `seconds`",
    "tuned_ratio_low": "lower end of its 95 % interval",
    "tuned_ratio_high": "upper end of its 95 % interval",
    "tuned_library": "name and version of the tuned library",
    "call_seconds": "end to end: median [s]",
    "call_seconds_low": "lower end of its 95 % interval",
    "call_seconds_high": "upper end of its 95 % interval",
    "fraction": "fraction of the hardware limit",
    "pick": "rung and tile that a variant such as `best` picked for the shape",
    "error": "largest error relative to the sum of magnitudes",
    "bound": "rounding error bound of that error",
    "throttled": "whether the GPU throttled during the point",
}

# Gauges of Prometheus: the column of the point and the help text. A gauge without a value has no line.
GAUGES = {
    "hpcmm_passed": ("passed", "1 if the result is right, 0 if it is wrong or was not measured."),
    "hpcmm_measured_timestamp_seconds": ("timestamp", "Start of the job, Unix time."),
    "hpcmm_kernel_seconds": ("seconds", "Kernel alone, median."),
    "hpcmm_kernel_seconds_low": ("seconds_low", "Kernel alone, lower end of the 95 % interval of the median."),
    "hpcmm_kernel_seconds_high": ("seconds_high", "Kernel alone, upper end of the 95 % interval of the median."),
    "hpcmm_kernel_flops_per_second": ("flops_per_second", "Kernel alone, rate of arithmetic."),
    "hpcmm_kernel_bytes_per_second": ("bytes_per_second", "Kernel alone, rate of compulsory memory traffic."),
    "hpcmm_call_seconds": ("call_seconds", "End to end, median."),
    "hpcmm_baseline_ratio": ("ratio", "Time of the library divided by the time of the kernel."),
}
UNMEASURED = "hpcmm_unmeasured_points"  # a gauge of the whole file: points of jobs that failed have no row
LABELS = ("sweep", "operation", "variant", "algorithm", "setting", "dtype", "size", "tile", "memory", "ranks")
LABELS += ("device", "machine")

NANOSECONDS = 1e9  # in a second; Bencher's measure ``latency`` has this unit


def export(columns: Columns, form: str) -> str:
    """Return the newest measurement of each point of a timings file in one of ``FORMS``."""
    frame = analysis.measurements(columns)
    return FORMS[form](_points(columns, frame), analysis.summary(columns, frame).unmeasured)


def points(columns: Columns) -> pd.DataFrame:
    """Return ``COLUMNS`` of the newest measurement of each point of a timings file."""
    return _points(columns, analysis.measurements(columns))[list(COLUMNS)]


def _points(columns: Columns, frame: pd.DataFrame) -> pd.DataFrame:
    """Return the points with their rates, and host, time and revision of their runs."""
    rows = analysis.points(frame)
    by_flops = rows["operation"].map({name: each.metric == "flops" for name, each in OPERATIONS.items()}).astype(bool)
    for end in ("", "_low", "_high"):
        rows["rate" + end] = rows["flops_per_second" + end].where(by_flops, rows["bytes_per_second" + end])
    provenances = [run["provenance"] for run in analysis.runs(columns)]
    for name in ("host", "utc", "revision"):
        rows[name] = [str(provenances[run].get(name) or "") for run in rows["run"]]
    return rows


def as_csv(points: pd.DataFrame, unmeasured: int) -> str:
    return csv_files.csv(analysis.row_dicts(points), tuple(COLUMNS))


def as_json(points: pd.DataFrame, unmeasured: int) -> str:
    last = list(COLUMNS).index(DIMENSIONS[-1]) + 1
    others = [name for name in dimensions() if name not in DIMENSIONS]
    names = [*list(COLUMNS)[:last], *others, *list(COLUMNS)[last:]]
    rows = [{name: _plain(value) for name, value in row.items()} for row in analysis.row_dicts(points[names])]
    found = {"format": "hpcmm export", "version": VERSION, "unmeasured": unmeasured, "points": rows}
    return json.dumps(found, indent=1, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    """Return a value for JSON: a plain number instead of NumPy's, and None if it is not finite."""
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _shape(row: Mapping) -> str:
    """Return the lengths of the operation's dimensions, ``"128x64x32"``."""
    return "x".join(str(row[name]) for name in OPERATIONS[row["operation"]].dimensions)


def as_prometheus(points: pd.DataFrame, unmeasured: int) -> str:
    """Return gauges for the textfile collector of Prometheus' node exporter."""
    rows = []
    for row in analysis.row_dicts(points):
        own = formats.rate_column(row["operation"])
        rates = {name: row[name] if name == own else math.nan for name in ("flops_per_second", "bytes_per_second")}
        rows.append(row | rates | {"size": _shape(row), "timestamp": _timestamp(row["utc"])})
    lines = [f"# HELP {UNMEASURED} Points without a result, also those of jobs that failed."]
    lines += [f"# TYPE {UNMEASURED} gauge", f"{UNMEASURED} {unmeasured}"]
    for gauge, (column, text) in GAUGES.items():
        known = [row for row in rows if math.isfinite(row[column])]
        if known:
            lines += [f"# HELP {gauge} {text}", f"# TYPE {gauge} gauge"]
        for row in known:
            labels = {name: str(row[name]) for name in LABELS if row[name] != "" and (name, row[name]) != ("tile", 0)}
            shown = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
            lines.append(f"{gauge}{{{shown}}} {float(row[column])!r}")
    return "".join(line + "\n" for line in lines)


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _timestamp(utc: str) -> float:
    """Return Unix time; NaN if a file has no time, or another text."""
    try:
        return datetime.fromisoformat(utc).timestamp()
    except ValueError:
        return math.nan


def as_bencher(points: pd.DataFrame, unmeasured: int) -> str:
    """Return Bencher Metric Format: points that passed, each with its measures."""
    several = points["machine"].nunique() > 1
    found = {}
    for row in analysis.row_dicts(points[points["result"] == "PASS"]):
        parts = [row["operation"], row["label"], _shape(row), row["dtype"], formats.ranks(row["ranks"]), row["setting"]]
        name = ", ".join(filter(None, [f"{row['sweep']}: {parts[0]}", *parts[1:], row["machine"] if several else ""]))
        rate = formats.rate_column(row["operation"])
        measures = {
            "latency": _metric(row, "seconds", NANOSECONDS),
            rate.replace("_", "-"): _metric(row, rate),
            "end-to-end-latency": _metric(row, "call_seconds", NANOSECONDS),
        }
        found[name] = {measure: metric for measure, metric in measures.items() if metric}
    return json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _metric(row: Mapping, column: str, scale: float = 1.0) -> dict[str, float]:
    """Return value and interval, as far as they are known."""
    names = {"value": column, "lower_value": column + "_low", "upper_value": column + "_high"}
    known = {name: scale * row[each] for name, each in names.items() if math.isfinite(row[each])}
    return known if "value" in known else {}


FORMS: dict[str, Callable[[pd.DataFrame, int], str]] = {
    "json": as_json,
    "csv": as_csv,
    "prometheus": as_prometheus,
    "bencher": as_bencher,
}
