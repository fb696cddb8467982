"""``python -m hpcmm history``: the trend of each point over many runs."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from hpcmm import store
from hpcmm.cli.arguments import add_extensions, command


def add(commands: argparse._SubParsersAction) -> None:
    parser = command(
        commands,
        "history",
        run,
        "Show the points that changed over many runs, and since which date and revision.",
        "Runs are ordered by the dates in the files. Changes are found by the test of compare.",
        {1: "files that have no history, or another error"},
    )
    parser.add_argument(
        "timings",
        metavar="TIMINGS",
        type=Path,
        nargs="+",
        help="HDF5 files, each of an experiment, or folders of such files (*.h5)",
    )
    parser.add_argument(
        "--of",
        choices=("kernel", "call"),
        default="kernel",
        help="follow kernel times (default) or end-to-end times (call)",
    )
    parser.add_argument("--json", action="store_true", help="print all points and changes as JSON instead of a table")
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write the history as a page")
    add_extensions(parser)


def run(arguments: argparse.Namespace) -> int:
    from hpcmm.analysis import history  # pandas takes a while to import
    from hpcmm.report import history as shown
    from hpcmm.report import markup

    paths = [file for path in arguments.timings for file in (sorted(path.glob("*.h5")) if path.is_dir() else [path])]
    paths = list(dict.fromkeys(paths))
    if len(paths) < 2:
        raise history.HistoryError(
            f"{', '.join(map(str, arguments.timings))}: a history needs two or more files (*.h5)"
        )
    found = history.history({str(path): store.read(path) for path in paths}, arguments.of)
    if arguments.html:
        shown.build(found, arguments.html)
    if arguments.json:
        print(json.dumps(found.plain(), indent=1, allow_nan=False))
        return 0
    if any(trend.steps for trend in found.trends):
        print(markup.plain(shown.changes_table(found)), end="\n\n")
    for note in found.noise:
        print(f"noise: {note}")
    print(found.line)
    if arguments.html:
        print(arguments.html)
    return 0
