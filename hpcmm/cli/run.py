"""``hpcmm run``: run the workflow of the current folder, with one progress instead of Snakemake's messages."""

from __future__ import annotations

import argparse
import importlib.util
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from hpcmm import parallel
from hpcmm.bench import status
from hpcmm.bench.done import PAGE, is_done
from hpcmm.cli.arguments import command
from hpcmm.experiment import plan
from hpcmm.experiment.config import read_config
from hpcmm.model import HpcmmError

# Options that limit what runs at a time; without any of them the run takes all cores of this machine.
AMOUNT = ("--cores", "-c", "--jobs", "-j", "--profile")
ELSEWHERE = ("--cluster", "--executor", "-e", "--profile")  # their jobs print to files
# With these options the messages of Snakemake are shown.
QUESTIONS = (
    *("--dry-run", "--dryrun", "-n", "--help", "-h", "--version", "-v", "--summary", "-S", "--detailed-summary", "-D"),
    *("--dag", "--rulegraph", "--filegraph", "--d3dag", "--lint", "--list", "--list-rules", "-l", "--report"),
    *("--unlock", "--touch", "-t"),
)
SECONDS_BETWEEN_REPORTS = 60


def add(commands: argparse._SubParsersAction) -> None:
    """Add the command to the parser."""
    parser = command(
        commands,
        "run",
        run,
        "Run the experiment of this folder: measure what is missing, then write results/report.html.",
        "All other options are those of Snakemake, which runs the workflow: hpcmm run --cores 4 --config scale=full; "
        "hpcmm run --cluster sbatch --jobs 4. Without --cores or --jobs the run takes all cores of this machine.",
        {
            0: "every job is done",
            1: "points are not measured because a job failed, or another error; measured points are kept",
        },
    )
    parser.allow_abbrev = False  # --config is Snakemake's
    parser.add_argument(
        "--configfile",
        "--config-file",
        "--configfiles",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE",
        help="the experiment (default: config.yaml of this folder)",
    )
    parser.add_argument(
        "--directory", "-d", type=Path, metavar="DIR", help="folder of results/ (default: the current one)"
    )
    parser.add_argument("--verbose", action="store_true", help="show the messages of Snakemake and of each job, too")
    parser.set_defaults(takes_rest=True)


def run(arguments: argparse.Namespace) -> int:
    missing = parallel.missing() if importlib.util.find_spec("snakemake") else "Snakemake is not installed"
    if missing:
        raise HpcmmError(f"{missing}: {parallel.INSTALL}")
    if not Path("Snakefile").exists() and not given(arguments.rest, ("--snakefile", "-s")):
        raise HpcmmError("no Snakefile in this folder; hpcmm init DIR writes a working folder")
    for path in arguments.configfile:
        read_config(path)  # Snakemake would end in a traceback
    results = (arguments.directory or Path()) / "results"
    rest, options = arguments.rest, []
    if not given(rest, AMOUNT):
        options += ["--cores", "all"]
    if arguments.directory:
        options += ["--directory", str(arguments.directory)]
    if arguments.configfile:
        options += ["--configfile", *map(str, arguments.configfile)]
    if arguments.verbose:
        options += ["--verbose"]
    options += ["--rerun-incomplete"]  # last, because it takes no value: others would take a target of the rest
    hidden = not arguments.verbose and not given(rest, QUESTIONS)
    command = [sys.executable, "-m", "snakemake", *options, *rest]
    code = follow(command, hidden, results if given(rest, ELSEWHERE) else None)
    with suppress(HpcmmError):  # some options of Snakemake write no plan
        if code == 0 and hidden and is_done(plan.read(results / "plan.json"), results):
            print(f"report: {(results / PAGE).resolve()}", flush=True)
    return code


def given(options: Sequence[str], names: Sequence[str]) -> bool:
    """Whether a command line has one of these options.

    >>> given(["--cores=2"], AMOUNT), given(["-j4"], AMOUNT), given(["--config", "a=1"], AMOUNT)
    (True, True, False)
    """
    short = tuple(name for name in names if len(name) == 2)
    return any(
        each.partition("=")[0] in names or (short and each.startswith(short) and not each.startswith("--"))
        for each in options
    )


def follow(snakemake: Sequence[str], hidden: bool, results: Path | None) -> int:
    """Run Snakemake to its end, and return its exit status.

    Parameters
    ----------
    snakemake : sequence of str
        The command.
    hidden : bool
        Whether to show only the lines of hpcmm on stderr. If Snakemake fails and none of them reports an error, its
        own lines follow at the end, unless the user ended it.
    results : Path, optional
        Folder whose progress is printed every minute, where the output of the jobs goes elsewhere.
    """
    process = subprocess.Popen(
        snakemake, stderr=subprocess.PIPE if hidden else None, text=hidden or None, errors="replace" if hidden else None
    )
    over, ended = threading.Event(), threading.Event()

    def end(number: int, _) -> None:
        ended.set()
        if number == signal.SIGTERM:  # Ctrl-C reaches both processes
            process.terminate()

    # Snakemake ends its jobs before it ends
    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    if results:
        threading.Thread(target=report, args=(results, over), daemon=True).start()
    try:
        reported, others = ours(process.stderr) if process.stderr else (True, [])
        code = process.wait()
    finally:
        over.set()
        for number, handler in before.items():
            signal.signal(number, handler)
    if code and not reported and not ended.is_set():
        print("".join(others), end="", file=sys.stderr, flush=True)
    return 1 if code > 0 else 128 - code if code else 0


def ours(stream: TextIO) -> tuple[bool, list[str]]:
    """Show only the lines of hpcmm, and the indented lines that follow them, from the messages of Snakemake.

    Returns
    -------
    bool
        Whether one of them reported an error.
    list of str
        All other lines.
    """
    reported, others, shown = False, [], False
    for line in stream:
        shown = line.startswith("hpcmm: ") or (shown and line.startswith("    "))
        reported = reported or line.startswith("hpcmm: error: ")
        if shown:
            print(line, end="", file=sys.stderr, flush=True)
        else:
            others.append(line)
    return reported, others


def report(results: Path, over: threading.Event) -> None:
    """Print the progress of the jobs every minute, if it has changed."""
    began, last = time.time(), ""
    while not over.wait(SECONDS_BETWEEN_REPORTS):
        with suppress(HpcmmError, OSError):
            if (results / "plan.json").stat().st_mtime >= began - 1:
                line = status.progress(*status.look_at_all(results, plan.read(results / "plan.json")))
                if line != last:
                    print(f"hpcmm: {line}", file=sys.stderr, flush=True)
                    last = line
