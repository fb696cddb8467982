"""``python -m hpcmm show``: the answer of a timings file, and its tables, on the terminal."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from hpcmm import store
from hpcmm.cli.arguments import TIMINGS, add_extensions, command, timings_file

if TYPE_CHECKING:
    import pandas

ONLY = ("slower", "faster", "wrong")  # repeated here because pandas takes a while to import


def add(commands: argparse._SubParsersAction) -> None:
    parser = command(
        commands,
        "show",
        run,
        "Show what a timings file says: the fastest rungs beside the libraries, the noise, what was not measured.",
        "With a sweep: its points, one per line.",
        {1: "a file that cannot be read, a sweep that it does not have, or another error"},
    )
    parser.add_argument(
        "timings",
        metavar="FILE",
        type=timings_file,
        nargs="?",
        default=Path("results") / TIMINGS,
        help=f"timings file, or folder of a run (default: results/{TIMINGS})",
    )
    parser.add_argument(
        "table",
        metavar="SWEEP",
        nargs="?",
        help="a sweep for its points, or another table of it: SWEEP.ladder, SWEEP.phases, SWEEP.energy, SWEEP.accuracy",
    )
    parser.add_argument(
        "--only",
        choices=ONLY,
        help="only points that are significantly slower or faster than the library, or wrong; of all sweeps, or of "
        "SWEEP",
    )
    add_extensions(parser)


def run(arguments: argparse.Namespace) -> int:
    from hpcmm import analysis  # pandas takes a while to import
    from hpcmm.report import answer, markup

    if not arguments.table and not arguments.only:
        frame = say_answer(arguments.timings)
        print(f"Points of a sweep: hpcmm show FILE SWEEP. Sweeps: {', '.join(dict.fromkeys(frame['sweep']))}")
        return 0
    frame = analysis.measurements(store.read(arguments.timings))
    shown = answer.tables_of(frame, arguments.table or "", arguments.only or "")
    for table in shown:
        print(table.caption, markup.plain(table), sep="\n", end="\n\n")
    if not shown:
        print("no such points" if arguments.only else "no such table of this sweep")
    return 0


def say_answer(timings: Path) -> pandas.DataFrame:
    """Print the answer of a timings file; return its measurements."""
    from hpcmm import analysis
    from hpcmm.report import answer

    columns = store.read(timings)
    frame = analysis.measurements(columns)
    print(*answer.answer(columns, frame), sep="\n")
    return frame
