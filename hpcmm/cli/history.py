"""``python -m hpcmm history``: the trend of each point over many runs."""

from __future__ import annotations

import argparse
import json

from hpcmm import store


def run(arguments: argparse.Namespace) -> int:
    from hpcmm.analysis import history  # pandas takes a while to import
    from hpcmm.report import history as shown
    from hpcmm.report import markup

    paths = [file for path in arguments.timings for file in (sorted(path.glob("*.h5")) if path.is_dir() else [path])]
    paths = list(dict.fromkeys(paths))
    if len(paths) < 2:
        raise history.HistoryError(
            f"{', '.join(map(str, arguments.timings))}: a history needs two or more files (*.h5)"
        )
    found = history.history({str(path): store.read(path) for path in paths}, arguments.of)
    if arguments.html:
        shown.build(found, arguments.html)
    if arguments.json:
        print(json.dumps(found.plain(), indent=1, allow_nan=False))
        return 0
    if any(trend.steps for trend in found.trends):
        print(markup.plain(shown.changes_table(found)), end="\n\n")
    for note in found.noise:
        print(f"noise: {note}")
    print(found.line)
    if arguments.html:
        print(arguments.html)
    return 0
