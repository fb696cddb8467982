"""``python -m hpcmm status``: the progress of a run."""

from __future__ import annotations

import argparse

from hpcmm.bench import done, status
from hpcmm.cli.arguments import add_results, command
from hpcmm.experiment import plan


def add(commands: argparse._SubParsersAction) -> None:
    parser = command(
        commands,
        "status",
        run,
        "Show the progress of a run: points done, the current point, the time left.",
        "This does not disturb the run.",
        {
            0: "every job is done, and the report shows its results",
            1: "something is left to do: the same command measures the rest; or another error",
        },
    )
    add_results(parser)


def run(arguments: argparse.Namespace) -> int:
    print(status.text(arguments.results))
    return 0 if done.is_done(plan.read(arguments.results / "plan.json"), arguments.results) else 1
