"""Kernels that a function of the host code launches, in its order and in its loops, for any size of the problem.

The key ``host`` of a head names the function, with a size of the problem for each name that its launches depend on:
``total(n=n)``. ``host_runs`` runs it. What the result depends on is launched again; arrays that something writes before
they are read are the workspace, the others are the inputs.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hpcmm.experiment.functions import Source, parsed
from hpcmm.experiment.host_code import TYPES
from hpcmm.experiment.host_runs import HostRun, Pointer, Step, Unclear
from hpcmm.experiment.syntax import Parameter
from hpcmm.experiment.writes import elements
from hpcmm.model import Geometry, Operation, Task
from hpcmm.model.launch import Launch, Workspace
from hpcmm.operations.heads import number, sizes_of
from hpcmm.operations.reduction import identity
from hpcmm.system.text import split

PREFIXES = re.compile(r"^(d|dev|g|h|device|mat|matrix)_?(?=[a-z])|_?(d|dev|mat)$")  # of the names of arrays
ATOMIC = re.compile(r"\batomic\w+\s*\(\s*&?\s*(\w+)")
THREADS = 256  # of a block that fills or copies an array


@dataclass(frozen=True)
class Chain:
    """The steps that a result depends on, the arrays that they read and write, and where the result is."""

    steps: tuple[Step, ...]
    inputs: tuple[str, ...]
    result: Pointer
    arrays: Mapping[str, int | None]  # that the steps use, with their bytes
    written: frozenset[str]

    def names(self, source: Source) -> tuple[str, ...]:
        """Return the kernels, in the order of their first launches."""
        return tuple(dict.fromkeys(source.launches[x.site].function for x in self.steps if x.kind == "launch"))


def chain_of(source: Source, run: HostRun) -> Chain:
    """Return the steps that the result of a run depends on; raise Unclear without launches or a result."""
    about = [[*accesses(source, x)] for x in run.steps]
    launched = [i for i, x in enumerate(run.steps) if x.kind == "launch"]
    last = launched[-1] if launched else 0
    made = {x.array for each in about for x, _, writes in each if writes}
    fetched = [x.values[0] for x in run.steps[last:] if x.kind == "fetch" and x.values[0].array in made]
    # a parameter of the host's function first
    written_last = [x for x, _, writes in about[last] if writes and launched] if about else []
    results = fetched[:1] or sorted(written_last[::-1], key=lambda x: run.arrays[x.array] is not None)
    if not results:
        raise Unclear("no result")
    result = results[0]
    wanted, needed = {result.array}, []
    for i in reversed(range(len(run.steps))):
        read, written = ({x.array for x, *how in about[i] if how[k]} for k in (0, 1))
        if wanted & written:
            needed.insert(0, i)
            wanted = (wanted - written) | read
    inputs: dict[str, None] = {}
    written = set()
    for i in needed:
        from_host = run.steps[i].kind == "load" and run.steps[i].values[2] is None  # an array
        inputs |= dict.fromkeys(x.array for x, reads, _ in about[i] if reads and x.array not in written)
        written |= {x.array for x, _, writes in about[i] if writes and not from_host}
    inputs |= dict.fromkeys({result.array} - written)  # without a launch
    used = dict.fromkeys(x.array for i in needed for x, *_ in about[i])
    steps = (run.steps[i] for i in needed if run.steps[i].kind != "load" or run.steps[i].values[2])
    arrays = {x: run.arrays[x] for x in (*used, result.array)}
    return Chain(tuple(steps), tuple(inputs), result, arrays, frozenset(written))


def accesses(source: Source, step: Step) -> Iterator[tuple[Pointer, bool, bool]]:
    """Yield the arrays of a step, each with whether the step reads it and whether the step writes it."""
    if step.kind != "launch":
        for i, each in enumerate(step.values[: 1 + (step.kind == "copy")]):
            yield each, step.kind == "fetch" or i > 0, step.kind != "fetch" and not i
        return
    function = source.functions[source.launches[step.site].function]
    for parameter, value in zip(function.parameters, step.values, strict=False):
        if parameter.pointers:
            if not isinstance(value, Pointer):
                raise Unclear(f"{parameter.name} of {function.name}")
            writes = parameter.name in function.written
            yield value, not writes or parameter.name in read_by(source, function.name), writes


@functools.lru_cache(256)
def read_by(source: Source, name: str) -> frozenset[str]:
    """Return the pointers through which a kernel reads; atomic functions read what they write."""
    return frozenset({each for each, _ in elements(source, name)[0]} | {*ATOMIC.findall(source.text(name))})


def parts_of(host: str) -> tuple[str, dict[str, str]]:
    """Return the function of the key ``host``, and an expression for each name.

    >>> parts_of("total(n=n, blocks=512)")
    ('total', {'n': 'n', 'blocks': '512'})
    """
    found = re.fullmatch(r"\s*(\w+)\s*\((.*)\)\s*", host, re.DOTALL)
    pairs = [each.partition("=") for each in split(found[2])] if found else []
    if not found or not all(re.fullmatch(r"\s*\w+\s*", name) and value for name, _, value in pairs):
        raise ValueError(host)
    return found[1], {name.strip(): value.strip() for name, _, value in pairs}


def scalars_of(operation: Operation) -> list[str]:
    """Return what the names of the key ``host`` may stand for beside sizes."""
    return [*operation.scalars, *["identity"] * (operation.kernels == "reduction")]


def values_of(task: Task, host: str, columns: bool) -> dict[str, int | float]:
    """Return the values that the key ``host`` gives to names."""
    known: dict[str, Any] = {**task.scalars, **sizes_of(task)}
    if task.operation.kernels == "reduction":
        known["identity"] = identity(task.operation.combination, task.dtype).item()
    if columns:
        known |= {"m": known["n"], "n": known["m"]}
    return {x: known[y] if y in known else number(y, known) for x, y in parts_of(host)[1].items()}


@functools.lru_cache(256)
def followed(text: str, function: str, values: tuple[tuple[str, int | float], ...], itemsize: int) -> Chain:
    return chain_of(parsed(text), HostRun(parsed(text), dict(values), itemsize).of(function))


def launched_by(source: Source, function: str) -> dict[int, tuple[str, str]]:
    """Return, by the number of a launch that a function may reach, its kernel and its template arguments."""
    ranges = [(source.nodes[x].start_byte, source.nodes[x].end_byte) for x in source.reached(function)]
    sites = {i: site for i, site in enumerate(source.launches) if site.scope in ranges}
    return {i: (x.function, template(source, x)) for i, x in sites.items() if x.function in source.functions}


def template(source: Source, site: Any) -> str:
    """Return the template arguments of a launch, with the values that the host code gives to their names."""
    types = {x for each in source.functions.values() for x in each.types}
    values = []
    for text in site.template:
        defined = site.definitions.get(text, text)
        value = HostRun(source, {}).text(defined, {})
        values.append("hpcmm_real" if text in types else text if value is None else str(value))
    return f"<{', '.join(values)}>" if values else ""


def outside(source: Source, kernel: str, host: str) -> list[Parameter]:
    """Return the constants of the file that a kernel uses and that stand for sizes: they become its parameters."""
    return [x for x in source.used(kernel) if x.name in parts_of(host)[1]]


def calls_of(source: Source, host: str) -> dict[str, str]:
    """Return the call of each launch that the host's function may reach, by the name of its wrapper."""
    sites = launched_by(source, parts_of(host)[0])
    found = {}
    for i, (kernel, given) in sites.items():
        names = [x.name for x in (*outside(source, kernel, host), *source.functions[kernel].parameters)]
        found[site_name(i, [*sites])] = f"{kernel}{given}({', '.join(f'{x}={x}' for x in names)})"
    return found


def site_name(i: int, sites: Sequence[int]) -> str:
    """Return the function of a launch; that of the last one is named as the operation's kernels."""
    return "" if i == max(sites) else f"hpcmm_launch_{i}"


@dataclass(frozen=True)
class Hosted(Geometry):
    """The launches of a function of the host code."""

    text: str = field(repr=False)  # of the file
    host: str
    constants: Mapping[str, int] = field(default_factory=dict, hash=False)
    columns: bool = False  # whether matrices are by columns, which are C' = B' A' by rows

    def macros(self, task: Task) -> dict[str, int]:
        return dict(self.constants)

    def chain(self, task: Task) -> Chain:
        values = values_of(task, self.host, self.columns)
        return followed(self.text, parts_of(self.host)[0], tuple(values.items()), task.element.itemsize)

    def check(self, operation: Operation) -> None:
        """Raise ValueError if the function launches no kernel, or Unclear if a launch depends on an unknown value."""
        function, names = parts_of(self.host)
        if function not in parsed(self.text).nodes or not launched_by(parsed(self.text), function):
            raise ValueError(f"no function {function} with launches")
        for value in names.values():
            number(value, dict.fromkeys((*operation.dimensions, *scalars_of(operation)), 100))

    def roles(self, task: Task) -> dict[str, str]:
        """Return the operand that each array of the host code is; the others are the workspace."""
        found = self.chain(task)
        operands = [x.name for x in task.operation.operands if x.role == "in"]
        inputs = [x for x in found.inputs if x != found.result.array or len(found.inputs) == len(operands)]
        if ([PREFIXES.sub("", x.lower())[:1] for x in inputs] == ["b", "a"]) != self.columns:
            inputs.reverse()
        roles = dict(zip(inputs, operands, strict=True))
        size, result = found.arrays[found.result.array], found.result
        alone = size == task.element.itemsize
        if size is None:  # a parameter of the host's function
            users = [
                x for x in found.steps if any(isinstance(y, Pointer) and y.array == result.array for y in x.values)
            ]
            alone = users == [*found.steps[-1:]]
        if task.operation.kernels != "reduction" or (alone and not result.offset):
            roles.setdefault(result.array, task.operation.output.name)
        return roles

    def workspace(self, task: Task) -> dict[str, Workspace]:
        source, found, roles = parsed(self.text), self.chain(task), self.roles(task)
        kinds: dict[str, str] = {}
        threads: dict[str, int] = {}
        for step in (x for x in found.steps if x.kind == "launch"):
            function = source.functions[source.launches[step.site].function]
            for parameter, value in zip(function.parameters, step.values, strict=False):
                if isinstance(value, Pointer):
                    kinds.setdefault(value.array, dtype_of(parameter, task))
                    count = math.prod((*step.grid, *step.block))
                    threads[value.array] = max(count, threads.get(value.array, 1))
        sizes = {x: (found.arrays[x], kinds[x]) for x in found.arrays if x not in roles and x in kinds}
        return {
            f"own_{x}": Workspace((max(1, threads[x] if size is None else size // np.dtype(kind).itemsize),), kind)
            for x, (size, kind) in sizes.items()
        }

    def launches(self, task: Task, arrays: Mapping[str, Any]) -> list[Launch]:
        source, found, roles = parsed(self.text), self.chain(task), self.roles(task)
        sites = [*launched_by(source, parts_of(self.host)[0])]
        values = values_of(task, self.host, self.columns)

        def at(place: Pointer) -> Any:
            array = arrays[roles.get(place.array, f"own_{place.array}")]
            return array[place.offset :] if place.offset else array

        listed = []
        for step in found.steps:
            if step.kind == "launch":
                kernel = source.launches[step.site].function
                further = outside(source, kernel, self.host)
                pairs = [*((x, values[x.name]) for x in further)]
                pairs += zip(source.functions[kernel].parameters, step.values, strict=False)
                given = tuple(at(x) if isinstance(x, Pointer) else scalar(parameter, x, task) for parameter, x in pairs)
                name = site_name(step.site, sites)
                listed.append(Launch(step.grid, step.block, given, step.shared_bytes, name))
            elif step.kind == "load":
                neutral = task.operation.arguments(task, arrays)[-1]
                value = neutral if step.values[1] is None else neutral.dtype.type(step.values[1])
                listed.append(Launch((1,), (1,), (at(step.values[0]), value), 0, "hpcmm_set"))
            else:
                target, given, size = step.values
                one = (at(given),) if step.kind == "copy" else (np.uint8(given & 255),)
                blocks = (-(-size // THREADS),)
                listed.append(Launch(blocks, (THREADS,), (at(target), *one, np.uint64(size)), 0, f"hpcmm_{step.kind}"))
        if task.operation.kernels == "reduction" and roles.get(found.result.array) != "result":
            listed.append(Launch((1,), (1,), (arrays["result"], at(found.result)), 0, "hpcmm_result"))
        return listed


def dtype_of(parameter: Parameter, task: Task) -> str:
    if parameter.type == "ACCUMULATOR":
        return task.element.sums.storage.name
    found = TYPES.get(parameter.type)
    return found if found in np.sctypeDict else task.element.storage.name


def scalar(parameter: Parameter, value: Any, task: Task) -> np.generic:
    if value is None:
        raise Unclear(parameter.name)
    return np.dtype(dtype_of(parameter, task)).type(value)
