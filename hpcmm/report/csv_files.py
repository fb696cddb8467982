"""The CSV files of the report: their columns in order, in plain units and with every digit."""

from __future__ import annotations

import csv as csv_module
import io
from collections.abc import Sequence

import pandas as pd

from hpcmm.operations import dimensions
from hpcmm.store import DIMENSIONS
from hpcmm.system.text import csv_cell


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
