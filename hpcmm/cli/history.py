"""``python -m hpcmm history``: the trend of each point over many runs."""

import argparse
from pathlib import Path

from hpcmm import store
from hpcmm.model import HpcmmError
from hpcmm.model.measurement import timings_file
from hpcmm.system.text import json_of


def run(arguments: argparse.Namespace) -> int:
    from hpcmm.analysis import history  # pandas takes a while to import
    from hpcmm.report import history as shown
    from hpcmm.report import markup

    paths = list(dict.fromkeys(file for path in arguments.timings for file in files_of(path)))
    if len(paths) < 2:
        given = ", ".join(map(str, arguments.timings))
        raise HpcmmError(f"{given}: a history needs two or more timings files, or folders of runs")
    found = history.history({str(path): store.read(path) for path in paths}, arguments.of)
    if arguments.html:
        shown.build(found, arguments.html)
    if arguments.json:
        print(json_of(found.plain()))
        return 0
    if any(trend.steps for trend in found.trends):
        print(markup.plain(shown.changes_table(found)), end="\n\n")
    for note in found.noise:
        print(f"noise: {note}")
    print(found.line)
    if arguments.html:
        print(arguments.html)
    return 0


def files_of(path: Path) -> list[Path]:
    """Return the timings files of a folder (``*.h5``), that of the run in it, or the file itself."""
    return (sorted(path.glob("*.h5")) if path.is_dir() else []) or [timings_file(str(path))]
