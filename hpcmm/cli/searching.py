"""Searches of ``hpcmm bench`` besides timing: causes of mistakes, races, checks on the host, machine code."""

import contextlib
import dataclasses
import itertools
import math
import re
import sys
from collections.abc import Iterator, Sequence
from concurrent import futures
from typing import Any

from hpcmm import backends, kernels
from hpcmm.backends.cpu import searches
from hpcmm.bench import hints, sanitizing, tools, verdicts
from hpcmm.bench.journal import ENDLESS
from hpcmm.bench.on_host import Found, hint_of, same_bits, verify
from hpcmm.bench.same_bits import columns_of
from hpcmm.cli.selection import SMS_ON_HOST, Chosen, config_of, verifying_sweeps
from hpcmm.jobs import trial
from hpcmm.kernels.modules import compile_module
from hpcmm.model import DeviceError, Task, Variant
from hpcmm.model.devices import DEVICES
from hpcmm.system import files

# The expected time of a point decides when a kernel without an end is given up; it follows from max_seconds.
VERIFYING = {"warmups": 0, "min_repetitions": 1, "max_repetitions": 1, "max_seconds": 2, "cache": "hot", "visits": 1}
MOST_ON_HOST = 2**22  # products of sizes that multiples may lead to


def is_cuda(variant: Variant) -> bool:
    return variant.compiled and DEVICES[variant.device].accelerator


def searched(chosen: Chosen, variant: Variant, points: int) -> dict[str, Any]:
    """Search a kernel that passed for mistakes that results do not show; return what changes in its verdict."""
    if variant.compiled and not chosen.device.accelerator:
        print(f"hpcmm: {variant.name} is right at {points} points; searching for races", file=sys.stderr, flush=True)
    return verdicts.searched(chosen.operation, variant, chosen.dtypes[0])


def hint(chosen: Chosen, variant: Variant, where: str) -> str:
    """Return a hint at a kernel's mistake, after a semicolon; CUDA runs on the host for it, which is safe."""
    if not variant.compiled and chosen.device.accelerator:
        return ""
    task = task_at(chosen, variant, where)
    if not is_cuda(variant):
        if task is None or ENDLESS in where:  # further runs would not end either
            return ""
        found = searches.crash(task).found if trial.SIGNALLED in where else hints.on_cpu(task)
        raced = "" if found or not variant.compiled else searches.races(task).found
        found = found or (raced if raced.startswith("data race") else "")
        return found and f"; {found}"
    if found := hint_of(task, files.cache()) if task else "":
        return found
    with contextlib.suppress(DeviceError):
        hosted = verify(tasks_on_host(chosen, variant, asked=False), files.cache()).where
        return f"; on the host, {hosted}" if " in line " in hosted else ""
    return ""


def task_at(chosen: Chosen, variant: Variant, where: str) -> Task | None:
    """Return the task at the point with which the place of a mistake begins; None without one."""
    place = re.match(r"([\dx]+) (\w*(?:float|int)\w+)(?:, alpha (\S+), beta ([^\s:]+))?", where)
    if not place:
        return None
    given = variant.contract.scalars if variant.contract else {}
    given = {"alpha": float(place[3]), "beta": float(place[4])} if place[3] else given
    scalars, tile = chosen.operation.scalars_of(place[2], given), next(iter(variant.tiles), 0)
    return Task(chosen.operation, variant, tuple(map(int, place[1].split("x"))), place[2], scalars, tile)


def races(chosen: Chosen, judged: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Search the CUDA kernels that passed for races, change the verdicts of those that have one, and yield lines.

    They run under two tools of compute-sanitizer, at two shapes with several blocks, all beside each other. Meanwhile
    they run on the host, which also finds shuffles that lanes leave. There they run one after the other, because the
    state of the emulation belongs to the process.
    """
    program = tools.find(sanitizing.PROGRAM)

    def under_tools(name: str, variant: Variant) -> Sequence[sanitizing.Report]:
        one = dataclasses.replace(chosen, kernels={name: variant})  # others have other tiles
        entry = verifying_sweeps(one)["ragged"]
        shapes = sorted(entry["shapes"], key=math.prod)[-2:]
        config = config_of(one, [name], VERIFYING, {"races": {**entry, "shapes": shapes}})
        return trial.sanitized(config, program, sanitizing.OF_RACES) if program else ()

    def hosted(variant: Variant) -> tuple[Found | None, str]:
        try:
            return verify(tasks_on_host(chosen, variant, asked=False), files.cache()), ""
        except DeviceError as error:
            return None, str(error)

    with futures.ThreadPoolExecutor(backends.this_machine().count["cpu"]) as pool:
        searches = [
            (variant, verdict, pool.submit(under_tools, name, variant))
            for (name, variant), verdict in zip(chosen.kernels.items(), judged, strict=True)
            if verdict["passed"] and is_cuda(variant)
        ]
        for variant, verdict, watched in searches:
            source = kernels.source(chosen.operation, variant).read_text(errors="replace")
            found, unhosted = hosted(variant)
            verdict |= verdicts.raced(watched.result(), found, unhosted, source)
            yield f"{variant.name}: {verdict['races']}" if verdict["passed"] else verdicts.line_of(verdict)


def sanitized(chosen: Chosen) -> list[dict[str, Any]]:
    found = []
    for name, variant in chosen.kernels.items():
        sweeps = verifying_sweeps(dataclasses.replace(chosen, kernels={name: variant}))
        reports = trial.sanitized(config_of(chosen, [name], VERIFYING, sweeps), tools.find(sanitizing.PROGRAM))
        found += [{"kernel": variant.name, **dataclasses.asdict(each)} for each in reports]
    return found


def uncompiled(chosen: Chosen) -> list[dict[str, Any]]:
    """Compile the CPU kernels. Remove those that fail from ``chosen``, and return their verdicts."""
    found = []
    for name, variant in [*chosen.kernels.items()]:
        if variant.compiled and not DEVICES[variant.device].accelerator:
            try:
                for dtype in chosen.dtypes:
                    macros = Task(chosen.operation, variant, (), dtype).macros
                    compile_module(kernels.source(chosen.operation, variant), macros, variant.options)
            except DeviceError as error:
                del chosen.kernels[name]
                found.append(verdicts.result(variant.name, str(error)))
    return found


def bits_on_host(chosen: Chosen, right: Sequence[str]) -> list[dict[str, Any]]:
    """Return what the bits of correct kernels depend on, at the largest of the shapes for the host."""
    found = []
    for variant in (kernel for kernel in chosen.kernels.values() if kernel.name in right):
        largest: dict[tuple[str, int], Task] = {}
        for task in tasks_on_host(chosen, variant):
            key = task.dtype, task.tile
            largest[key] = max(task, largest.get(key, task), key=lambda each: math.prod(each.shape))
        for task in largest.values():
            place = {"kernel": variant.name, "shape": list(task.shape), "dtype": task.dtype, "tile": task.tile}
            found.append(place | columns_of(same_bits(task, files.cache())))
    return found


def tasks_on_host(chosen: Chosen, variant: Variant, asked: bool = True) -> Iterator[Task]:
    """Yield the tasks to run on the host: at ragged shapes, or at those that are ``asked`` for."""
    for entry in verifying_sweeps(dataclasses.replace(chosen, kernels={variant.name: variant})).values():
        for dtype, tile in itertools.product(chosen.dtypes, variant.tiles or (0,)):
            small = [each for each in entry["shapes"] if math.prod(each) <= MOST_ON_HOST]
            for each in (asked and chosen.asked) or small or [min(entry["shapes"], key=math.prod)]:
                scalars = chosen.operation.scalars_of(dtype, entry)
                yield Task(chosen.operation, variant, tuple(each), dtype, scalars, tile, SMS_ON_HOST)
