"""``python -m hpcmm report``: from a timings file to a page."""

from __future__ import annotations

import argparse
import gc
import sys

from hpcmm.cli.arguments import TIMINGS, add_extensions, add_results, command, timings_file
from hpcmm.experiment import extensions


def add(commands: argparse._SubParsersAction) -> None:
    parser = command(
        commands,
        "report",
        run,
        "Make tables, figures and one offline HTML page from a timings file. Needs neither MPI nor a GPU.",
        "Writes DIR/report.html, DIR/tables/*.csv, *.md and *.tex, and DIR/figures/*.svg; each replaces its "
        "predecessor. Of more than 20,000 points, report.html is an overview; with sweeps, DIR/report-SWEEP.html has "
        "them alone.",
        {1: "a file that cannot be read, or another error; figures that cannot be drawn are reported by a warning"},
    )
    parser.add_argument(
        "timings",
        metavar="TIMINGS",
        type=timings_file,
        nargs="?",
        help=f"timings file, or folder of a run (default: {TIMINGS} in DIR)",
    )
    parser.add_argument(
        "sweeps", metavar="SWEEP", nargs="*", help="only these sweeps, with the numbers of the whole file"
    )
    add_extensions(parser)
    add_results(parser)


def run(arguments: argparse.Namespace) -> int:
    from hpcmm import report  # pandas takes a while to import

    gc.disable()  # collecting cycles would take a tenth of the time, and the process ends with the report
    page, summary = report.build(
        arguments.timings or arguments.results / TIMINGS,
        arguments.results,
        lambda text: print(f"hpcmm: warning: {text}", file=sys.stderr),
        extensions.figures(),
        arguments.sweeps,
    )
    print(page)
    print(summary.line)
    return 0
