"""``python -m hpcmm export``: the points of a timings file for other programs."""

from __future__ import annotations

import argparse

from hpcmm import store


def run(arguments: argparse.Namespace) -> int:
    from hpcmm.report import export  # pandas takes a while to import

    text = export.export(store.read(arguments.timings), arguments.format)
    if arguments.output is None:
        print(text, end="")
        return 0
    store.write_text(arguments.output, text)
    print(arguments.output)
    return 0
