"""``python -m hpcmm compare``: two timings files point by point."""

from __future__ import annotations

import argparse
from pathlib import Path

from hpcmm.cli.arguments import add_extensions, command, timings_file

REGRESSION, UNJUDGED = 3, 4  # exit statuses
LISTED = 20  # changed points, without --all


def add(commands: argparse._SubParsersAction) -> None:
    parser = command(
        commands,
        "compare",
        run,
        "Compare two timings files point by point: faster, slower, same or ambiguous.",
        "The baselines beside the variants show how much unchanged points differ between the files. Without enough of "
        "them, no point has a verdict.",
        {
            1: "files that cannot be compared, or another error",
            REGRESSION: "with --fail-on-regression: a point is slower by more than SHARE, or newly wrong",
            UNJUDGED: "with --fail-on-regression: no point has a verdict",
        },
    )
    parser.add_argument("before", metavar="A", type=timings_file, help="timings file, or folder of a run")
    parser.add_argument(
        "after", metavar="B", type=timings_file, help="the one to compare with A, of the same kind of machine"
    )
    parser.add_argument(
        "--of",
        choices=("kernel", "call"),
        default="kernel",
        help="compare kernel times (default) or end-to-end times (call)",
    )
    parser.add_argument(
        "--fail-on-regression",
        type=share,
        metavar="SHARE",
        help="fail if a point is slower by more than this, such as 5%%; for unchanged code the chance of failing is "
        "at most 5%%",
    )
    parser.add_argument(
        "--all", action="store_true", help="list all points, also those without a significant difference"
    )
    parser.add_argument(
        "--anyway", action="store_true", help="also compare files that differ in kind, such as in the GPU"
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write the comparison as a page")
    add_extensions(parser)


def share(text: str) -> float:
    """Return ``"5%"`` or ``"0.05"`` as 0.05."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < 10:
        raise argparse.ArgumentTypeError(f"{text!r} is not allowed; allowed: a share such as 5% or 0.05")
    return value


def run(arguments: argparse.Namespace) -> int:
    from hpcmm import store  # pandas takes a while to import
    from hpcmm.analysis import compare, evidence
    from hpcmm.report import comparison, markup, tables

    files = [store.read(path) for path in (arguments.before, arguments.after)]
    compared = compare.compare(*files, scope=arguments.of, anyway=arguments.anyway)
    rows = compared.rows if arguments.all else compared.changed.head(LISTED)
    if not rows.empty:
        print(markup.plain(tables.comparison_table(rows)), end="\n\n")
    if not arguments.all and len(compared.changed) > LISTED:
        print(f"these are the {LISTED} largest of {len(compared.changed)} changes; --all and --html list all points")
    for difference in compared.differences:
        print(f"differs: {difference}")
    for note in compared.noise:
        print(f"noise: {note}")
    print(compared.line)
    if arguments.html:
        comparison.build(compared, arguments.before, arguments.after, arguments.of, arguments.html)
        print(arguments.html)
    if arguments.fail_on_regression is None:
        return 0
    regressions = compared.regressions(arguments.fail_on_regression)
    print(f"{len(regressions)} slower by more than {100 * arguments.fail_on_regression:g} %, or newly wrong")
    if not regressions.empty:
        return REGRESSION
    if not compared.judged:
        print("no point has a verdict, so that a regression would not be found")
        return UNJUDGED
    print(f"a slowdown is found from this on (median of the points): {evidence.percent(compared.gate)}")
    return 0
