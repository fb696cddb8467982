"""``python -m hpcmm show``: the answer of a timings file, and its tables, on the terminal."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from hpcmm import store
from hpcmm.cli.arguments import or_default

if TYPE_CHECKING:
    import pandas


def run(arguments: argparse.Namespace) -> int:
    from hpcmm import analysis  # pandas takes a while to import
    from hpcmm.report import answer, markup

    timings, sweep = or_default(arguments.timings)
    table = "".join(sweep) or arguments.table or ""
    if not table and not arguments.only:
        frame = say_answer(timings)
        print(f"Points of a sweep: hpcmm show FILE SWEEP. Sweeps: {', '.join(dict.fromkeys(frame['sweep']))}")
        return 0
    frame = analysis.measurements(store.read(timings))
    shown = answer.tables_of(frame, table, arguments.only or "")
    for each in shown:
        print(each.caption, markup.plain(each), sep="\n", end="\n\n")
    if not shown:
        print("no such points")
    return 0


def say_answer(timings: Path) -> pandas.DataFrame:
    """Print the answer of a timings file; return its measurements."""
    from hpcmm import analysis
    from hpcmm.report import answer

    columns = store.read(timings)
    frame = analysis.measurements(columns)
    print(*answer.answer(columns, frame), sep="\n")
    return frame
