"""``hpcmm bench``: verify and time kernels from files, beside the library."""

import argparse
import contextlib
import dataclasses
import math
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hpcmm import backends, kernels, store
from hpcmm.bench import adoption, profiling, sanitizing, tools, verdicts
from hpcmm.bench.on_host import verify
from hpcmm.cli.searching import (
    VERIFYING,
    bits_on_host,
    hint,
    is_cuda,
    races,
    sanitized,
    searched,
    tasks_on_host,
    uncompiled,
)
from hpcmm.cli.selection import Chosen, NothingToRun, choose, config_of, smaller, verifying_sweeps
from hpcmm.experiment.durations import rounded_duration
from hpcmm.jobs import trial
from hpcmm.model import DeviceError, HpcmmError, NotTested, Variant
from hpcmm.system import files, surroundings
from hpcmm.system.text import json_of

INTERRUPTED = 130  # exit status
TIMING = {"visits": 3, "max_repetitions": 60, "max_seconds": 0.75}
TRIAL = {"warmups": 0, "min_repetitions": 1, "max_repetitions": 2, "max_seconds": 0.01, "visits": 1}
LONGEST_SECONDS, LONG_SECONDS = 1.0, 10.0  # of a call at sizes that are chosen here, and of one to warn of
LAUNCH_SECONDS = 2e-5  # of a small launch on a GPU, where sizes do not matter
SECONDS_BETWEEN_LOOKS = 0.3


class Output:
    """The verdicts of the command: each is printed when it is known, or all of them as JSON at the end."""

    def __init__(self, arguments: argparse.Namespace, remark: str = ""):
        self.json, self.remark = arguments.json, remark
        self.results: list[dict[str, Any]] = []

    def say(self, text: str) -> None:
        if text and not self.json:
            print(text, flush=True)

    def add(self, result: dict[str, Any]) -> None:
        self.results.append(result)
        self.say(verdicts.line_of(result) + self.remark)

    def add_failed(self, why: Mapping[str, str]) -> None:
        """Add the verdicts on kernels that cannot be run, by path."""
        for path, reason in why.items():
            self.add(verdicts.result(Path(path).name, reason))

    def end(self, **found: Any) -> int:
        """Print the JSON, and return the exit status."""
        if self.json:
            print(json_of({**found, "kernels": self.results}))
        return verdicts.status(self.results)


def run(arguments: argparse.Namespace) -> int:
    if arguments.watch:
        return watch(arguments)
    if arguments.adopt:
        return adopt(arguments)
    try:
        if arguments.on_host:
            return on_host(arguments, chosen_by(arguments))
        with contextlib.closing(trial.Visit()) as first:  # it starts while the files are read
            return on_device(arguments, chosen_by(arguments), first)
    except NothingToRun as error:
        output = Output(arguments)
        output.add_failed(error.broken)
        return output.end(operation=arguments.operation or "")


def chosen_by(arguments: argparse.Namespace) -> Chosen:
    """Return what to measure; raise NothingToRun for verdicts that say why there is nothing."""
    try:
        chosen = choose(arguments)
    except HpcmmError as error:
        if not arguments.json or isinstance(error, NothingToRun):
            raise
        raise NothingToRun(dict.fromkeys(arguments.files, str(error))) from error
    require_tools(arguments, chosen)
    return chosen


def on_device(arguments: argparse.Namespace, chosen: Chosen, first: trial.Visit) -> int:
    """Verify and time kernels on their device; CUDA kernels on the CPU if there is no GPU."""
    missing = backends.missing(chosen.device.name)
    if not missing:
        surroundings.say()
        return measured(arguments, chosen, first)
    if backends.this_machine().count[chosen.device.name]:
        raise HpcmmError(f"{missing}; --on-host verifies CUDA kernels on the CPU")
    if not all(map(is_cuda, chosen.kernels.values())):
        raise NothingToRun(dict.fromkeys(chosen.kernels, str(NotTested("needs a GPU"))))
    print("hpcmm: this machine has no GPU: verified on the CPU, as by --on-host", file=sys.stderr)
    return on_host(arguments, dataclasses.replace(chosen, asked=[]))  # sizes to time


def adopt(arguments: argparse.Namespace) -> int:
    if len(arguments.files) > 1:
        arguments.wrong("--adopt: one file at a time")
    if arguments.adopt.exists():
        raise HpcmmError(f"exists already: {arguments.adopt}; give another name, or remove it")
    adopted = adoption.adopt(Path(arguments.files[0]).resolve(), arguments.kernel or "")
    adopted.write(arguments.adopt)
    print(f"{adopted}\nwrote {arguments.adopt}")
    return 0


def require_tools(arguments: argparse.Namespace, chosen: Chosen) -> None:
    """Raise an error if an option needs a program that is not installed, or kernels that are not CUDA sources."""
    needed = {"--sanitize": sanitizing, "--profile": profiling}
    for option, module in needed.items():
        if not getattr(arguments, option[2:]):
            continue
        for variant in chosen.kernels.values():
            if not is_cuda(variant):
                arguments.wrong(f"{option}: {variant.name} is not a CUDA source")
        if arguments.on_host:
            arguments.wrong(f"{option}: not with --on-host; it needs a GPU")
        if tools.find(module.PROGRAM) is None:
            raise HpcmmError(f"{option}: {module.NOT_INSTALLED}")


def measured(arguments: argparse.Namespace, chosen: Chosen, first: trial.Visit) -> int:
    """Verify all kernels, time the correct ones, and print both."""
    operation, output = chosen.operation, Output(arguments)
    output.add_failed(chosen.broken)
    for verdict in uncompiled(chosen):
        output.add(verdict)
    if not chosen.kernels:
        return output.end(operation=operation.name)
    judged, slowest = verified(chosen, first, output.add)
    if not arguments.sanitize:
        for line in races(chosen, judged):
            output.say(line)
    right = [name for name, each in zip(chosen.kernels, judged, strict=True) if each["passed"]]
    from hpcmm import analysis  # with pandas, which takes a while to import
    from hpcmm.report import bench as benched

    found: dict[str, Any] = {"points": [], "not_tried": chosen.refused}
    if arguments.sanitize:
        found["sanitizers"] = sanitized(chosen)
        for report in found["sanitizers"]:
            output.say(benched.sanitizer_line(report))
    if right:
        chosen, said = at_own_speed(chosen, right, slowest)
        if said:
            output.say(said)
        columns = timed(arguments, chosen, right)
        for earlier in judged:
            verdict = verdicts.verdict_of(operation, earlier["kernel"], columns)
            if earlier["passed"] and not verdict["passed"]:
                earlier |= verdict
                output.say(verdicts.line_of(earlier))
        frame = analysis.measurements(columns)
        found["points"] = benched.timed_rows(operation, [*chosen.kernels.values()], chosen.title, frame)
        found |= {"profiles": benched.profiles(columns)} if arguments.profile else {}
        found |= {"bits": benched.bits(frame)} if arguments.bits else {}
    output.say(benched.table(found, chosen.title, bool(arguments.tune)))
    if "bits" in found:
        output.say(benched.bits_table(found["bits"]))
    if "profiles" in found:
        output.say(benched.profile_table(columns))
    status = output.end(operation=operation.name, device=chosen.device.name, **found)
    if right:  # after what it says, which no failed write takes away
        write(arguments, columns, map(verdicts.line_of, output.results))
    elif arguments.output or arguments.html:
        print("hpcmm: no kernel is correct, so there are no times to write", file=sys.stderr)
    if found.get("profiles") == []:
        print(f"hpcmm: no profile: {'; '.join(analysis.unprofiled(columns).values())}", file=sys.stderr)
    incomplete = found.get("profiles") == [] or any(each["what"] for each in found.get("sanitizers", ()))
    return verdicts.WRONG if incomplete else 0 if arguments.tune and found["points"] else status


def timed(arguments: argparse.Namespace, chosen: Chosen, right: Sequence[str]) -> store.Groups:
    """Time the kernels with these names beside the library, its tuned call, and the variant to compare with."""
    entry = timed_entry(chosen, right, chosen.shapes) | {"same_bits": arguments.bits}
    tuned = [each.name for dtype in chosen.dtypes if (each := chosen.operation.tuned(chosen.device.name, dtype))]
    names = list(dict.fromkeys([*right, *filter(None, [chosen.against]), *tuned]))
    return trial.measure(config_of(chosen, names, TIMING, {"bench": entry}, arguments.profile), show=progress)


def timed_entry(chosen: Chosen, right: Sequence[str], shapes: Iterable[Sequence[int]]) -> dict[str, Any]:
    """Return the shapes and the scalars of a sweep in which kernels are timed."""
    entry: dict[str, Any] = {"shapes": [list(each) for each in shapes]}
    for variant in filter(None, [*map(chosen.kernels.get, right), chosen.operation.find(chosen.title)]):
        entry |= variant.contract.scalars if variant.contract else {}
    return entry


def at_own_speed(chosen: Chosen, right: Sequence[str], slowest: tuple[int, float]) -> tuple[Chosen, str]:
    """Replace a usual size at which a call of the slowest kernel takes long, or warn of given sizes; say so.

    ``slowest`` is the size and the seconds of a call. Trials at growing sizes make the prediction better.
    """
    largest = max(chosen.shapes, key=math.prod)
    sizes, shape = [largest, *smaller(chosen, largest)], ()

    def seconds(of: Sequence[int]) -> float:
        return slowest[1] * math.prod(of) / slowest[0]

    while seconds(largest) > (LONG_SECONDS if chosen.asked else LONGEST_SECONDS):
        before, shape = shape, next((each for each in sizes if seconds(each) <= LONGEST_SECONDS), sizes[-1])
        if shape == before or math.prod(shape) <= slowest[0]:
            break
        columns = trial.measure(config_of(chosen, right, TRIAL, {"trial": timed_entry(chosen, right, [shape])}))
        slowest = verdicts.slowest_call([chosen.kernels[name] for name in right], columns, LAUNCH_SECONDS) or slowest
    else:
        return chosen, ""
    if chosen.asked:
        long = [each for each in chosen.shapes if seconds(each) > LONG_SECONDS]
        return chosen, "; ".join(f"{named(each)} takes about {rounded_duration(seconds(each))} a call" for each in long)
    because = f"{named(largest)} would take about {rounded_duration(seconds(largest))} a call"
    said = f"timed at {named(shape)}, because {because}; --sizes sets others"
    return dataclasses.replace(chosen, shapes=[shape]), said


def named(shape: Sequence[int]) -> str:
    return "x".join(map(str, dict.fromkeys(shape) if len(set(shape)) == 1 else shape))


def verified(
    chosen: Chosen, first: trial.Visit | None, show: Callable[[dict[str, Any]], None]
) -> tuple[list[dict[str, Any]], tuple[int, float]]:
    """Verify all kernels together, show each verdict when it is known; return the verdicts, and the slowest call.

    A kernel that ends its process also ends the points of other kernels. These are verified again without it. The
    ``first`` process was started before.
    """
    waiting = chosen.kernels
    found: dict[str, dict[str, Any]] = {}
    calls = [(1, 0.0)]
    while waiting:
        sweeps = verifying_sweeps(dataclasses.replace(chosen, kernels=waiting))
        columns = trial.measure(config_of(chosen, waiting, VERIFYING, sweeps), alone=False, first=first)
        first = None
        calls += filter(None, [verdicts.slowest_call(waiting.values(), columns, LAUNCH_SECONDS)])
        lost = {name: each for name, each in waiting.items() if verdicts.lost_to_others(each.name, columns)}
        if len(lost) == len(waiting):  # none of them is the cause
            lost = {}
        for name, variant in waiting.items():
            if name not in lost:
                found[name] = verdicts.verdict_of(chosen.operation, variant.name, columns)
                found[name]["contract"] = contract_of(variant)
                if found[name]["passed"]:
                    found[name] |= searched(chosen, variant, found[name]["points"])
                else:
                    found[name]["where"] += hint(chosen, variant, found[name]["where"])
                show(found[name])
        waiting = lost
    return [found[name] for name in chosen.kernels], max(calls, key=lambda each: each[1] / each[0])


def contract_of(variant: Variant) -> str:
    """Return what a kernel was verified as: its contract, and the arithmetic that its head names."""
    return ", ".join(filter(None, dict.fromkeys([str(variant.contract or ""), *variant.arithmetic.values()])))


def progress(line: str) -> None:
    if line.startswith(("[", "hpcmm: waiting ")):
        print(line.replace("bench/", ""), file=sys.stderr, flush=True)


def write(arguments: argparse.Namespace, columns: store.Groups, lines: Iterable[str]) -> None:
    """Write the requested files; the page begins with the lines of the verdicts."""
    from hpcmm import report

    if arguments.output:
        store.write_groups(arguments.output, columns)
    if arguments.html:
        with tempfile.TemporaryDirectory(prefix="hpcmm-bench-") as name:
            timings = Path(name, "timings.h5")
            store.write_groups(timings, columns)
            page, _ = report.build(timings, timings.with_name("page"), notes=[*lines])
            with store.replacing(arguments.html) as temporary:
                shutil.copyfile(page, temporary)


def on_host(arguments: argparse.Namespace, chosen: Chosen) -> int:
    output = Output(arguments, " (on the host, not timed)")
    output.add_failed(chosen.broken)
    for name, why in chosen.refused.items():
        output.say(f"{name}: not tried: {why}")
    for variant in chosen.kernels.values():
        if not is_cuda(variant):
            arguments.wrong(f"--on-host: {variant.name} is not a CUDA source")
        try:
            found = verify(tasks_on_host(chosen, variant), files.cache())
            result = verdicts.result(variant.name, found.where, found.runs, found.largest, found.error_over_bound)
            output.add(result | {"contract": contract_of(variant), "note": found.note})
        except DeviceError as error:
            output.add_failed({variant.name: str(error)})
    right = [each["kernel"] for each in output.results if each["passed"]]
    bits = {"bits": bits_on_host(chosen, right)} if arguments.bits else {}
    if arguments.bits and not arguments.json:
        from hpcmm.report import bench as benched  # with pandas, which takes a while to import

        print(benched.bits_table(bits["bits"]))
    status = output.end(operation=chosen.operation.name, device="host", **bits)
    return 0 if arguments.tune and right else status


def watch(arguments: argparse.Namespace) -> int:
    """Run the command again each time a file, or a header that it includes, changes."""
    again = [each for each in sys.argv[1:] if not (len(each) > 2 and "--watch".startswith(each))]
    last: Any = None
    try:
        while True:
            times = [changed(file) for file in map(Path, arguments.files)]
            if last is None or (times != last and all(times)):  # an editor may remove a file before it writes it
                last = times
                subprocess.run([sys.executable, "-m", "hpcmm", *again])
                print(f"waiting for a change of {', '.join(arguments.files)}; end with Ctrl-C", file=sys.stderr)
            time.sleep(SECONDS_BETWEEN_LOOKS)
    except KeyboardInterrupt:
        return INTERRUPTED


def changed(path: Path) -> list[int]:
    """Return when a file and its headers last changed; empty if one of them is missing."""
    try:
        return [each.stat().st_mtime_ns for each in (path, *kernels.headers(path))]
    except OSError:
        return []
