"""``python -m hpcmm check``: compare each node and GPU with its peers."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from hpcmm import store
from hpcmm.backends import this_machine
from hpcmm.bench.done import TIMINGS
from hpcmm.cli import init
from hpcmm.cli import run as workflow
from hpcmm.experiment import plan
from hpcmm.experiment.config import SCHEMA
from hpcmm.jobs import collect
from hpcmm.model import ALONE, HpcmmError
from hpcmm.model.devices import DEVICES
from hpcmm.model.measurement import timings_file
from hpcmm.parallel.links import MOST_OF_A_NODE
from hpcmm.system import reader
from hpcmm.system.text import json_of

if TYPE_CHECKING:
    from hpcmm.analysis import Columns
    from hpcmm.analysis.health import Check

SLOW, INCONCLUSIVE = 3, 4  # exit statuses
RESULTS = Path("results")  # in the folder of the check
ROUNDS = 4  # of measuring: the first, and more visits of sweeps that are blind to the slowdown or show a slow device
BETWEEN_GPUS = ["neighbours_nccl", "all_to_all_nccl"]
LONGEST = SCHEMA["$defs"]["size"]["maximum"]  # vector
LASTING = {True: 8192, False: 2048}  # sides of products for minutes, of accelerators and of CPUs
MOST_REPETITIONS = SCHEMA["properties"]["measuring"]["properties"]["max_repetitions"]["maximum"]
MOST_MINUTES = 120  # as each repetition is a sample of each rank
MOST_RANKS = 8  # without --ranks, on a machine without GPUs


def config(ranks: int) -> dict[str, Any]:
    """Return the experiment of a check: the same work on each rank, whatever their number.

    Each rank draws its arrays and verifies them, so nothing grows with the ranks. About a minute on a CPU.
    """

    def work(operation: str, variant: str, sizes: list[int], algorithms: list[str], **more: Any) -> dict[str, Any]:
        sweep = {"operation": operation, "variants": [variant], "algorithms": algorithms, "sizes": sizes}
        return sweep | {"dtypes": ["float32"], "ranks": [ranks]} | more

    def lengths(*powers: int) -> list[int]:
        """Lengths of whole vectors, with powers of two on each rank."""
        return sorted({min(ranks * 2**power, LONGEST // ranks * ranks) for power in powers})

    # each pair in both directions, by a transport in which a rank waits for its own link only
    pairs = ["neighbours_peer", *(f"distance_{each}_peer" for each in range(2, min(ranks, MOST_OF_A_NODE)))]
    between, types = [*pairs, *BETWEEN_GPUS] if ranks > 1 else [], ["float32", "float64", "bfloat16"]
    sweeps = {
        # The larger ones last longer than a time slice. In a shorter product a process with half of a core seems fast.
        "cpu_product": work("matmul", "numpy", [512, 768, 1024], [ALONE], device="cpu", dtypes=["float32", "float64"]),
        "cpu_memory": work("vector_add", "numpy", [2**20, 2**21, 2**22], [ALONE]),
        "cpu_links": work("links", "memcpy", lengths(12, 16, 20), ["neighbours_mpi"]),
        "gpu_product": work("matmul", "cublas", [2048, 4096], [ALONE], device="cuda", dtypes=types),
        "gpu_memory": work("vector_add", "cupy", [2**22, 2**24, 2**26], [ALONE]),
        # The end of a copy is recorded to within 2 us: with short copies, healthy cards would be named. Simultaneous
        # copies to and from the host share its memory, whose speed varies by more than a faulty link would show.
        "gpu_links": work("links", "device_copy", lengths(24, 26), [*between, "upload", "download"]),
        # each rank holds the whole vectors
        "gpu_all_reduce": work("links", "device_copy", [2**12, 2**18, 2**24], ["all_reduce_nccl"]),
    }
    if ranks == 1:
        del sweeps["cpu_links"], sweeps["gpu_all_reduce"]
    measuring = {"visits": 3, "min_repetitions": 9, "max_repetitions": 60, "max_seconds": 0.6, "cache": "hot"}
    return {"scale": "quick", "backends": "auto", "measuring": measuring, "sweeps": sweeps}


def lasting(experiment: dict[str, Any], minutes: float, accelerated: bool) -> dict[str, Any]:
    """Return the experiment that repeats products for some minutes, on GPUs if there are some.

    The minutes are divided among the types, and those of a type among three visits, which show a device that becomes
    slow when it is warm. Every result must have the bits of the first one, where the library promises it.
    """
    product = experiment["sweeps"]["gpu_product" if accelerated else "cpu_product"].copy()
    product |= {"dtypes": ["float32", "float64"], "sizes": [LASTING[accelerated]], "beta": 0.0}
    repetitions = dict.fromkeys(("min_repetitions", "max_repetitions"), MOST_REPETITIONS)
    limits = {"visits": 3, "max_seconds": 60 * minutes / len(product["dtypes"]), "cache": "hot", **repetitions}
    return experiment | {"measuring": limits, "sweeps": {"lasting_product": product}}


def measured(arguments: argparse.Namespace) -> tuple[Path, dict[str, Any]]:
    machine = this_machine()
    ranks = arguments.ranks
    if ranks is None:
        ranks = machine.count["cuda"] or min(MOST_RANKS, machine.count["cpu"])
    if arguments.minutes > MOST_MINUTES:
        raise HpcmmError(f"--minutes: {arguments.minutes:g} is not allowed; allowed: at most {MOST_MINUTES}")
    folder = arguments.directory or Path("check") / datetime.now(UTC).strftime("%Y-%m-%dT%H%M%S")
    timings = folder / RESULTS / TIMINGS
    if timings.exists():
        how = f"check it with: hpcmm check {timings}; or give another --directory"
        raise HpcmmError(f"{timings}: exists already; {how}")
    experiment = config(ranks)
    return measure(arguments, experiment, folder), experiment


def measure(arguments: argparse.Namespace, experiment: dict[str, Any], folder: Path) -> Path:
    file, timings = folder / "config.yaml", folder / RESULTS / TIMINGS
    store.write_text(file, yaml.safe_dump(experiment, sort_keys=False))
    own = [] if Path("Snakefile").exists() else ["--snakefile", str(init.shipped() / "Snakefile")]
    rest = [str(RESULTS / TIMINGS), *own, *arguments.rest]  # without the report of a run
    options = argparse.Namespace(rest=rest, configfile=[file.resolve()], directory=folder, verbose=False, answers=False)
    with contextlib.redirect_stdout(sys.stderr):  # standard output has the findings only
        code = workflow.run(options)
        if not (timings.parent / "plan.json").exists():
            sys.exit(code)  # a dry run, or an error that was reported
        if not timings.exists():  # it was ended, as by Ctrl-C
            collect.collect(plan.read(timings.parent / "plan.json"), timings.parent, timings)
    if not timings.exists():
        raise HpcmmError(f"nothing was measured (status {code}); see the logs of the jobs in {folder / RESULTS}/logs")
    return timings


def with_more(
    arguments: argparse.Namespace,
    experiment: dict[str, Any],
    first: Path,
    judge: Callable[[Sequence[Columns]], Check],
    found: Check,
) -> Check:
    """Measure further visits of the sweeps that cannot show the requested slowdown, while these help.

    A sweep in which a device is slow is measured once more, because two of three visits may be disturbed. Then repeat
    products for the requested minutes; without a result of them, the check has a fault.
    """
    from hpcmm.analysis.detection import SCATTER

    files, repeated = [store.read(first)], set()
    for number in range(2, ROUNDS + 1):
        blind = [sweep for sweep, why in found.blind.items() if why.endswith(SCATTER)]
        slow = [sweep for sweep in found.slow["sweep"] if sweep not in repeated]
        sweeps = list(dict.fromkeys(slow or (blind if found.verdict == "inconclusive" else [])))
        if not sweeps:
            break
        repeated.update(sweeps)
        print(f"more visits, round {number} of at most {ROUNDS}: {', '.join(sweeps)}", file=sys.stderr, flush=True)
        again = experiment | {"sweeps": {name: experiment["sweeps"][name] for name in sweeps}}
        folder = first.parent.parent / f"round-{number}"
        try:
            files.append(store.read(measure(arguments, again, folder)))
            found = judge(files)
        except HpcmmError as error:  # such as jobs on other nodes; the verdict so far stands
            found = dataclasses.replace(found, notes=(*found.notes, f"no more visits: {error}"))
            break
    if arguments.minutes:
        accelerated = any(DEVICES[name].accelerator for name in set(files[0]["measurements"]["device"]))
        print(f"products for {arguments.minutes:g} min", file=sys.stderr, flush=True)
        try:
            long = lasting(experiment, arguments.minutes, accelerated)
            found = judge([*files, store.read(measure(arguments, long, first.parent.parent / "lasting"))])
        except HpcmmError as error:
            found = dataclasses.replace(found, broken=(*found.broken, f"lasting_product: {error}"))
    return found


def run(arguments: argparse.Namespace) -> int:
    file, *others = arguments.rest or [""]
    existing = file and not file.startswith("-")
    if not existing and any(each.partition("=")[0] == "--results" for each in arguments.rest):
        raise HpcmmError("--results is no option of check; the check of an existing run is: hpcmm check FOLDER")
    if existing and any(other.startswith("-") for other in others):
        raise HpcmmError(f"unknown options: {' '.join(others)}; only a check that measures passes them on")
    if existing and (unused := [each for each in ("ranks", "directory", "minutes") if getattr(arguments, each)]):
        arguments.wrong(f"--{unused[0]}: only for a check that measures, without {file}")
    reference = read_reference(arguments.reference) if arguments.reference else None
    path, experiment = (timings_file(file), None) if existing else measured(arguments)
    from hpcmm.analysis import check, compare  # pandas takes a while to import
    from hpcmm.report import check as shown
    from hpcmm.report import markup

    def judge(files: Sequence[Columns]) -> Check:
        return check.check(files[0], reference, arguments.detect, files[1:])

    columns = store.read(path)
    found = judge([columns, *(store.read(timings_file(other)) for other in others if existing)])
    if experiment:
        found = with_more(arguments, experiment, path, judge, found)
    if reference and (kinds := compare.differences(store.read(arguments.reference), columns)[0]):
        found = dataclasses.replace(found, notes=(*found.notes, f"the reference differs: {'; '.join(kinds)} here"))
    past = remember(arguments.history, found, columns) if arguments.history else []
    if arguments.html:
        shown.build(found, columns, str(path), arguments.html, past)
    if arguments.json:
        print(json_of(found.plain()))
    else:
        if len(found.slow):
            print(markup.plain(shown.slow_table(found)), end="\n\n")
        if past := [row for row in past if row["slow"]]:
            print(markup.plain(shown.history_table(past)), end="\n\n")
        for note in (*found.broken, *found.notes, *(f"{sweep}: {why}" for sweep, why in found.blind.items())):
            print(note)
        print(found.line)
    return {"passed": 0, "slow": SLOW, "inconclusive": INCONCLUSIVE}[found.verdict]


def remember(path: Path, found: Check, columns: Columns) -> list[dict[str, Any]]:
    """Add a check to a file of histories, once; return the rows of ``health.history``."""
    from hpcmm import analysis
    from hpcmm.analysis import health

    lines = reader.text_of(path, most_bytes=2**30).splitlines() if path.exists() else []
    try:
        entries = [json.loads(line) for line in lines]
        valid = all(each["format"] == health.HISTORY for each in entries)
    except (ValueError, TypeError, KeyError):
        valid = False
    if not valid:
        raise HpcmmError(f"{path}: not a history of checks; name another file, which --history writes")
    entry = found.entry(max(run.get("utc", "") for run in analysis.runs(columns)))
    if entry not in entries:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
        entries.append(entry)
    return health.history(entries)


def read_reference(path: Path) -> dict[str, Any]:
    """Return the times of a good machine, from the file of a check of it."""
    from hpcmm.analysis import check

    try:
        return check.check(store.read(path)).reference()
    except check.CheckError as error:
        raise HpcmmError(f"reference {path}: {error}") from error
