"""``python -m hpcmm export``: the points of a timings file for other programs."""

from __future__ import annotations

import argparse
from pathlib import Path

from hpcmm import store
from hpcmm.cli.arguments import add_extensions, command, timings_file

FORMATS = ("json", "csv", "prometheus", "bencher")  # repeated here because pandas takes a while to import


def add(commands: argparse._SubParsersAction) -> None:
    parser = command(
        commands,
        "export",
        run,
        "Write the points of a timings file for other programs: JSON, CSV, Prometheus' text format, or Bencher Metric "
        "Format.",
        "If a point was measured several times, the newest measurement is written.",
        {1: "a file that cannot be read or written, or another error"},
    )
    parser.add_argument("timings", metavar="TIMINGS", type=timings_file, help="timings file, or folder of a run")
    parser.add_argument("--format", choices=FORMATS, default="json", help="the format (default: json)")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="file to write, replaced at once (default: standard output)"
    )
    add_extensions(parser)


def run(arguments: argparse.Namespace) -> int:
    from hpcmm.report import export  # pandas takes a while to import

    text = export.export(store.read(arguments.timings), arguments.format)
    if arguments.output is None:
        print(text, end="")
        return 0
    store.write_text(arguments.output, text)
    print(arguments.output)
    return 0
