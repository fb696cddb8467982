"""The table of exchanges, in the columns of nccl-tests."""

from __future__ import annotations

import pandas as pd

from hpcmm import analysis
from hpcmm.report.formats import amount, duration, number, whole
from hpcmm.report.markup import Cell, Table, grouped, words

COLUMNS = ("pattern", "transport", "ranks", "dtype", "message_bytes", "seconds", "seconds_low", "seconds_high")
COLUMNS += ("algorithm_bytes_per_second", "bus_bytes_per_second", "machine")
HEAD = ("Pattern", "Transport", "Ranks", "Type", "Message", "Time", "Algorithm bandwidth, GB/s", "Bus bandwidth, GB/s")


def table(rows: pd.DataFrame) -> Table:
    """Make the table of ``analysis.links.exchanges``."""
    lines = []
    for row in analysis.row_dicts(rows):
        rates = [Cell(number(row[name] / 1e9)) for name in ("algorithm_bytes_per_second", "bus_bytes_per_second")]
        lines.append(
            [
                *(words(text) for text in (row["pattern"], row["transport"], whole(row["ranks"]), row["dtype"])),
                Cell(amount(row["message_bytes"])),
                Cell(duration(row["seconds"])),
                *rates,
            ]
        )
    return Table("Exchanges, all ranks at once", HEAD, grouped(lines, 4))
