"""The CSV files of the report: their columns in order, in plain units and with every digit."""

from __future__ import annotations

import csv as csv_module
import io
from collections.abc import Sequence

import pandas as pd

from hpcmm.analysis import occupancy
from hpcmm.operations import dimensions
from hpcmm.quantities import COUNTERS, ERRORS, PHASES, RESOURCES
from hpcmm.report.markup import csv_cell
from hpcmm.store import DIMENSIONS

# Columns in order, as far as the timings have them.
LEVEL_COLUMNS = (
    *("owner", "device", "level", "latency_seconds", "latency_seconds_low", "latency_seconds_high"),
    *("latency_cycles", "latency_bytes", "latency_variant", "bytes_per_second", "bytes_per_second_low"),
    *("bytes_per_second_high", "bandwidth_bytes", "bandwidth_variant"),
)
POINT_COLUMNS = (
    *("sweep", "operation", "setting", "dtype", "ranks", *DIMENSIONS, "device", "machine", "variant", "tile"),
    *("label", "result", "where"),
    *("seconds", "seconds_low", "seconds_high", "repetitions"),
    *("flops_per_second", "flops_per_second_low", "flops_per_second_high"),
    *("bytes_per_second", "bytes_per_second_low", "bytes_per_second_high"),
    *("ratio", "ratio_low", "ratio_high", "library", "tuned_ratio", "tuned_ratio_low", "tuned_ratio_high"),
    *("tuned_library", "fraction", "ceiling", "clock"),
    *("error", "bound", "reference", "arithmetic", "pick", "schedule", "throttled", "event_seconds"),
    *("huge_pages", "huge_pages_most", "steal"),
)
ENERGY_COLUMNS = ("operation", "dtype", "ranks", *DIMENSIONS, "device", "label", "seconds", "flops_per_second")
ENERGY_COLUMNS += ("bytes_per_second", "clock", "energy", "energy_seconds", "energy_runs", "watts", "flops_per_joule")
ENERGY_COLUMNS += ("bytes_per_joule",)
ERROR_COLUMNS = ("operation", "dtype", *DIMENSIONS, "device", "label", "arithmetic", *ERRORS)
LADDER_COLUMNS = ("dtype", "ranks", *DIMENSIONS, "device", "label", "result", "where", "seconds")
LADDER_COLUMNS += ("flops_per_second", "bytes_per_second", "step", "cumulative", "ratio", "tuned_ratio", "fraction")
LADDER_COLUMNS += ("ceiling",)
PHASE_COLUMNS = ("dtype", "ranks", *DIMENSIONS, "device", "label", "call_seconds", "call_seconds_low")
PHASE_COLUMNS += ("call_seconds_high", "call_repetitions", *(f"call_{phase}" for phase in PHASES[:-1]))
PHASE_COLUMNS += (*(f"share_{phase}" for phase in PHASES[:-1]), "seconds", "flops_per_second", "bytes_per_second")
PHASE_COLUMNS += ("call_flops_per_second", "call_bytes_per_second", "call_ratio")
ACTIVITY_COLUMNS = ("dtype", "ranks", *DIMENSIONS, "device", "label", "memory", "activity", "share", "total", "calls")
ACTIVITY_COLUMNS += ("mean", "least", "most")
SCALING_COLUMNS = ("kind", "setting", "dtype", *DIMENSIONS, "device", "label", "ranks", "seconds", "speedup")
SCALING_COLUMNS += ("efficiency", "efficiency_of_slowest", "base_ranks", "base_card", "call_seconds", "call_speedup")
SCALING_COLUMNS += ("call_efficiency",)
PREDICTION_COLUMNS = ("operation", "dtype", *DIMENSIONS, "device", "label", "of", "measured_ranks", "ranks", "seconds")
PREDICTION_COLUMNS += ("predicted_seconds", "held_out")
RESOURCE_COLUMNS = ("operation", "gpu", "variant", "tile", "label", "dtype", *DIMENSIONS, "ranks", *RESOURCES)
RESOURCE_COLUMNS += ("occupancy", *occupancy.LIMITS.values(), "limited_by", "computed_blocks", "phase_loads")
RESOURCE_COLUMNS += ("phase_flops", "pending_loads", "bound_flops_per_second")
PROFILE_COLUMNS = ("operation", "gpu", "variant", "tile", "label", "dtype", *DIMENSIONS, "result", "where", "kernel")
PROFILE_COLUMNS += ("launches", *COUNTERS, "load_conflict_factor", "store_conflict_factor")


def csv(frames: Sequence[pd.DataFrame], columns: Sequence[str]) -> str:
    """Return CSV with one row per point, in plain units and with every digit; empty where there is no value."""
    last = DIMENSIONS[-1]
    others = [name for name in dimensions() if name not in DIMENSIONS]
    columns = [name for column in columns for name in ([column, *others] if column == last else [column])]
    frame = pd.concat([each[[name for name in columns if name in each]] for each in frames])
    return written(frame[[name for name in columns if name in frame]])


def written(frame: pd.DataFrame) -> str:
    """Return a table as CSV, its texts as cells that no spreadsheet evaluates."""
    file = io.StringIO()  # pandas takes several times as long for so few rows
    lines = csv_module.writer(file, lineterminator="\n")
    lines.writerow(frame.columns)
    for row in frame.to_numpy(object).tolist():
        lines.writerow(["" if value is None or value != value else csv_cell(value) for value in row])
    return file.getvalue()
