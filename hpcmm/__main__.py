"""What a person asks of the suite: ``python -m hpcmm COMMAND``."""

from __future__ import annotations

import argparse
import gc
import itertools
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tabulate import tabulate

from hpcmm import backends, doctor, plan, status
from hpcmm.config import ConfigError, merge_into, parse, read_config
from hpcmm.durations import duration
from hpcmm.model import Batch, HpcmmError

CONFIG = Path(__file__).parents[1] / "config.yaml"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns
    -------
    int
        0, or 1 for an error that was told; argparse ends with 2 for wrong arguments.
    """
    arguments = parser().parse_args(argv)
    try:
        code = arguments.run(arguments)
        sys.stdout.flush()  # here, as what goes wrong at the end of Python nobody catches
        return code
    except HpcmmError as error:
        print(f"hpcmm: error: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # as of `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:  # as of a folder that cannot be written, or a full disk
        place = error.filename2 or error.filename  # of two, the one that a temporary file was to become
        place = f"{place}: " if place else ""
        print(f"hpcmm: error: {place}{os.strerror(error.errno) if error.errno else error}", file=sys.stderr)
        return 1


def parser() -> argparse.ArgumentParser:
    outer = argparse.ArgumentParser(prog="python -m hpcmm", description=__doc__)
    commands = outer.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def command(run, name: str, text: str, **more) -> argparse.ArgumentParser:
        inner = commands.add_parser(name, help=text, description=text, **more)
        inner.set_defaults(run=run)
        return inner

    inner = command(
        run_plan,
        "plan",
        "Show what a run would measure, in which jobs and how long at most, and what it leaves out.",
        epilog="Overrides are written as for snakemake: python -m hpcmm plan --config scale=full backends=cuda",
    )
    inner.add_argument("--configfile", "--config-file", type=Path, default=CONFIG, metavar="FILE")
    inner.add_argument("--config", nargs="+", default=[], metavar="KEY=VALUE", help="replace values of the file")
    inner.add_argument(
        "--cluster", action="store_true", help="plan for a cluster: what GPUs this machine has does not matter"
    )

    inner = command(
        run_status, "status", "Show how far a run is, from outside: points done, the current point, the time left."
    )
    add_results(inner)

    inner = command(
        run_report,
        "report",
        "Make tables, figures and one offline HTML page from a timings file. Needs neither MPI nor a GPU.",
        epilog="Writes DIR/report.html, DIR/tables/*.csv and *.md, DIR/figures/*.svg; each replaces the one before it.",
    )
    inner.add_argument("timings", metavar="TIMINGS", type=Path, help="HDF5 file of one job or of a whole experiment")
    add_results(inner)

    inner = command(
        run_merge,
        "merge",
        "Put the timings of several runs or clusters into one file, each with its own provenance.",
        epilog="What several files have of the same run is taken once; the same point of different runs is kept of "
        "each. What a run left out and another one measured is not listed as left out.",
    )
    inner.add_argument("timings", metavar="TIMINGS", type=Path, nargs="+", help="HDF5 file of a job or an experiment")
    inner.add_argument("-o", "--output", type=Path, required=True, help="HDF5 file to write, which must not exist")
    inner.add_argument("--single", action="store_true", help="keep times to seven digits, in half the space")

    inner = command(
        run_compare,
        "compare",
        "Compare two timings files point by point: faster, slower, same or ambiguous, by the raw times.",
        epilog="Exit status: 0, or 3 if --fail-on-regression is given and a point is slower by more than that, or "
        "wrong where it was right; 1 for files that cannot be compared.",
    )
    inner.add_argument("before", metavar="A", type=Path, help="HDF5 file of a job or an experiment")
    inner.add_argument("after", metavar="B", type=Path, help="another, of the same kind of machine")
    inner.add_argument(
        "--of", choices=("kernel", "call"), default="kernel", help="the kernel alone (default), or the whole call"
    )
    inner.add_argument("--fail-on-regression", type=share, metavar="SHARE", help="such as 5%%")
    inner.add_argument("--all", action="store_true", help="list the points that are the same, too")
    inner.add_argument("--anyway", action="store_true", help="compare also what differs in kind, as another GPU")
    inner.add_argument("--html", type=Path, metavar="FILE", help="write all of it as a page, too")

    inner = command(
        run_doctor,
        "doctor",
        "Examine what measuring needs on this machine, and say what to do where something is missing.",
        epilog="Started by a launcher (mpiexec -n 2 python -m hpcmm doctor) it examines all nodes and ranks. "
        "Exit status: 0 if there is no error, 1 if there is one.",
    )
    inner.add_argument("--json", action="store_true", help="print one JSON object")
    add_results(inner)
    return outer


def add_results(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--results", metavar="DIR", type=Path, default=Path("results"), help="folder of the results (default: results)"
    )


def run_plan(arguments: argparse.Namespace) -> int:
    config = overridden(arguments.configfile, arguments.config)
    planned = plan.make(config) if arguments.cluster else plan.make(config, *backends.present())
    rows = []
    for (sweep, device, ranks), group in itertools.groupby(planned.to_measure, lambda b: (b.sweep, b.device, b.ranks)):
        rows.append([sweep, device, ranks, ranks if device == "cuda" else 0, *amount(list(group))])
    rows.append(["all", "", "", "", *amount(planned.to_measure)])
    head = ["sweep", "device", "ranks", "GPUs", "jobs", "points", "longest job", "one after another"]
    print(tabulate(rows, head, colalign=["left", "left", *["right"] * 6]))
    on_gpus = sum(batch.ranks * batch.seconds for batch in planned.to_measure if batch.device == "cuda")
    print(
        "\nTimes are what it takes at most; most jobs need a fraction of it."
        + (f" {on_gpus / 3600:.1f} GPU hours at most." if on_gpus else "")
    )
    if planned.left_out:
        print("\nLeft out:")
        for (sweep, reason), group in itertools.groupby(
            planned.omitted(), lambda omitted: (omitted["sweep"], omitted["reason"])
        ):
            members = list(group)
            variants = ", ".join(dict.fromkeys(row["variant"] for row in members))
            ranks = ", ".join(str(ranks) for ranks in dict.fromkeys(row["ranks"] for row in members))
            print(f"  {sweep}, ranks {ranks}: {variants}: {reason}")
    return 0


def amount(batches: Sequence[Batch]) -> list[Any]:
    """Jobs, points, seconds of the longest and of all, for a reader."""
    seconds = [batch.seconds for batch in batches]
    points = sum(len(batch.points) for batch in batches)
    return [len(batches), points, duration(max(seconds)), duration(sum(seconds))]


def overridden(path: Path, overrides: Sequence[str]) -> dict[str, Any]:
    """Read a config as Snakemake does: each ``KEY=VALUE`` replaces a value, or is merged into a mapping."""
    config = read_config(path)
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals:
            raise ConfigError(f"--config {override}: allowed: KEY=VALUE")
        merge_into(config, {key: parse(value, f"--config {override}")})
    return config


def run_status(arguments: argparse.Namespace) -> int:
    print(status.text(arguments.results))
    return 0


def run_report(arguments: argparse.Namespace) -> int:
    from hpcmm import report  # pandas takes a while to import

    gc.disable()  # the process ends with the report; looking for cycles would take a tenth of its time
    page, summary = report.build(arguments.timings, arguments.results)
    print(page)
    print(summary.line)
    return 0


def run_merge(arguments: argparse.Namespace) -> int:
    from hpcmm import store

    if arguments.output.exists():
        raise store.StoreError(f"{arguments.output}: exists already; remove it or give another name")
    counts = [len(store.read(path)["measurements"]["run"]) for path in arguments.timings]
    store.merge(arguments.timings, arguments.output, single=arguments.single)
    groups = store.read(arguments.output)
    merged, runs = len(groups["measurements"]["run"]), len(groups["runs"]["batch"])
    print(f"{arguments.output}: {merged} measurements of {runs} runs; {sum(counts) - merged} were there twice")
    return 0


def share(text: str) -> float:
    """``"5%"`` or ``"0.05"`` as 0.05."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < 10:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: a share such as 5% or 0.05")
    return value


def run_compare(arguments: argparse.Namespace) -> int:
    from hpcmm import compare, report, store
    from hpcmm.report import markup, tables

    files = [store.read(path) for path in (arguments.before, arguments.after)]
    found = compare.compare(*files, phase=arguments.of, anyway=arguments.anyway)
    rows = found.rows if arguments.all else found.rows[found.rows["verdict"] != "same"]
    if not rows.empty:
        print(markup.plain(tables.comparison_table(rows)), end="\n\n")
    for difference in found.differences:
        print(f"differs: {difference}")
    print(found.line)
    if arguments.html:
        report.build_comparison(found, arguments.before, arguments.after, arguments.of, arguments.html)
        print(arguments.html)
    if arguments.fail_on_regression is None:
        return 0
    regressions = found.regressions(arguments.fail_on_regression)
    print(f"{len(regressions)} slower by more than {100 * arguments.fail_on_regression:g} %, or wrong now")
    return 0 if regressions.empty else 3


def run_doctor(arguments: argparse.Namespace) -> int:
    return doctor.run(arguments.results, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
