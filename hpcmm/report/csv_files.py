"""The CSV files of the report: their columns in order, in plain units and with every digit."""

import csv as csv_module
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hpcmm.analysis import occupancy
from hpcmm.model import quantities
from hpcmm.model.records import beside
from hpcmm.operations import dimensions
from hpcmm.store import DIMENSIONS
from hpcmm.system.text import csv_cell

GROUPS = vars(quantities) | {"BLOCK_LIMITS": occupancy.LIMITS.values()}
COLUMNS = {  # by the kind of a table
    kind: [name for each in names for name in (GROUPS[each] if each.isupper() else [each])]
    for kind, names in beside(__file__, "csv_columns.yaml").items()
}


def of_kind(kind: str, rows: Sequence[Mapping[str, Any]]) -> str:
    return csv(rows, COLUMNS[kind])


def csv(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """Return CSV with a line per row, in plain units and with every digit; empty where there is no value."""
    last = DIMENSIONS[-1]
    others = [name for name in dimensions() if name not in DIMENSIONS]
    columns = [name for column in columns for name in ([column, *others] if column == last else [column])]
    columns = [name for name in columns if any(name in row for row in rows)]
    return written(columns, ([row.get(name) for name in columns] for row in rows))


def written(head: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    """Return a table as CSV, its texts as cells that no spreadsheet evaluates."""
    file = io.StringIO()
    writer = csv_module.writer(file, lineterminator="\n")
    writer.writerow(map(csv_cell, head))
    for line in lines:
        writer.writerow(["" if value is None or value != value else csv_cell(value) for value in line])
    return file.getvalue()
