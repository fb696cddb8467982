"""Errors of each arithmetic on several kinds of data."""

from __future__ import annotations

from collections.abc import Sequence

from hpcmm.analysis import Series
from hpcmm.model.dtypes import DTYPES
from hpcmm.model.quantities import DATA
from hpcmm.report.chapters.chapter import Tabulated
from hpcmm.report.formats import conditions, number, size_title
from hpcmm.report.markup import Cell, Table
from hpcmm.report.tables import Column, Row, of_size, table, text


def accuracy_table(series: Series, points: Sequence[Row]) -> Table | None:
    """Make the table of errors on each kind of data, in units of the unit roundoff; None without any."""
    if not points:
        return None
    unit = DTYPES[series.dtype].unit_roundoff

    def of(name: str) -> Column:
        return lambda row: Cell(number(row[name] / unit))

    columns: dict[str, Column] = {
        size_title(points): of_size,
        "Device": text("device"),
        "Rung": text("label"),
        "Arithmetic": lambda row: Cell(row["arithmetic"] or row["dtype"]),
    }
    columns |= {
        f"{kind.capitalize()}, {title}": of(f"{name}_{kind}")
        for kind in DATA
        for name, title in (("error", "largest"), ("rms", "RMS"))
    }
    return table(f"Errors in units of u |A| |B|, {conditions(series)}", points, columns, leading=2)


TABLE = Tabulated(
    "accuracy",
    lambda series, whole: [row for row in series.rows if row["error_uniform"] >= 0],
    accuracy_table,
)
