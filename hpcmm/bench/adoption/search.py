"""The search for the head of a function: what it shares whatever the operation."""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hpcmm.backends.cpu.device import as_argument
from hpcmm.backends.emulated.launch import HostKernel, compile_library, entry_of
from hpcmm.bench.adoption import launches, trials
from hpcmm.bench.adoption.signatures import (
    CONTIGUOUS,
    SLOTS,
    arrays_of,
    element_of,
    hint,
    idle,
    integers_of,
    reals_of,
    result_of,
)
from hpcmm.bench.adoption.trials import compiler_error, guarded
from hpcmm.experiment import calls
from hpcmm.experiment.functions import RETURNED, Function, Source
from hpcmm.experiment.returning import NAMES
from hpcmm.experiment.syntax import Parameter
from hpcmm.kernels import modules
from hpcmm.model import DeviceError, HpcmmError, NotTested
from hpcmm.model.devices import Device
from hpcmm.model.dtypes import DTYPES
from hpcmm.model.launch import Launch
from hpcmm.operations import OPERATIONS
from hpcmm.operations.heads import number
from hpcmm.system import files

MOST_THREADS, WARP = 1024, 32  # of a block
CPLUSPLUS = (".cpp", ".cc", ".cxx", ".C", ".hpp")
OPTIONS_OF_CPLUSPLUS = ["-x", "c++", "-std=gnu++17", "-w", "-Wl,--no-as-needed", "-lstdc++"]
NATIVE = "-march=native"
DECLARED = ["-Werror=implicit-function-declaration"]  # an undeclared function would crash
WIDE = re.compile(r"\b(float|double|int|uint|half|short|u?char|u?long|longlong|__half|__nv_bfloat16)[248]\b")
WRONG = "a wrong result"
FAULT = re.compile(rf"{WRONG}|race in|take part in the shuffle|barrier")  # not of a launch, but of a kernel
ENDLESS = re.compile(rf"empty loop without an end|{trials.LATE}")
Compiled = Callable[[Sequence[Any], Sequence[int], Sequence[int], int], None]


class NotAdopted(HpcmmError):
    """A file whose kernel cannot be run as it is; the message names in one line what its head must state.

    ``tested`` is whether it may be the kernel that is wrong.
    """

    tested = True


class Stopped(NotAdopted):
    """A search that took too long, or met a kernel that does not end."""


class OtherType(NotAdopted):
    """A kernel of an element type that the operation does not have."""

    tested = False


class OtherOperation(NotAdopted):
    """A kernel that computes something else than the operations; a wrong one if its name is that of an operation."""

    def __init__(self, message: str, tested: bool = False):
        super().__init__(message)
        self.tested = tested


class NoKernel(NotAdopted):
    """A file without a kernel of an operation."""

    tested = False


@dataclass(frozen=True)
class Kernel:
    """A function of a file, on its device, with the head that the file states."""

    path: Path
    text: str
    source: Source
    function: Function
    device: Device
    given: Mapping[str, Any]

    @property
    def options(self) -> list[str]:
        """Further options of the compiler."""
        return OPTIONS_OF_CPLUSPLUS if self.path.suffix in CPLUSPLUS and not self.device.accelerator else []


@dataclass(frozen=True)
class Candidate:
    """A launch to try: ``run(arguments, grid, block, shared)`` of a compiled kernel, and the tile of C of a block."""

    run: Compiled
    template: str = ""
    block: tuple[int, ...] = (1,)
    shared: int = 0
    rows: int = 1
    columns: int = 1
    grid: tuple[str, ...] = ()

    @property
    def threads(self) -> int:
        return int(np.prod(self.block))

    def keys(self) -> dict[str, Any]:
        """Return the keys of its block."""
        block = self.block[0] if len(self.block) == 1 and not self.grid else list(self.block)
        return {"block": block} | ({"shared_bytes": self.shared} if self.shared else {})

    def blocks(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the size of the grid for a shape."""
        return tuple(number(each, dict(zip("mnk", shape, strict=True))) for each in self.grid) or (1,)


class Search:
    """The search for the head of one function, as one operation.

    Subclasses have ``named``, which gives the operand of each array; ``called`` and ``launched``, which return the head
    of a compiled function for the CPU and of a kernel if a trial is right; and ``refused``, which returns the head to
    judge it with if none is, or raises ``NotAdopted``. ``kind`` is the name of the operation's kernels.
    """

    def __init__(self, kernel: Kernel, kind: str):
        self.kernel, self.kind, self.function = kernel, kind, kernel.function
        self.path, self.device = kernel.path, kernel.device
        self.options = list(kernel.options)
        # ran: whether a trial of it gave a result, which was wrong
        # why: why the last trial failed
        self.why, self.ran, self.start = "", False, trials.seconds_used()
        # the head to judge the kernel with if no trial is right, and why that one failed
        self.likely: dict[str, Any] | None = None
        self.reason = ""
        self.guessed = False  # whether ``head`` returned that one
        self.any_size = True  # whether the head that was found last is right at sizes that are no multiples
        self.notes: list[str] = []  # what to say of the head beside its keys
        self.added = ""  # host code after the text of the file
        self.arrays, self.integers, self.reals = (
            each(kernel.source, kernel.function) for each in (arrays_of, integers_of, reals_of)
        )
        found = element_of(kernel.source, kernel.function)
        if found is None:
            raise OtherType(
                f"{self.path.name}: arrays of several types in {self.function}; allowed: one type, or float32 or int32 "
                "products of 16-bit or 8-bit matrices"
            )
        self.any_type, self.dtype = not found, found or "float32"
        if kind == "copy" and self.dtype == "int32":
            self.dtype = "float32"  # of the same size: a copy moves bits
        self.element = DTYPES[self.dtype]
        self.operation = next(each for each in OPERATIONS.values() if each.kernels == kind)
        if self.dtype not in self.operation.dtypes:
            raise OtherType(
                f"{self.path.name}: {self.function.name} is for {self.dtype}; {self.operation.name} has "
                f"{', '.join(self.operation.dtypes)}: change its type"
            )
        written = result_of(kernel.source, kernel.function)
        self.operands = self.named([each.name for each in self.arrays if each.name != written], written)

    @property
    def body(self) -> str:
        """The source of the function, with the functions that it calls and the macros that these use."""
        return self.kernel.source.text(self.function.name)

    def head(self) -> dict[str, Any]:
        """Return the keys of the head; raise NotAdopted if no trial gives a right result."""
        try:
            found = self.tried()
        except Stopped:
            if not self.device.accelerator:
                raise
            found = self.refused()
        if self.guessed:
            self.notes = [f"no trial was right{self.last_trial()}"]
        elif multiples := found.get("multiples"):
            several = " x ".join(
                map(str, dict.fromkeys(multiples.values()) if found.get("square") else multiples.values())
            )
            self.notes.append(f"only at multiples of {several}: found by trials, as it has no check for other sizes")
        head = {"operation": self.operation.name} | ({"call": found.pop("call")} if "call" in found else {})
        head |= {} if self.any_type else {"dtypes": [self.dtype]}
        return head | found | ({"options": self.options} if self.options else {})

    def tried(self) -> dict[str, Any]:
        """Return the head of the first launch that is right, most of all for any size, or of the likely one."""
        errors, first = [], None
        about = self.kernel.source, self.function
        templates = launches.templates(*about)
        for template in templates if self.device.accelerator else templates[:1]:
            try:
                run = self.compiled(template)
            except NotTested as error:
                more = "; give call, block and grid in a head" if "needs a GPU" in str(error) else ""
                raise NotTested(f"{error}{more}") from error
            except DeviceError as error:
                errors.append(compiler_error(str(error)))
                continue
            if found := (self.launched if self.device.accelerator else self.called)(run, template):
                first = first or found
                if self.any_size or self.guessed or template not in launches.templates(*about, True)[:-1]:
                    return found if self.any_size else first
        if first:
            return first
        if errors and not self.why:
            raise NotAdopted(f"{self.path.name}: {errors[0]}")
        return self.refused()

    def blocks(self, template: str) -> Iterator[tuple[tuple[int, ...], int]]:
        """Yield blocks to try, with bytes of dynamic shared memory: only those of the file if all of them are wrong."""
        if "block" in self.kernel.given:
            yield launches.block_of_head(self.kernel.given)
            return
        about = self.kernel.source, self.function, template
        stated, wrong, beyond = set(launches.of_sites(*about)), set(), None
        if stated and min(map(math.prod, stated)) > MOST_THREADS:
            threads = " x ".join(map(str, min(stated, key=math.prod)))
            raise NotAdopted(
                f"{self.path.name}: the launch of {self.function.name} has blocks of {threads} threads; allowed: "
                f"{MOST_THREADS} at most"
            )
        for block, shared in launches.blocks(*about, self.element.itemsize):
            if stated and stated == wrong and block not in stated:
                return
            before = self.likely
            yield block, shared
            if self.likely is not before:
                self.reason = self.why
            if block in stated and FAULT.search(self.why):
                wrong.add(block)
            beyond = beyond or (block in stated and re.match("ascending order: write .* out of bounds", self.why))
        if beyond and self.kind == "reduction" and self.function.flat:  # it may write a result for each warp
            yield (WARP,), 0

    def own_grid(
        self, way: Sequence[str], template: str, ours: Sequence[str], multiples: Mapping[str, int] = {}
    ) -> list[str]:
        """Return the grid of the file's launch if it has too few blocks; empty if it has enough, or is unknown.

        Its sizes decide if they are constant, else any sizes that are multiples of the given ones; they must be in it.
        """
        grid, given = self.own_launch(way, template, ours)

        def counts(expressions: Sequence[str], known: Mapping[str, int]) -> list[int]:
            return [number(each, known) for each in expressions] + [1] * (3 - len(expressions))

        order = self.operation.dimensions
        whole = dict.fromkeys(order, 1 << 13)
        step = 977 if len(set(way)) > 1 else 0  # of one size, all are equal
        ragged = [
            {name: -(-(8193 + step * i) // (of := multiples.get(name, 1))) * of for i, name in enumerate(names)}
            for names in (order, order[::-1])
        ]
        try:
            few = any(
                a < b
                for known in ([given] if given else ragged)
                for a, b in zip(counts(grid, known), counts(ours, known), strict=True)
            )
            fewer = [a < b for a, b in zip(counts(grid, whole), counts(ours, whole), strict=True)]
            sized = all(re.search(r"\b[mnk]\b", x) for x, less in zip(grid, fewer, strict=False) if less)
            if not (grid and few) or (any(fewer) and (self.function.strides or not sized)):
                return []
            self.notes.append("the grid is that of its own launch, which has too few blocks")
            return grid
        except ValueError:
            return []

    def own_launch(
        self, way: Sequence[str], template: str, ours: Sequence[str] = ()
    ) -> tuple[list[str], dict[str, int]]:
        """Return the grid of the file's launch, and its constant sizes by dimension."""
        sizes = dict(zip((each.name for each in self.integers), way, strict=True))
        return launches.own_grid(self.kernel.source, self.function, template, sizes, ours)

    # --- the call

    def call(self, integers: Sequence[str], template: str) -> str:
        """Return the call with these sizes."""
        sizes = dict(zip((each.name for each in self.integers), integers, strict=True))
        reals = dict(zip((each.name for each in self.reals), self.scalars(), strict=True))
        rest = idle(self.kernel.source, self.function)
        own = {each.name for each in self.function.parameters} | {RETURNED}
        outside = [each for each in (*self.integers, *self.arrays) if each.name not in own]  # of the file
        parts = []
        for each in (*outside, *self.function.parameters):
            if each.name in rest:
                value = rest[each.name]
            elif fields := self.kernel.source.fields(each.type):
                value = self.structure(each, fields)
            else:
                value = sizes.get(each.name) or reals.get(each.name) or self.operands.get(each.name, "threads")
            parts.append(value if value == each.name and value in own else f"{each.name}={value}")
        return f"{self.function.name}{template}({', '.join(parts)})"

    def structure(self, parameter: Parameter, fields: Sequence[Parameter]) -> str:
        """Return the initializer of a structure that describes a matrix."""
        operand = self.operands[parameter.name]
        rows, columns, leading = {"A": ("m", "k", "lda"), "B": ("k", "n", "ldb"), "C": ("m", "n", "ldc")}[operand]
        values = []
        for each in fields:
            name = each.name.lower()
            if each.pointers:
                values.append(f"({each.type} {'*' * each.pointers}){operand}")
            elif re.search(r"stride|pitch|ld", name):
                values.append(leading)
            else:
                values.append(rows if re.search(r"row|height|^h|^m$", name) else columns)
        whole = f"{parameter.type}{{{', '.join(values)}}}"
        return re.sub(r"\w+", lambda x: launches.TYPE if x[0] in self.function.types else x[0], whole)

    def scalars(self) -> list[str]:
        """Return the operation's name of each real argument."""
        names = [each.name.lower() for each in self.reals]
        found = ["beta" if "beta" in each else "alpha" if "alpha" in each else "" for each in names]
        return [each or ("alpha", "beta")[i] for i, each in enumerate(found)]

    # --- trials

    def compiled(self, template: str, way: Sequence[str] = ()) -> Compiled:
        """Compile the kernel for trials, in which each integer has a slot of its own; with ``way`` these sizes."""
        if self.kind != "matmul":
            way = self.sizes
        elif not way:
            slots = iter(SLOTS)
            way = [CONTIGUOUS if hint(each.name) == CONTIGUOUS else next(slots) for each in self.integers]
        head = {**self.kernel.given, "call": self.call(way, template)}
        adapted = calls.adapted(self.path, self.kernel.text, head, self.kind, self.device.name)
        macros = {"REAL": self.element.c_of(self.device.name), "ACCUMULATOR": self.element.sums.c_of(self.device.name)}
        macros |= self.operation.macros.get(self.device.name, {}) | self.kernel.given.get("constants", {})
        if self.device.accelerator:
            options = [f"-D{name}={value}" for name, value in macros.items()]
            library = compile_library(adapted, self.kind, options, files.cache())
            entry_of(library, self.kind)  # for all children

            def run_on_host(arguments, grid, block, shared):
                # in the child: the shared memory of two libraries is close by
                kernel = HostKernel(library, adapted, self.kind)
                kernel(Launch(tuple(grid), tuple(block), arguments, shared), "ascending", dynamic_bytes=shared)

            return run_on_host
        module = self.module(adapted, macros)

        def run(arguments, grid, block, shared):
            function = getattr(modules.open_module(module, self.path), self.kind)
            function.restype = None
            function(*(as_argument(each) for each in arguments), ctypes.c_int(2))

        return run

    def module(self, source: Path, macros: Mapping[str, Any]) -> Path:
        """Compile a C source; if its instructions need an option, note the option."""
        try:
            return modules.compile_module(source, macros, [*self.options, *DECLARED])
        except DeviceError as error:
            if NATIVE in self.options or not modules.NEEDS_OPTION.search(str(error)):
                raise
        self.options.append(NATIVE)
        return modules.compile_module(source, macros, [*self.options, *DECLARED])

    def attempt(
        self, candidate: Candidate, arguments: Sequence[Any], output: np.ndarray, grid: Sequence[int]
    ) -> np.ndarray | None:
        """Return the output of a trial; None if it fails, with the reason in ``why``."""
        if trials.seconds_used() - self.start > trials.MOST_SECONDS:
            raise Stopped(
                f"{self.path.name}: {self.why or 'no trial succeeded'} (trials stopped after {trials.MOST_SECONDS} s)"
            )

        def inside():
            around = [part for each in arguments if isinstance(each, np.ndarray) for part in trials.around(each)]
            for part in around:
                part[...] = trials.UNUSED
            candidate.run(arguments, grid, candidate.block, candidate.shared)
            within = all((part == trials.UNUSED).all() for part in around)
            return output if within else "it writes outside of its result"

        found = guarded(inside, trials.SECONDS)
        if not isinstance(found, str):
            return found
        self.why = found
        if "cooperative launch" in found:
            raise NotTested(f"needs a GPU: {found}; give call, block, per_sm and cooperative: true in a head")
        if ENDLESS.search(found):  # whatever its launch and its arguments are
            raise Stopped(f"{self.path.name}: {self.function.name}, in a trial with small arrays: {found}")
        return None

    def is_other(self, what: str) -> OtherOperation:
        """Return the error for a kernel that computes something else."""
        return OtherOperation(
            f"{self.path.name}: {self.function.name} computes {what}, which is no operation here; the operations are "
            "C = A B, sums, minima and maxima, z = x + y, and copies",
            bool(re.search(NAMES.get(self.operation.name, NAMES["sum"]), self.function.name.lower())),
        )

    def last_trial(self) -> str:
        """Return the reason why the most likely launch failed, else the last trial, for a message."""
        return f": {why}" if (why := self.reason or self.why) else ""
