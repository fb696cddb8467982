"""``python -m hpcmm export``: the points of a timings file for other programs."""

import argparse

from hpcmm import store
from hpcmm.cli.arguments import or_default


def run(arguments: argparse.Namespace) -> int:
    from hpcmm.report import export  # pandas takes a while to import

    timings, _ = or_default(arguments.timings)
    text = export.export(store.read(timings), arguments.format)
    if arguments.output is None:
        print(text, end="")
        return 0
    store.write_text(arguments.output, text)
    print(arguments.output)
    return 0
