"""The search for the head of a file whose host code launches kernels in order, each on the results before it.

The host code runs for sizes (``host_runs``). Its names on which grids and arguments depend stand for sizes of the
problem; trials decide for which.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hpcmm import kernels
from hpcmm.backends.emulated.launch import ORDERS, compile_library
from hpcmm.bench.adoption import trials
from hpcmm.bench.adoption.signatures import element_of, hint, kinds
from hpcmm.bench.adoption.vectors import EXTREMES
from hpcmm.experiment import hosted, own_kernels
from hpcmm.experiment.functions import Function, Source
from hpcmm.experiment.host_runs import HostRun, Step, Unclear
from hpcmm.experiment.hosted import Chain
from hpcmm.experiment.parsed import TILE
from hpcmm.model import HpcmmError, Operation, Task
from hpcmm.model.devices import DEVICES
from hpcmm.operations import OPERATIONS, guards
from hpcmm.system import files

GPU = next(each for each in DEVICES.values() if each.accelerator)
BLOCKS = 512  # of a launch whose number is unknown
COUNT = str(BLOCKS)
WHOLE, OBLONG = 1024, (64, 128, 192)  # of trials that decide the arguments
SQUARE, RAGGED = (37, 37, 37), (33, 21, 961)  # of trials that decide the multiples
MULTIPLES = (8, 16, 32, 64, 128, 256, 512, 1024)
LONGER = (2**14, 2**16, 2**18)  # lengths at which a last pass may be too short
MOST_OWN = 2**22  # length of the file's vectors at which it is judged
PROBES = (1000, 3001)  # values of a name that may be a size
MOST_LAUNCHES = 64  # of a run at the lengths of trials


@dataclass(frozen=True)
class Host:
    """A function of the host code, the names that its launches depend on, and what its result depends on."""

    name: str
    sizes: tuple[str, ...]  # of the problem
    counts: tuple[str, ...]  # numbers of blocks that are unknown
    given: Mapping[str, int]  # the values that the code gives to sizes
    chain: Chain
    kernels: tuple[str, ...]


def hosts_of(source: Source, least: int = 2) -> list[Host]:
    """Return the functions of the host with ``least`` launches, on results of launches; most kernels first."""
    found = []
    for name, function in source.functions.items():
        if not function.kernel and hosted.launched_by(source, name):
            try:
                found.append(host_of(source, name))
            except HpcmmError:
                continue
    several = [x for x in found if sum(step.kind == "launch" for step in x.chain.steps) >= least]
    return sorted(several, key=lambda x: (-len(x.kernels), x.name == "main"))


def host_of(source: Source, name: str) -> Host:
    """Return what is to be known of a function of the host; raise Unclear if its launches depend on the unknown."""
    given, base = {}, None
    while base is None or base.keys() != given.keys():  # a run ends at what is unknown
        base = dict.fromkeys(given, PROBES[0])
        run = HostRun(source, base)
        with contextlib.suppress(Unclear):
            run.of(name)
        given = {x: y for x, y in run.used.items() if may_be_size(x, y)}
    before, sizes, counts = launches_of(source, name, base), [], []
    if not before:
        raise Unclear("no launch")
    for each in given:
        with contextlib.suppress(Unclear):
            after = launches_of(source, name, base | {each: PROBES[1]})
            if after == before and given[each] is None:  # no influence at these sizes
                counts.append(each)
            if not after or after == before or after[0].block != before[0].block:  # the last: a tile
                continue
            passed = arguments(before[0]) != arguments(after[0])
            parameters = {x.name for x in source.functions[name].parameters}
            of_device = given[each] is None and each not in parameters and not passed
            (counts if of_device and before[0].grid != after[0].grid else sizes).append(each)
    if not 1 <= len(sizes) <= 3:
        raise Unclear(f"{len(sizes)} sizes")
    whole = HostRun(source, dict.fromkeys(sizes, LONGER[-1]) | dict.fromkeys(counts, BLOCKS)).of(name)
    found = hosted.chain_of(source, whole)
    if len(found.steps) > MOST_LAUNCHES or not 1 <= len(found.inputs) <= 2:
        raise Unclear("no reduction, and no product")
    known = {x: given[x] for x in sizes if isinstance(given[x], int)}
    return Host(name, tuple(sizes), tuple(counts), known, found, found.names(source))


def may_be_size(name: str, value: Any) -> bool:
    """Return whether a name may stand for a size: no switch, and no constant of a tile."""
    return value is None or (isinstance(value, int) and value > 1 and not TILE.search(name.upper()))


def launches_of(source: Source, name: str, sizes: Mapping[str, int]) -> list[Step]:
    return [x for x in HostRun(source, sizes).of(name).steps if x.kind == "launch"]


def arguments(step: Step) -> list[Any]:
    return [x for x in step.values if isinstance(x, int | float)]


def head_of(found: Host, operation: Operation, dtype: str, way: Mapping[str, str]) -> dict[str, Any]:
    values = [*way.items(), *((x, BLOCKS) for x in found.counts)]
    head = {"operation": operation.name, "dtypes": [dtype]}
    head["host"] = f"{found.name}({', '.join(f'{name}={value}' for name, value in values)})"
    if operation.kernels == "matmul":
        head["scalars"] = "none"
        head |= {"square": True} if len({*way.values()}) == 1 else {}
    overwritten = [x for x, role in zip(found.chain.inputs, "xy", strict=False) if x in found.chain.written]
    if overwritten and operation.kernels != "matmul":
        head["overwrites"] = "xy"[found.chain.inputs.index(overwritten[0])]
    return head


class Trial:
    """Runs of a file with a head on the host."""

    def __init__(self, path: Path, head: Mapping[str, Any], write: Callable[..., None]):
        with tempfile.TemporaryDirectory(prefix="hpcmm-") as folder:
            copy = Path(folder, f"{path.stem}.cu")
            write(copy, head)
            self.kernel = own_kernels.read(copy)
        self.operation = OPERATIONS[head["operation"]]
        task = self.task((WHOLE,) * len(self.operation.dimensions))
        options = [f"-D{name}={value}" for name, value in task.macros.items()]
        placeholders = {x.name: np.zeros(()) for x in self.operation.operands}
        arrays = {name: np.zeros(()) for name in task.workspace} | placeholders
        for name in {launch.function or self.operation.kernels for launch in task.geometry.launches(task, arrays)}:
            # here, because a trial shows no errors of the compiler
            compile_library(kernels.source(self.operation, task.variant), name, options, files.cache())

    def task(self, shape: Sequence[int]) -> Task:
        variant = self.kernel.variant
        scalars = {**self.operation.scalars, **(variant.contract.scalars if variant.contract else {})}
        return Task(self.operation, variant, tuple(shape), variant.dtypes[0], scalars)

    def right(self, shape: Sequence[int]) -> bool:
        """Return whether a run of a shape gives a right result."""
        from hpcmm.bench import on_host  # whose hints need trials

        task = self.task(shape)
        inputs = guards.drawn(task, np.random.default_rng(0))
        judge = self.operation.reference(task, inputs)

        def inside() -> bool:
            kernel = on_host.compiled(task, files.cache())
            return bool(judge(on_host.run(kernel, task, inputs, ORDERS[0])[0]).passed)

        return trials.guarded(inside, trials.SECONDS) is True

    def contract(self, square: bool, stated: int) -> dict[str, Any] | None:
        """Return the keys that say what sizes the launches take, such as ``stated`` only; None if none are right."""
        count = len(self.operation.dimensions)
        if not self.right((WHOLE,) * count if square or count == 1 else OBLONG):
            fits = count == 1 and 0 < stated <= LONGER[-1] and self.right((stated,))
            return {"least": {"n": stated}, "most": {"n": stated}} if fits else None
        for multiple in (1, *MULTIPLES):
            shape = SQUARE if square else RAGGED[3 - count :]
            if self.right([(-(-size // multiple) | 1) * multiple for size in shape]):  # of no larger one, such as 2^i
                break
        found = {"multiples": dict.fromkeys(self.operation.dimensions, multiple)} if multiple > 1 else {}
        fits = [n for n in LONGER if count == 1 and self.right((n,))]
        if count == 1 and len(fits) < len(LONGER):
            longest = max(fits, default=WHOLE)
            found |= {"least": {"n": stated}} if longest < stated <= MOST_OWN else {"most": {"n": longest}}
        return found | ({"square": True} if square else {})


def adopted(source: Source, found: Host, path: Path, write: Callable[..., None]) -> tuple[dict[str, Any], bool]:
    """Return the head of a host function, and whether a trial is right; raise HpcmmError if the head is unsure."""
    functions = [source.functions[name] for name in found.kernels]
    types = {element_of(source, function) for function in functions} - {""}
    if len(types) > 1 or None in types:
        raise Unclear("arrays of several types")
    dtype, start = next(iter(types), "float32"), trials.seconds_used()
    texts = " ".join(source.text(name).lower() for name in found.kernels)
    guess: dict[str, Any] = {}
    whole = [(x, way) for x in operations(found, functions, texts) for way in ways(found, x.kernels == "matmul")]
    for operation, way in whole:
        if dtype not in operation.dtypes:
            continue
        if trials.seconds_used() - start > trials.MOST_SECONDS:
            break
        head = head_of(found, operation, dtype, way)
        contract = Trial(path, head, write).contract("square" in head, max(found.given.values(), default=0))
        if contract is not None and not (COUNT in way.values() and "most" in contract):
            return head | contract, True
        guess = guess or head
    reduces = not found.counts and all("reduction" in kinds(source, x, GPU) for x in functions)
    # of several kernels: variants, which overwrite the input one after the other
    variants = found.kernels[1:] and {*found.chain.inputs} & found.chain.written
    if guess and reduces and not variants and found.chain.steps[-1].grid == (1,):
        return guess, False
    raise Unclear("no trial is right")


def operations(found: Host, functions: Sequence[Function], texts: str) -> list[Operation]:
    """Return the operations that launches may compute, the most plausible first."""
    if len(found.chain.inputs) == 2:
        names = ["vector_add", "matmul"][:: -1 if any(function.multiplies for function in functions) else 1]
        return [OPERATIONS[name] for name in names]
    names = sorted(("sum", *EXTREMES), key=lambda name: not re.search(EXTREMES.get(name, "sum|add"), texts))
    return [OPERATIONS[name] for name in (*names, "copy")]


def ways(found: Host, product: bool) -> Iterator[dict[str, str]]:
    """Yield which dimension each size of the host code may be, the most plausible first.

    Of vectors, all but one may be numbers of blocks or of turns, which products with the length would overflow.
    """
    hints, count = [hint(name) for name in found.sizes], len(found.sizes)
    counts = [tuple("n" if i == one else COUNT for i in range(count)) for one in range(count)]
    orders = dict.fromkeys([*(itertools.permutations("mnk", count) if product else counts), ("n",) * count])
    if product:
        orders = sorted(orders, key=lambda way: sum(bool(a) and a != b for a, b in zip(hints, way, strict=True)))
    return (dict(zip(found.sizes, way, strict=True)) for way in orders)
