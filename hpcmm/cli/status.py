"""``python -m hpcmm status``: the progress of a run."""

from __future__ import annotations

import argparse

from hpcmm.bench import status
from hpcmm.cli.arguments import add_results, command


def add(commands: argparse._SubParsersAction) -> None:
    parser = command(
        commands,
        "status",
        run,
        "Show the progress of a run: points done, the current point, the time left.",
        "This does not disturb the run.",
        {1: "a folder without a run, or another error"},
    )
    add_results(parser)


def run(arguments: argparse.Namespace) -> int:
    print(status.text(arguments.results))
    return 0
