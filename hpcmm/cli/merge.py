"""``python -m hpcmm merge``: several timings files in one."""

import argparse

from hpcmm import store


def run(arguments: argparse.Namespace) -> int:
    from hpcmm.cli.unmeasured import unmeasured  # pandas takes a while to import

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
