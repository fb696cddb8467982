"""The search for the head of a file whose host code launches several kernels in order, each on the results before it.

The arguments of the launches are names of the host code: arrays that nothing writes before are the inputs, the last one
that is written is the result, and those between are the workspace. Trials decide which size each integer is.
"""

from __future__ import annotations

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
from hpcmm.bench.adoption import launches, trials
from hpcmm.bench.adoption.search import PREFIXES
from hpcmm.bench.adoption.signatures import WORDS_OF_INTEGERS, element_of, hint, kinds, result_of
from hpcmm.bench.adoption.vectors import EXTREMES
from hpcmm.experiment import calls, own_kernels
from hpcmm.experiment.functions import TILE, Function, Source
from hpcmm.experiment.host_code import LaunchSite
from hpcmm.experiment.writes import elements
from hpcmm.model import Operation, Task
from hpcmm.model.devices import DEVICES
from hpcmm.model.dtypes import DTYPES
from hpcmm.operations import OPERATIONS, guards
from hpcmm.operations.listed import name_of
from hpcmm.system import files

# The text before the size of an array in the host code: in bytes, and in elements
BYTES, ELEMENTS = r"Malloc\w*\s*\(\s*(?:\([^()]*\)\s*)?&\s*{name}\s*,", r"device_vector<[^;]*?>\s+{name}\s*\("
NO_NAME = re.compile(r"\([\w\s]*\*+\s*\)|\w+_cast\s*(<[^>]*>)?|\bthrust\b")  # around the name of an array
WORDS = {"ceil", "ceilf", "sizeof", "float", "double", "int", "unsigned", "half", "size_t", "true", "false"}
CASTS = re.compile(r"\((unsigned|int|size_t|float|double)\)|(?<=\d)[uUlLfF]+\b|\bsizeof\s*\(\w+\)")
UNKNOWN = re.compile(r"\b(?!ceil|sizeof)[A-Za-z_]\w*\s*\(|\w(\.|->)(?![xyz]\b)[A-Za-z]")  # a call, or a field
FRACTION = re.compile(r"(?<=\d)\.0*f?\b")
GPU = next(each for each in DEVICES.values() if each.accelerator)
MOST_LAUNCHES, BLOCKS = 8, "512"  # of a chain, and of a launch whose number is unknown
SECONDS, MOST_SECONDS = 20, 60  # limits of a trial, and of all
WHOLE, OBLONG = 1024, (64, 128, 192)  # of trials that decide the arguments
SQUARE, RAGGED = (37, 37, 37), (33, 21, 961)  # of trials that decide the multiples
MULTIPLES = (8, 16, 32, 64, 128, 256, 512, 1024)
LONGER = (2**14, 2**16, 2**18)  # lengths at which a last pass may be too short
MOST_OWN = 2**22  # length of the file's vectors at which it is judged


@dataclass(frozen=True)
class Chain:
    """Launches in order, the arrays of the host code that they get, and the function of the host."""

    sites: tuple[LaunchSite, ...]
    inputs: tuple[str, ...]
    workspace: tuple[str, ...]
    result: str
    host: str
    in_place: bool  # whether the result is in the workspace

    @property
    def names(self) -> tuple[str, ...]:
        """The kernels; the last one gives the result."""
        return tuple(dict.fromkeys(site.function for site in self.sites))


def array_of(text: str) -> str:
    """Return the array that an argument of a launch names; empty if it is a part of one."""
    plain = NO_NAME.sub("", text)
    names = re.findall(r"[A-Za-z_]\w*", plain)
    return names[0] if names and not re.search(r"[-+*]", plain.replace("->", "")) else ""


def chain_of(source: Source) -> Chain | None:
    """Return the longest chain of launches of a function of the host; None without one."""
    scopes: dict[tuple[int, int], list[LaunchSite]] = {}
    for site in source.launches:
        function = source.functions.get(site.function)
        if function and function.kernel and len(function.parameters) == len(site.arguments):
            scopes.setdefault(site.scope, []).append(site)
    found = (chain(source, sites[: i + 1]) for sites in scopes.values() for i in reversed(range(1, len(sites))))
    return max(filter(None, found), key=lambda x: len(x.sites), default=None)


def chain(source: Source, sites: Sequence[LaunchSite]) -> Chain | None:
    """Return what the last launch depends on; None if that is no other launch."""
    read, written = zip(*(accesses(source, site) for site in sites), strict=True)
    function = source.functions[sites[-1].function]
    names = {x.name: array_of(text) for x, text in zip(function.parameters, sites[-1].arguments, strict=True)}
    result = names.get(result_of(source, function), "")
    needed, wanted = [len(sites) - 1], {*read[-1]}
    for i in reversed(range(len(sites) - 1)):
        if wanted & {*written[i]} and read[i]:  # else it only fills an array
            needed.insert(0, i)
            wanted |= {*read[i]}
    made = dict.fromkeys(name for i in needed for name in written[i])
    inputs = dict.fromkeys(name for i in needed for name in read[i] if name not in made)
    in_place = result in read[-1]
    workspace = tuple(name for name in made if name != result or in_place)
    complete = all((*inputs, *made)) and result and 1 <= len(inputs) <= 2 and workspace
    if not complete or not 2 <= len(needed) <= MOST_LAUNCHES:
        return None
    start, end = sites[-1].scope
    host = source.content[start:end].decode(errors="replace")
    return Chain(tuple(sites[i] for i in needed), tuple(inputs), workspace, result, host, in_place)


def accesses(source: Source, site: LaunchSite) -> tuple[list[str], list[str]]:
    """Return the arrays of the host that a launch reads, and the arrays that it writes."""
    function = source.functions[site.function]
    pairs = list(zip(function.parameters, map(array_of, site.arguments), strict=True))
    own = {name for name, _ in elements(source, function.name)[0]}
    reads = [name for x, name in pairs if x.pointers and (x.name not in function.written or x.name in own)]
    return reads, [name for x, name in pairs if x.name in function.written]


class Unclear(Exception):
    """An argument or a size of a launch that is no expression over sizes."""


@dataclass
class Sizes:
    """The values of names of the host code, and the names that stand for sizes of the problem."""

    known: Mapping[str, str]
    roots: dict[str, str]  # ... with the dimension of each

    def expression(self, text: str) -> str | int:
        """Return an expression of the host code over the dimensions; raise Unclear if it is none."""
        if (number := launches.evaluate(text, {**self.known, **dict.fromkeys(self.roots, "?")})) is not None:
            return number
        names = {*self.roots, "ceil"}
        inner = launches.expanded(plain(text, self.known), self.known, names)
        if inner is None:
            raise Unclear(text)
        return re.sub(r"[A-Za-z_]\w*", lambda x: self.roots.get(x[0], x[0]), inner.strip())


def plain(text: str, known: Mapping[str, str]) -> str:
    """Return an expression without casts and fractions, and with the sizes of a ``dim3``."""
    text = re.sub(r"\b\w+_cast\s*<[^<>]*>|\bstd::", "", text).replace("ceilf(", "ceil(")
    return FRACTION.sub("", launches.with_sizes(text, known))


def roots_of(text: str, known: Mapping[str, str], depth: int = 0) -> Iterator[str]:
    """Yield the names of sizes of the problem in an expression: constants of a tile are none."""
    for name in re.findall(r"[A-Za-z_]\w*", plain(text, known)):
        value, number = known.get(name, ""), launches.evaluate(name, known)
        if name in WORDS or (TILE.search(name.upper()) and number is not None):
            continue
        unknown = UNKNOWN.search(value) or not value
        if re.search(r"[A-Za-z_]", CASTS.sub("", value)) and not unknown and depth < 8:
            yield from roots_of(value, known, depth + 1)
        elif number is not None or unknown:
            yield name


def head_of(source: Source, found: Chain, kind: str, way: Mapping[str, str], itemsize: int) -> dict[str, Any]:
    """Return the keys of a head; raise Unclear if the host code does not tell them."""
    inputs = list(found.inputs)
    if kind == "matmul" and [PREFIXES.sub("", name.lower())[:1] for name in inputs] == ["b", "a"]:
        inputs.reverse()
    operands = {"matmul": "ABC", "vector_add": "xyz", "copy": "xy", "reduction": ("x", "result")}[kind]
    arrays = dict(zip([*inputs, found.result], operands, strict=True))
    taken = {*calls.names_of(kind), *source.functions}
    own = {name: name if name not in taken else f"own_{name}" for name in found.workspace}
    arrays |= own
    listed, lengths = [], {}
    for site in found.sites:
        sizes = Sizes(known_at(source, site) | counts_of(source, found), dict(way))
        listed.append(launch_of(source, site, sizes, arrays))
        for name, (pattern, bytes_each) in itertools.product(found.workspace, ((BYTES, itemsize), (ELEMENTS, 1))):
            if place := re.search(pattern.format(name=re.escape(name)), found.host):
                size = sizes.expression(launches.first_argument(found.host[place.end() :]))
                lengths[own[name]] = size if bytes_each == 1 else f"({size}) / {bytes_each}"
        for name in accesses(source, site)[1]:
            threads = [f"({size})" for key in ("grid", "block") for size in listed[-1][key]]
            if name in own and not allocated(found, name):  # in another function: no more than one element a thread
                lengths.setdefault(own[name], " * ".join(threads))
    more = {"scalars": "none"} if kind == "matmul" else {"found_in": own[found.result]} if found.in_place else {}
    return {"launches": listed, "workspace": lengths} | more


def allocated(found: Chain, name: str) -> bool:
    return any(re.search(pattern.format(name=re.escape(name)), found.host) for pattern in (BYTES, ELEMENTS))


def launch_of(source: Source, site: LaunchSite, sizes: Sizes, arrays: Mapping[str, str]) -> dict[str, Any]:
    """Return a launch of a head."""
    function, values = source.functions[site.function], []
    for parameter, text in zip(function.parameters, site.arguments, strict=True):
        if parameter.pointers:
            values.append(f"{parameter.name}={arrays[array_of(text)]}")
        elif WORDS_OF_INTEGERS.match(parameter.type):
            values.append(f"{parameter.name}={sizes.expression(text)}")
        elif re.fullmatch(r"[\d.]+f?", text):
            values.append(f"{parameter.name}={text}")
        else:
            raise Unclear(text)
    template = [launches.evaluate(text, sizes.known) for text in site.template]
    texts = [str(text if value is None else value) for text, value in zip(site.template, template, strict=True)]
    arguments = f"<{', '.join(texts)}>" if texts else ""
    call = f"{function.name}{arguments}({', '.join(values)})"
    grid, block = ([sizes.expression(x) for x in launches.parts(text, sizes.known)] for text in site.configuration[:2])
    shared = sizes.expression(site.configuration[2]) if len(site.configuration) > 2 else 0
    return {"call": call, "grid": grid, "block": block} | ({"shared_bytes": shared} if shared else {})


class Trial:
    """Runs of a file with a head on the host."""

    def __init__(self, path: Path, head: Mapping[str, Any], write: Callable[..., None]):
        with tempfile.TemporaryDirectory(prefix="hpcmm-") as folder:
            copy = Path(folder, f"{path.stem}.cu")
            write(copy, head)
            self.kernel = own_kernels.read(copy)
        self.operation = OPERATIONS[self.kernel.operations[0]]
        count = len(head["launches"]) + ("found_in" in head)
        names = [name_of(i, count) or self.operation.kernels for i in range(count)]
        task = self.task((1,) * len(self.operation.dimensions))
        options = [f"-D{name}={value}" for name, value in task.macros.items()]
        for name in names:  # here, because a trial shows no errors of the compiler
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

        return trials.guarded(inside, SECONDS) is True

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


def adopted(source: Source, found: Chain, path: Path, write: Callable[..., None]) -> tuple[dict[str, Any], bool]:
    """Return the head of a chain, and whether a trial is right; raise Unclear or HpcmmError if the head is unsure."""
    functions = [source.functions[name] for name in found.names]
    types = {element_of(source, function) for function in functions} - {""}
    if len(types) > 1 or None in types:
        raise Unclear("arrays of several types")
    dtype, start = next(iter(types), "float32"), trials.seconds_used()
    texts = " ".join(source.text(name).lower() for name in found.names)
    guess: dict[str, Any] = {}
    for operation, way in itertools.product(operations(found, functions, texts), ways(source, found)):
        kind = operation.kernels
        several = bool({*way.values()} - {"n"})
        if several > (kind == "matmul") or dtype not in operation.dtypes:
            continue
        if trials.seconds_used() - start > MOST_SECONDS:
            break
        square = kind == "matmul" and not several
        head = {"operation": operation.name, "dtypes": [dtype]}
        head |= head_of(source, found, kind, way, DTYPES[dtype].itemsize) | ({"square": True} if square else {})
        sizes = [launches.evaluate(name, known_at(source, found.sites[0])) or 0 for name in way]
        contract = Trial(path, head, write).contract(square, max(sizes))
        if contract is not None:
            return head | contract, True
        guess = guess or head
    if guess and reduces(source, found, functions) and guess["launches"][-1]["grid"] == [1]:
        return guess, False
    raise Unclear("no trial is right")


def reduces(source: Source, found: Chain, functions: Sequence[Function]) -> bool:
    """Return whether a chain must be a reduction: each of its kernels is one, and all its sizes are known."""
    return not counts_of(source, found) and all("reduction" in kinds(source, x, GPU) for x in functions)


def operations(found: Chain, functions: Sequence[Function], texts: str) -> list[Operation]:
    """Return the operations that a chain may compute, the most plausible first."""
    if len(found.inputs) == 2:
        names = ["vector_add", "matmul"][:: -1 if any(function.multiplies for function in functions) else 1]
        return [OPERATIONS[name] for name in names if not found.in_place]
    names = sorted(("sum", *EXTREMES), key=lambda name: not re.search(EXTREMES.get(name, "sum|add"), texts))
    return [OPERATIONS[name] for name in (*names, *["copy"] * (not found.in_place))]


def known_at(source: Source, site: LaunchSite) -> dict[str, str]:
    """Return the values of names at a launch."""
    return source.constants() | dict(site.definitions)


def sizes_passed(source: Source, site: LaunchSite) -> Iterator[tuple[str, str]]:
    """Yield the names of sizes in the integers of a launch, with the parameters that get them."""
    for parameter, text in zip(source.functions[site.function].parameters, site.arguments, strict=True):
        if WORDS_OF_INTEGERS.match(parameter.type) and not parameter.pointers:
            yield from ((name, parameter.name) for name in roots_of(text, known_at(source, site)))


def counts_of(source: Source, found: Chain) -> dict[str, str]:
    """Return the numbers of blocks that the host computes in another way, such as from the number of SMs."""
    first = found.sites[0]
    known, passed = known_at(source, first), {name for name, _ in sizes_passed(source, first)}
    names = [name for name in roots_of(first.configuration[0], known) if name not in passed]
    return {name: BLOCKS for name in names if len(found.inputs) == 1 and launches.evaluate(name, known) is None}


def ways(source: Source, found: Chain) -> list[dict[str, str]]:
    """Return which dimension each size of the host code may be, the most plausible first."""
    roots: dict[str, str] = {}  # ... with a parameter that gets it
    counts = counts_of(source, found)
    for site in found.sites:
        roots |= {name: parameter for name, parameter in sizes_passed(source, site) if name not in roots}
        texts = site.configuration[:2]
        names = (name for text in texts for name in roots_of(text, known_at(source, site) | counts))
        roots |= {name: "" for name in names if name not in roots}
    roots = {name: parameter for name, parameter in roots.items() if name not in counts}
    if len(roots) > 3 or not roots:
        raise Unclear("more than three sizes")
    hints = [hint(name) or hint(parameter) for name, parameter in roots.items()]
    same = ("n",) * len(roots)
    orders = [same] if len(roots) < 2 else [*itertools.permutations("mnk", len(roots)), same]
    orders.sort(key=lambda way: sum(bool(a) and a != b for a, b in zip(hints, way, strict=True)))
    return [dict(zip(roots, way, strict=True)) for way in orders]
