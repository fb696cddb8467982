"""``hpcmm run``: run the workflow of the current folder, with one progress instead of Snakemake's messages."""

import argparse
import builtins
import ctypes
import functools
import importlib.util
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TextIO

import psutil

from hpcmm import parallel
from hpcmm.bench import status
from hpcmm.bench.done import PAGE, TIMINGS, is_done, is_shown
from hpcmm.cli import display, show
from hpcmm.cli.arguments import Parser, corrected
from hpcmm.cluster import slurm
from hpcmm.experiment import plan
from hpcmm.experiment.config import SCHEMA, changes_of, read_config
from hpcmm.model import HpcmmError
from hpcmm.system import files
from hpcmm.system.text import choices

# With these options the messages of Snakemake are shown.
QUESTIONS = (
    *("--dry-run", "--dryrun", "-n", "--help", "-h", "--version", "-v", "--summary", "-S", "--detailed-summary", "-D"),
    *("--dag", "--rulegraph", "--filegraph", "--d3dag", "--lint", "--list", "--list-rules", "-l", "--report"),
    *("--unlock", "--touch", "-t"),
)
SECONDS_BETWEEN_REPORTS = 60
LEAST_ROOM = 16 << 20  # bytes, in the temporary folder
INTERRUPTED = 130  # exit status of Ctrl-C, as of shells
PR_SET_PDEATHSIG = 1


def run(arguments: argparse.Namespace) -> int:
    missing = parallel.missing() if importlib.util.find_spec("snakemake") else "Snakemake is not installed"
    if missing:
        raise HpcmmError(f"{missing}: {parallel.INSTALL}")
    chosen = of_snakemake(arguments.rest)
    if not Path("Snakefile").exists() and not chosen.snakefile:
        raise HpcmmError("no Snakefile in this folder; hpcmm init DIR writes a working folder")
    changes = [str(each) for each in arguments.configfile if "=" in each.name]  # the option takes all that follows it
    rest, configs = without_configs([*changes, *arguments.rest])
    configs, options = [*(each for each in arguments.configfile if "=" not in each.name), *configs], []
    for path in configs:
        read_config(path)  # Snakemake would end in a traceback
    if "" in rest:
        raise HpcmmError("an argument is empty; allowed: options and targets of Snakemake")
    results = (arguments.directory or Path()) / "results"
    if not (chosen.amounts or chosen.profile):
        options += ["--cores", "all"]
    if arguments.directory:
        options += ["--directory", str(arguments.directory)]
    if configs:
        options += ["--configfile", *map(str, configs)]
    if arguments.verbose:
        options += ["--verbose"]
    options += ["--rerun-incomplete"]  # last, because it takes no value: others would take a target of the rest
    command = [sys.executable, "-m", "snakemake", *options, *rest]
    elsewhere = bool(chosen.elsewhere or chosen.profile)
    if chosen.question and not arguments.verbose:
        return ask(command)
    if arguments.verbose:
        return follow(command, None, results, elsewhere)
    began, shown = time.time(), display.of(results)
    try:
        code = follow(command, shown, results, elsewhere)
    finally:
        shown.close()
    if code == INTERRUPTED:
        print("hpcmm: ended; finished points are kept, and the same command measures the others", file=sys.stderr)
        return code
    # some options of Snakemake write no plan; hpcmm check has an answer of its own
    if getattr(arguments, "answers", True) and (shown.begun or (results / "plan.json").exists()):
        with suppress(*(HpcmmError, OSError) if code else ()):
            conclude(results, began, code == 0, shown.begun)
    return code


def conclude(results: Path, began: float, succeeded: bool, measured: bool) -> None:
    """Print what the timings file says, if the run has written one or had nothing to do, and the path of the report."""
    planned, timings = plan.read(results / "plan.json"), results / TIMINGS
    done = succeeded and is_done(planned, results)
    if done and not measured:
        print(status.ahead(results, planned).removeprefix("hpcmm: ").capitalize())
    if done or (timings.exists() and timings.stat().st_mtime >= began):
        show.say_answer(timings)
        if is_shown(results):  # it is missing if it cannot be written
            print(f"report: {(results / PAGE).resolve()}", flush=True)


def without_configs(options: Sequence[str]) -> tuple[list[str], list[Path]]:
    """Return options of Snakemake without the files that are configs, and these.

    Configs are those among the targets and the values of ``--config``. Targets KEY=VALUE become values of ``--config``.

    >>> without_configs(["-n", "mine.yaml", "sweeps.a.sizes=[8]", "--resources", "x=1", "--config=seed=1", "-F"])
    (['-n', '--resources', 'x=1', '-F', '--config', 'sweeps={"a": {"sizes": [8]}}', 'seed=1'], [PosixPath('mine.yaml')])
    """
    words = [part for each in options for part in (each.split("=", 1) if each.startswith("--config=") else [each])]
    kept, values, configs, inside = [], [], [], False
    for before, word in itertools.pairwise(["", *words]):
        begins = word in ("--config", "-C")
        inside = begins or (inside and not word.startswith("-"))
        key, equals, _ = word.partition("=")
        if not equals and Path(word).suffix in (".yaml", ".yml") and before not in ("--profile", "--workflow-profile"):
            configs.append(Path(word))
        elif not begins:
            (values if inside or (equals and key.partition(".")[0] in SCHEMA["properties"]) else kept).append(word)
    end = kept.index("--") if "--" in kept else len(kept)
    given = [f"{key}={json.dumps(value, default=str)}" for key, value in changes_of(values).items()]
    return kept[:end] + (["--config", *given] if given else []) + kept[end:], configs


def of_snakemake(options: Sequence[str]) -> argparse.Namespace:
    """Return the options of Snakemake that decide how it is started and shown.

    >>> found = of_snakemake(["-j4", "--config", "a=1", "--executor", "slurm"])
    >>> found.amounts, found.elsewhere, found.question
    (['4'], 'slurm', None)
    """
    parser = Parser(prog="hpcmm run", add_help=False, allow_abbrev=False)
    # without these the run takes all cores of this machine
    parser.add_argument("--cores", "-c", "--jobs", "-j", dest="amounts", action="append", nargs="?", const="all")
    parser.add_argument("--cluster", "--executor", "-e", dest="elsewhere")  # their jobs print to files
    parser.add_argument("--profile")
    parser.add_argument("--snakefile", "-s")
    parser.add_argument(*QUESTIONS, dest="question", nargs="?", const=True)
    found, _ = parser.parse_known_args(options)
    for each in found.amounts or ():  # Snakemake takes them for 0, or reports them without the number
        if each not in ("all", "unlimited") and not re.fullmatch(r"0*[1-9]\d*", each):
            raise HpcmmError(f"--cores, --jobs: {each} is not allowed; allowed: 1 or more, or all")
    return found


def ask(snakemake: Sequence[str]) -> int:
    """Print what Snakemake answers to a question, or its error, and return its exit status."""
    done = subprocess.run(snakemake, env=environment(), capture_output=True, text=True, errors="replace")
    if done.returncode:
        print(explained(done.stdout + done.stderr), file=sys.stderr)
        return 1
    print(done.stderr, end="", file=sys.stderr)
    print(done.stdout, end="")
    return 0


def follow(snakemake: Sequence[str], shown: display.Lines | None, results: Path, elsewhere: bool) -> int:
    """Run Snakemake to its end, and return its exit status.

    If it fails and no line ``shown`` reports an error, its own lines follow at the end, unless the user ended it. If
    the output of the jobs goes ``elsewhere``, their progress is shown every minute. At SIGTERM it waits for its running
    jobs; at a second one, it stops them. Snakemake ends if this process is killed: it would wait for ever after a
    message that nobody reads, and keep the folder locked.
    """
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
    end_with_parent = functools.partial(ctypes.CDLL(None).prctl, PR_SET_PDEATHSIG, signal.SIGKILL)
    process = subprocess.Popen(snakemake, env=environment(), preexec_fn=end_with_parent, **(piped if shown else {}))
    over, ended, interrupted = threading.Event(), threading.Event(), threading.Event()

    def end(number: int, _) -> None:
        first = not ended.is_set()
        ended.set()
        if number == signal.SIGINT:
            interrupted.set()
        if number == signal.SIGTERM:  # Ctrl-C reaches both processes
            # not in the handler, which may have interrupted the display
            threading.Thread(target=wait if first else stop, daemon=True).start()

    def wait() -> None:
        process.terminate()
        line = waits(results)
        shown.take(line) if shown else print(line, file=sys.stderr, flush=True)

    def stop() -> None:
        with suppress(psutil.NoSuchProcess):
            jobs = psutil.Process(process.pid).children(recursive=True)
            process.send_signal(signal.SIGINT)
            for job in jobs:
                with suppress(psutil.NoSuchProcess):
                    job.terminate()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    if elsewhere:
        threading.Thread(target=report, args=(results, over, shown), daemon=True).start()
    try:
        reported, others = ours(process.stdout, shown) if shown else (True, [])
        code = process.wait()
    finally:
        over.set()
        for number, handler in before.items():
            signal.signal(number, handler)
    if code and not reported and not ended.is_set():
        shown.close()
        print(explained("".join(others)), file=sys.stderr, flush=True)
    if code and interrupted.is_set():
        return INTERRUPTED
    return 1 if code > 0 else 128 - code if code else 0


def waits(results: Path) -> str:
    """Return what a run waits for that ends at SIGTERM, and how to stop it at once."""
    running = []
    with suppress(HpcmmError, OSError):
        states, pace = status.look_at_all(results, plan.read(results / "plan.json"))
        running = [f"{state.batch.name} ({state.state(pace)})" for state in states if state.running]
    jobs = f": {', '.join(running)}" if running else ""
    again = f"to stop them at once: kill {os.getpid()} once more"
    return f"hpcmm: SIGTERM: no further job starts; waits for the running ones{jobs}; finished points are kept; {again}"


def environment() -> dict[str, str]:
    """Return the environment of Snakemake, whose cache and temporary folder must be writable."""
    own = {} if files.usable(files.user_cache()) else {"XDG_CACHE_HOME": str(Path(".snakemake", "cache").resolve())}
    folder = tempfile.gettempdir()
    room = shutil.disk_usage(folder)
    if room.total and room.free < LEAST_ROOM:  # else Snakemake ends in a traceback, and compilers in the middle
        least = f"less than {LEAST_ROOM >> 20} MiB"
        raise HpcmmError(f"{folder}: the temporary folder has {least} free; free some, or set TMPDIR to another folder")
    return os.environ | own | {"TMPDIR": folder}


def explained(messages: str) -> str:
    """Return the error among the messages of Snakemake, in one line where it is about the command line or a lock.

    >>> explained("usage: snakemake [--cores N] [--config C]\\nsnakemake: error: unrecognized arguments: --coers\\n")
    "hpcmm: error: unrecognized arguments: --coers; did you mean '--cores'?"
    """
    if match := re.search(r"^hpcmm: error: .*(?:\n {4}.*)*", messages, re.M):
        return match[0]
    if "LockException" in messages:
        with suppress(OSError, ValueError):
            host, process, _ = slurm.RUN.read_text().split()
            remedy = "wait for its end, end it, or give this one another --directory"
            return f"hpcmm: error: another run uses this folder: process {process} on {host}; {remedy}"
    if match := re.search(r"^\S+: error: (.*)", messages, re.M):
        return f"hpcmm: error: {corrected(match[1], messages[: match.start()])}"
    if "clock skew" in messages:
        return "hpcmm: error: the clock of this machine was set back during the run; run the same command again"
    if match := re.search(r"No rule to produce (\S+)", messages):
        allowed = choices(match[1], [f"results/{TIMINGS}", f"results/{PAGE}"])
        return f"hpcmm: error: the target {match[1]} is not allowed; allowed: none for the whole run, {allowed}"
    lines = [line for line in messages.splitlines() if line.strip()]
    if match := re.search(r'^(\w+) in file "(.*Snakefile)", line \d+:\n(.+)', messages, re.M):
        found = f"hpcmm: error: {match[2]}: {match[1]}: {match[3]}"
        if issubclass(getattr(builtins, match[1], Exception), OSError):  # such as a full disk
            return found
        remedy = "run hpcmm init DIR, and copy the Snakefile, jobs/ and profiles/ of DIR"
        return f"{found}; if another version of hpcmm wrote the file, {remedy}"
    if any(line.startswith('  File "') for line in lines):
        named = [line for line in lines if re.match(r"\w+(?:Error|Exception)\b", line)]  # logging adds lines behind it
        return f"hpcmm: error: Snakemake: {(named or lines)[-1].strip()}; --verbose shows where"
    beginning = r"^(?:Error: |(?:MissingRule|Workflow|Target)\w+(?: in [^\n]*)?:\s*)(.+)"
    if match := re.search(beginning, messages, re.M | re.S):
        return f"hpcmm: error: Snakemake: {' '.join(match[1].split())}"
    return messages.rstrip("\n")


def ours(stream: TextIO, shown: display.Lines) -> tuple[bool, list[str]]:
    """Show the lines of hpcmm among Snakemake's; return whether one is an error, and all other lines."""
    reported, others, follows = False, [], False
    for line in stream:
        follows = display.is_ours(line) or (follows and line.startswith("    "))
        reported = reported or line.startswith("hpcmm: error: ")
        if follows:
            shown.take(line.rstrip("\n"))
        else:
            others.append(line)
    return reported, others


def report(results: Path, over: threading.Event, shown: display.Lines | None) -> None:
    """Show the progress of the jobs every minute, if it has changed."""
    began, last = time.time(), ""
    while not over.wait(SECONDS_BETWEEN_REPORTS):
        with suppress(HpcmmError, OSError):
            if (results / "plan.json").stat().st_mtime >= began - 1:
                line = status.progress(*status.look_at_all(results, plan.read(results / "plan.json")))
                if line != last:
                    shown.jobs(line) if shown else print(f"hpcmm: {line}", file=sys.stderr, flush=True)
                    last = line
