"""``python -m hpcmm status``: how far a run is."""

from __future__ import annotations

import argparse

from hpcmm.bench import status
from hpcmm.cli.arguments import add_results, command


def add(commands: argparse._SubParsersAction) -> None:
    parser = command(
        commands,
        "status",
        run,
        "Show how far a run is: points done, the current point, the time left.",
        "The run is not disturbed.",
        {1: "a folder without a run, or another error"},
    )
    add_results(parser)


def run(arguments: argparse.Namespace) -> int:
    print(status.text(arguments.results))
    return 0
