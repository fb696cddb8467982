"""Errors of each arithmetic on several kinds of data."""

from collections.abc import Sequence

from hpcmm.analysis import Series
from hpcmm.model.dtypes import DTYPES
from hpcmm.model.quantities import DATA
from hpcmm.report.chapters.chapter import Tabulated
from hpcmm.report.formats import conditions, size_title
from hpcmm.report.markup import Cell, Table
from hpcmm.report.tables import Column, Row, of_size, table, text, value
from hpcmm.system.text import number


def accuracy_table(series: Series, points: Sequence[Row]) -> Table:
    """Make the table of errors on each kind of data, in units of the unit roundoff."""
    unit = DTYPES[series.dtype].unit_roundoff

    columns: dict[str, Column] = {size_title(points): of_size, "Device": text("device"), "Rung": text("label")}
    columns["Arithmetic"] = lambda row: Cell(row["arithmetic"] or row["dtype"])
    for kind in DATA:
        for name, title in (("error", "largest"), ("rms", "RMS")):
            in_units = value(f"{name}_{kind}", lambda error: number(error / unit))
            columns[f"{kind.capitalize()}, {title}"] = in_units
    return table(f"Errors in units of u |A| |B|, {conditions(series)}", points, columns, leading=2)


TABLE = Tabulated(
    "accuracy", lambda series, _: [row for row in series.rows if row["error_uniform"] >= 0], accuracy_table
)
