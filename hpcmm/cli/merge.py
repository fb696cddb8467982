"""``python -m hpcmm merge``: several timings files in one."""

from __future__ import annotations

import argparse
from pathlib import Path

from hpcmm import store
from hpcmm.cli.arguments import command, timings_file


def add(commands: argparse._SubParsersAction) -> None:
    parser = command(
        commands,
        "merge",
        run,
        "Merge the timings of several runs or clusters into one file, each with its own provenance.",
        "Rows of the same run in several files are kept once; the same point of different runs is kept once per run. "
        "A point that one run did not measure and another one did is not listed. Points that the config of a run "
        "requests and no file contains are listed.",
        {1: "a file that cannot be read, or another error; then nothing is written"},
    )
    parser.add_argument(
        "timings", metavar="TIMINGS", type=timings_file, nargs="+", help="timings file, or folder of a run"
    )
    parser.add_argument("-o", "--output", type=Path, required=True, help="HDF5 file to write, which must not exist")
    parser.add_argument("--single", action="store_true", help="store times in single precision, in half the space")


def run(arguments: argparse.Namespace) -> int:
    from hpcmm.analysis.unmeasured import unmeasured  # pandas takes a while to import

    if arguments.output.exists():
        raise store.StoreError(f"{arguments.output}: exists already; remove it or give another name")
    parts = [store.read(path) for path in arguments.timings]
    before = sum(map(point_count, parts))
    groups = store.merged(parts, unmeasured(store.joined(parts)))
    store.write_groups(arguments.output, groups, arguments.single)
    points, runs = point_count(groups), len(groups["runs"]["batch"])
    print(f"{arguments.output}: {points} points of {runs} runs; duplicates dropped: {before - points}")
    return 0


def point_count(groups: store.Groups) -> int:
    """Count the points that were measured, as the report does; the baseline of another variant does not count."""
    rows = groups["measurements"]
    own = (rows["contender"] == rows["variant"]) & (rows["contender_algorithm"] == rows["algorithm"])
    return int(own.sum())
