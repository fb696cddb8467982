"""``python -m hpcmm report``: from a timings file to a page."""

import argparse
import gc
import sys

from hpcmm.cli.arguments import or_default
from hpcmm.experiment import extensions


def run(arguments: argparse.Namespace) -> int:
    from hpcmm import report  # pandas takes a while to import

    gc.disable()  # collecting cycles would take a tenth of the time, and the process ends with the report

    def warn(text: str) -> None:
        print(f"hpcmm: warning: {text}", file=sys.stderr)

    timings, sweep = or_default(arguments.timings, arguments.results)
    names = [*sweep, *arguments.sweeps]
    page, summary = report.build(timings, arguments.results, warn, extensions.figures(), names)
    print(page)
    print(summary.line)
    return 0
