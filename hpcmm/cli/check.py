"""``python -m hpcmm check``: compare each node and GPU with its peers."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from hpcmm import store
from hpcmm.backends import this_machine
from hpcmm.cli import init
from hpcmm.cli import run as workflow
from hpcmm.cli.arguments import command
from hpcmm.experiment import plan
from hpcmm.experiment.config import SCHEMA
from hpcmm.jobs import collect
from hpcmm.model import HpcmmError
from hpcmm.parallel.host_links import DIRECTIONS
from hpcmm.parallel.links import MOST_OF_A_NODE

SLOW = 3  # exit status
BETWEEN_GPUS = ["neighbours_nccl", "all_to_all_nccl", "all_reduce_nccl"]
LONGEST = SCHEMA["$defs"]["size"]["maximum"]  # vector
MOST_RANKS = 8  # without --ranks, on a machine without GPUs


def add(commands: argparse._SubParsersAction) -> None:
    parser = command(
        commands,
        "check",
        run,
        "Compare each node and GPU with its peers: products, memory, links. Reports slow devices and links, with the "
        "slowdown and the probability of such a difference by chance.",
        "hpcmm check TIMINGS compares the devices of an existing file, of a check or of another run on several ranks. "
        "Without a file it measures first, with the workflow of this folder, or that of hpcmm if there is none. All "
        "other options are those of Snakemake, as for run: hpcmm check --ranks 8 --cluster sbatch --jobs 1.",
        {
            1: "nothing can be compared, or another error",
            SLOW: "a device or link is slow, a result is wrong, or a point was not measured",
        },
    )
    parser.allow_abbrev = False
    parser.add_argument(
        "--ranks",
        type=int,
        metavar="N",
        help="devices to measure (default: the GPUs, or up to 8 cores, of this machine)",
    )
    parser.add_argument(
        "--directory", "-d", type=Path, metavar="DIR", help="folder to measure in (default: check/ and the time)"
    )
    parser.add_argument("--reference", type=Path, metavar="FILE", help="also compare with the times of a good machine")
    parser.add_argument(
        "--write-reference", type=Path, metavar="FILE", help="write the times of this machine to a file"
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=0,
        metavar="N",
        help="then repeat products for N minutes and verify each; Ctrl-C stops and keeps the measurements",
    )
    parser.add_argument("--json", action="store_true", help="print all findings as JSON instead of a table")
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write the check as a page")
    parser.set_defaults(takes_rest=True)  # with TIMINGS: argparse would take a value of Snakemake's options for it


def config(ranks: int, minutes: float = 0) -> dict[str, Any]:
    """Return the experiment of a check: the same work on each rank, whatever their number.

    Sizes grow with the number of ranks; about a minute on a CPU. ``minutes`` are those of sustained
    products.
    """

    def matmul(device: str, variant: str, sizes: list[int], dtypes: list[str]) -> dict[str, Any]:
        shapes = [[size * ranks, size, size] for size in sizes]
        return {"operation": "matmul", "device": device, "variants": [variant], "shapes": shapes} | {
            "dtypes": dtypes,
            "ranks": [ranks],
        }

    def vectors(operation: str, variant: str, powers: list[int], **more: Any) -> dict[str, Any]:
        sizes = [size for size in (ranks * 2**power for power in powers) if size <= LONGEST]
        return {"operation": operation, "variants": [variant], "sizes": sizes, "dtypes": ["float32"], **more} | {
            "ranks": [ranks]
        }

    # each pair in both directions, by a transport in which a rank waits for its own link only
    pairs = ["neighbours_peer", *(f"distance_{each}_peer" for each in range(2, min(ranks, MOST_OF_A_NODE)))]
    between = [*pairs, *BETWEEN_GPUS] if ranks > 1 else []
    sweeps = {
        # The larger ones last longer than a time slice. In a shorter product a process with half of a core seems fast.
        "cpu_product": matmul("cpu", "numpy", [512, 768, 1024], ["float32", "float64"]),
        "cpu_memory": vectors("vector_add", "numpy", [20, 21, 22]),
        "cpu_links": vectors("links", "memcpy", [12, 16, 20], algorithms=["neighbours_mpi"]),
        "gpu_product": matmul("cuda", "cublas", [2048, 4096], ["float32", "float64", "bfloat16"]),
        "gpu_memory": vectors("vector_add", "cupy", [22, 24, 26]),
        "gpu_links": vectors("links", "device_copy", [12, 18, 24], algorithms=[*between, *DIRECTIONS]),
    }
    if ranks == 1:
        del sweeps["cpu_links"]
    measuring = {"visits": 3, "min_repetitions": 9, "max_repetitions": 60, "max_seconds": 0.6, "cache": "hot"}
    experiment = {"scale": "quick", "backends": "auto", "measuring": measuring, "sweeps": sweeps}
    return experiment | {"sustain_minutes": minutes}


def measured(arguments: argparse.Namespace) -> Path:
    """Measure by the workflow; return the timings file."""
    machine = this_machine()
    ranks = arguments.ranks or machine.count["cuda"] or min(MOST_RANKS, machine.count["cpu"])
    if ranks < 1:
        raise HpcmmError(f"--ranks: {ranks} is not allowed; allowed: 1 or more")
    if not 0 <= arguments.minutes < float("inf"):
        raise HpcmmError(f"--minutes: {arguments.minutes:g} is not allowed; allowed: 0 or more")
    folder = arguments.directory or Path("check") / datetime.now(UTC).strftime("%Y-%m-%dT%H%M%S")
    timings = folder / "results" / "timings.h5"
    if timings.exists():
        raise HpcmmError(
            f"{timings}: exists already; check it with: hpcmm check {timings}; or give another --directory"
        )
    file = folder / "config.yaml"
    with store.replacing(file) as temporary:
        temporary.write_text(yaml.safe_dump(config(ranks, arguments.minutes), sort_keys=False), encoding="utf-8")
    own = [] if Path("Snakefile").exists() else ["--snakefile", str(init.shipped() / "Snakefile")]
    options = argparse.Namespace(
        rest=[*own, *arguments.rest], configfile=[file.resolve()], directory=folder, verbose=False
    )
    with messages_to_stderr():  # standard output has the findings only
        code = workflow.run(options)
        if not timings.exists() and (timings.parent / "plan.json").exists():  # it was ended, as by Ctrl-C
            collect.collect(plan.read(timings.parent / "plan.json"), timings.parent, timings)
    if not timings.exists():
        raise HpcmmError(f"nothing was measured (status {code}); see the logs of the jobs in {folder}/results/logs")
    return timings


@contextlib.contextmanager
def messages_to_stderr() -> Iterator[None]:
    """Send the standard output of this process and of those that it starts to standard error."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def run(arguments: argparse.Namespace) -> int:
    file, *others = arguments.rest or [""]
    existing = file and not file.startswith("-")
    if existing and others:
        raise HpcmmError(f"unknown options: {' '.join(others)}; only a check that measures passes them on")
    path = Path(file) if existing else measured(arguments)
    from hpcmm.analysis import check  # pandas takes a while to import
    from hpcmm.report import check as shown
    from hpcmm.report import markup

    reference = read_reference(arguments.reference) if arguments.reference else None
    columns = store.read(path)
    found = check.check(columns, reference)
    if arguments.write_reference:
        with store.replacing(arguments.write_reference) as temporary:
            temporary.write_text(json.dumps(found.reference(), indent=1) + "\n", encoding="utf-8")
    if arguments.html:
        shown.build(found, columns, str(path), arguments.html)
    if arguments.json:
        print(json.dumps(found.plain(), indent=1, allow_nan=False))
    else:
        if found.slow:
            print(markup.plain(shown.slow_table(found)), end="\n\n")
        for note in (*found.broken, *found.notes):
            print(note)
        print(found.line)
    return 0 if found.passed else SLOW


def read_reference(path: Path) -> dict[str, Any]:
    """Read a file of ``--write-reference``.

    Raises
    ------
    HpcmmError
        If the file is not a reference.
    """
    from hpcmm.analysis import check

    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise HpcmmError(f"{path}: not JSON: {error}") from error
    seconds = found.get("seconds") if isinstance(found, dict) and found.get("format") == check.FORMAT else None
    if not isinstance(seconds, dict) or not all(isinstance(each, float) and each > 0 for each in seconds.values()):
        raise HpcmmError(f"{path}: not a reference; write one with: hpcmm check --write-reference FILE")
    spreads = found.get("spreads", {})  # earlier versions wrote none
    pairs = spreads.values() if isinstance(spreads, dict) else [None]
    if not all(isinstance(each, list) and len(each) == 2 and min(each, default=0) >= 0 for each in pairs):
        raise HpcmmError(f"{path}: spreads: not in the form that hpcmm writes; write the reference again")
    return found
