"""Make tables, figures and an HTML page from a timings file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hpcmm import analysis, report, store


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Make tables, figures and one offline HTML page from a timings file. Needs neither MPI nor a GPU.",
        epilog="Writes DIR/report.html, DIR/tables/*.csv and *.md, DIR/figures/*.svg; each replaces the one before it.",
    )
    parser.add_argument("timings", metavar="TIMINGS", type=Path, help="HDF5 file of one batch or of a whole experiment")
    parser.add_argument(
        "--results", metavar="DIR", type=Path, default=Path("results"), help="where to write (default: results)"
    )
    arguments = parser.parse_args()
    try:
        page = report.build(arguments.timings, arguments.results)
        columns = store.read(arguments.timings)
    except store.StoreError as error:
        print(f"report: {error}", file=sys.stderr)
        return 1
    print(page)
    print(analysis.summary(columns, analysis.measurements(columns)).line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
