"""``python -m hpcmm compare``: two timings files point by point."""

import argparse

REGRESSION, UNJUDGED = 3, 4  # exit statuses
LISTED = 20  # changed points, without --all


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
    least = f"{100 * arguments.fail_on_regression:g} %"
    print(f"{len(regressions)} slower by more than {least}, newly wrong or no longer measured")
    if not regressions.empty:
        return REGRESSION
    if not compared.judged:
        print("the times of no point have a verdict, so that a regression would not be found")
        return UNJUDGED
    print(f"a slowdown is found from this on (median of the points): {evidence.percent(compared.gate)}")
    return 0
