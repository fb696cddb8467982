"""Records of operations, variants, tasks and verdicts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hpcmm.model.contract import Contract
from hpcmm.model.dtypes import ARITHMETICS, DTYPES, Arithmetic, DType
from hpcmm.model.launch import Launch, Workspace

# Marks a field of a record on which no time or verdict depends, or whose code and records the fingerprint reads
UNTIMED = {"timed": False}
ENDED = 143  # exit status of a process that SIGTERM ends
TEXTBOOK = "scatter"  # every operation has this algorithm; labels omit it
ALONE = "alone"  # each rank has a problem of its own
ONE_CALL = (TEXTBOOK, ALONE)  # algorithms whose kernel is one call of the variant, on all arrays of a rank


def contender_name(variant: str, algorithm: str) -> str:
    """Return the label of a variant and the algorithm that distributes it over the ranks.

    >>> contender_name("cublas", TEXTBOOK), contender_name("cublas", "ring")
    ('cublas', 'cublas ring')
    """
    return variant if algorithm == TEXTBOOK else f"{variant} {algorithm}"


def unmet(what: str, required: str, capability: str, only: bool = False) -> str:
    """Return why a GPU lacks a feature that needs another compute capability; empty if it has it.

    >>> unmet("float8_e4m3", "89", "80")
    'float8_e4m3 needs a GPU of compute capability 8.9 or later; this one has 8.0'
    """
    if not required or required == capability or (int(required) < int(capability) and not only):
        return ""
    which = f"{required[:-1]}.{required[-1]}{'' if only else ' or later'}"
    return f"{what} needs a GPU of compute capability {which}; this one has {capability[:-1]}.{capability[-1]}"


def untimed(function: Callable) -> Callable:
    """Mark a function on which no time and no verdict depends: fingerprints of points leave it out."""
    return function


class HpcmmError(Exception):
    """An error that the user can fix; the message says how."""


class DeviceError(HpcmmError):
    """A device that is missing or cannot do what was requested, or a kernel that cannot be compiled for it."""


class NotTested(DeviceError):
    """What this machine lacks for a kernel, which may be right."""

    PREFIX = "not tested: "

    def __init__(self, why: str):
        super().__init__(f"{self.PREFIX}{why.removeprefix(self.PREFIX)}")


class Geometry:
    """How the launches of a CUDA kernel cover its problem. Each operation defines subclasses, as frozen dataclasses."""

    def macros(self, task: Task) -> dict[str, int]:
        """Return the compile-time constants that describe the launch to the source."""
        return {}

    def workspace(self, task: Task) -> dict[str, Workspace]:
        """Return each array of the workspace, by name."""
        return {}

    def in_constant_memory(self, task: Task) -> dict[str, str]:
        """Return the operand that each array in constant memory holds, by the array's name in the source."""
        return {}

    def launches(self, task: Task, arrays: Mapping[str, Any]) -> list[Launch]:
        """Return the launches of one run on operands and workspace, in order; an empty result needs none."""
        raise NotImplementedError

    def builds(self) -> tuple[Geometry, ...]:
        """Return the builds of the kernel, each as the geometry that always picks it."""
        return (self,)

    def suits(self, task: Task) -> bool:
        """Return whether a build can run a task, and may be the fastest one."""
        return True

    def pick(self, task: Task) -> str:
        """Return what was picked for the shape of a task, such as a tile; empty if nothing depends on the shape."""
        return ""

    def by(self, task: Task) -> str:
        """Return what picked for a task, in words for the pick; empty if it is a model."""
        return ""

    def decide(self, backend: Any, task: Task) -> None:
        """Try builds on a device where nothing decides yet which of them runs a task."""


@dataclass(frozen=True)
class Variant:
    """One rung of a ladder: a source file, a library call, or a choice; ``head.schema.yaml`` has its keys."""

    name: str  # config key, test id, HDF5 value and table row; also the stem of its source file
    device: str  # name of a record in ``hpcmm.model.devices``
    change: str = field(metadata=UNTIMED)  # the difference from its counterpart
    source: str = field(default="", metadata=UNTIMED)  # the documents that describe it
    counterpart: str = field(default="", metadata=UNTIMED)
    shelf: str = field(default="", metadata=UNTIMED)
    # Libraries only: ``library(backend, task, arrays)`` returns a callable that runs once. A library has no source
    # file.
    library: Callable[[Any, Task, Mapping[str, Any]], Callable[[], Any]] | None = field(
        default=None, hash=False, metadata=UNTIMED
    )
    # Method of a device that returns why its library, or a CPU kernel, cannot run a type there; empty if all can
    unsupported: str = field(default="", metadata=UNTIMED)
    # Libraries only: the library whose version is shown beside the name, a key of ``libraries.VERSIONS``
    provider: str = field(default="", metadata=UNTIMED)
    # Libraries only: ``workspace(task)`` returns each array that the call needs besides its operands, by name
    workspace: Callable[[Task], Mapping[str, Workspace]] | None = field(default=None, hash=False, metadata=UNTIMED)
    # How a CUDA kernel is launched, for all types or by type; of a C kernel, its workspace and macros
    geometry: Geometry | Mapping[str, Geometry] | None = field(default=None, hash=False, metadata=UNTIMED)
    path: Path | None = field(default=None, metadata=UNTIMED)  # the source file, if it is outside this package
    # The source with a function of the operation's signature that calls the kernel of ``path``, if it has another
    adapted: Path | None = field(default=None, metadata=UNTIMED)
    # What the kernel computes, if it is less than the operation
    contract: Contract | None = field(default=None, hash=False, metadata=UNTIMED)
    # Picks the rung that runs each task, a ``picks.Fastest``; this variant then has no source file of its own
    picks: Any = field(default=None, hash=False, metadata=UNTIMED)
    # A Python function that runs it instead of a compiled source: ``function(stream=..., **operands, **scalars)``
    function: Callable[..., Any] | None = field(default=None, hash=False, metadata=UNTIMED)
    # Widths of the square thread block that it can be compiled for; empty if it has no such parameter
    tiles: tuple[int, ...] = ()
    # Supported types; empty for all types of the operation whose sums are of the same type
    dtypes: tuple[str, ...] = ()
    architecture: str = ""
    options: tuple[str, ...] = ()  # further compiler options
    exact: bool = False  # whether the result is correct only if the tile divides every dimension
    pitched: bool = False  # whether it works on copies of its matrices in pitched allocations, whose rows are padded
    guard_rows: int = 0
    leaf_bytes: int = 0
    invariant: bool = False
    # Maximum length of the first dimension, if the memory that it uses is limited; 0 for no limit. Points beyond are
    # not planned.
    capacity: int = 0
    cooperative: bool = False
    deterministic: bool = field(default=True, metadata=UNTIMED)
    # By type, how products and sums are computed if not in IEEE arithmetic of the type. The result may be less
    # accurate, and the peak rate of the type does not bound the speed.
    arithmetic: Mapping[str, str] = field(default_factory=dict, hash=False, metadata=UNTIMED)
    slow: bool = field(default=False, metadata=UNTIMED)
    traffic: Mapping[str, float] = field(default_factory=dict, hash=False, metadata=UNTIMED)
    all_threads: bool = field(default=False, metadata=UNTIMED)  # whether a C kernel uses all threads of a rank
    context: bool = field(default=False, metadata=UNTIMED)
    # Name of the baseline whose library it calls with the fastest of several algorithms; empty for any other variant
    tunes: str = field(default="", metadata=UNTIMED)

    @property
    def baseline(self) -> bool:
        """Whether it is a library call that is measured beside the other variants of its device."""
        return self.library is not None and not self.context

    @property
    def compiled(self) -> bool:
        """Whether it has a source of its own that a compiler translates."""
        return self.library is None and self.function is None and self.picks is None

    @property
    def on_copies(self) -> bool:
        """Whether a run works on copies of operands, which are made before it: on no block of a larger array."""
        return bool(self.pitched or self.guard_rows or (self.contract and self.contract.overwrites))

    def geometry_of(self, dtype: str) -> Geometry | None:
        return self.geometry[dtype] if isinstance(self.geometry, Mapping) else self.geometry

    def why_not_run(self, capability: str) -> str:
        """Return why a GPU of a compute capability (``"90"``) cannot run it; empty if it can."""
        required = self.architecture.removeprefix("sm_")
        return unmet(self.name, required.removesuffix("a"), capability, only=required.endswith("a"))


@dataclass(frozen=True)
class Operand:
    """One array of an operation.

    Each rank has a block of rows of a ``rows`` operand, along its first dimension. A ``replicated`` operand is copied
    to every rank. A ``combined`` operand is a partial result on each rank, and a reduction over the ranks completes it.
    """

    name: str
    dimensions: tuple[str, ...]
    distribution: Literal["rows", "replicated", "combined"]
    role: Literal["in", "inout", "out"]


UNCHECKED = "none"  # ``Verdict.reference`` of a point without a result


@dataclass(frozen=True)
class Verdict:
    """The comparison of one result with its reference."""

    passed: bool
    error: float  # largest error of a compared element, in the units of ``bound``; NaN if the result is not a number
    # Error that rounding never exceeds. A result may fail below it: bounds that hold in all likelihood are smaller.
    bound: float
    reference: str  # how the reference was computed; ``UNCHECKED`` for a point that no attempt could measure
    # First wrong element, ``row:column: got - expected = difference``, or why there is no result; empty for a pass
    where: str = ""
    # Root mean square of the errors, in the same units; NaN if unknown
    rms: float = field(default=math.nan, compare=False)
    # Checksum of the result's bits on each rank; empty if they are not the whole result
    bits: tuple[int, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Operation:
    """One operation: its operands, its ladder, and functions of a ``Task``. Operations may share kernels."""

    name: str
    kernels: str  # the folder of the sources, and the name of the function that each of them exports
    dimensions: tuple[str, ...]  # names of the dimensions of a shape
    operands: tuple[Operand, ...]
    dtypes: tuple[str, ...]  # names of records in ``hpcmm.model.dtypes``
    scalars: Mapping[str, float] = field(hash=False)  # default values of its scalar arguments
    # In the order of ``ladders.yaml``: baselines, if there are any, follow the rungs on each device, then further
    # libraries
    ladder: tuple[Variant, ...]
    metric: Literal["flops", "bytes"]  # what its rate counts: arithmetic operations or bytes
    # flops, bytes: functions of a task: arithmetic operations, and compulsory memory traffic in bytes
    flops: Callable[[Task], int]
    bytes: Callable[[Task], int]
    draw: Callable[..., dict[str, Any]]  # ``draw(rng, task)`` returns random inputs by name
    # ``reference(task, arrays)`` returns a function that compares a result array with its reference and returns a
    # ``Verdict``
    reference: Callable[..., Callable[[Any], Verdict]]
    arguments: Callable[..., tuple[Any, ...]]  # ``arguments(task, arrays)`` returns the arguments of every kernel
    # By device, the macros that the sources are compiled with for this operation
    macros: Mapping[str, Mapping[str, str]] = field(default_factory=dict, hash=False)
    combination: Literal["sum", "minimum", "maximum"] = "sum"  # how ``combined`` operands are reduced over the ranks
    # Whether its bytes may come from any level of memory, so that the bandwidth of DRAM is not a limit
    cached: bool = False
    stated: tuple[str, ...] = ()  # types that a variant has only if its head states them: kernels of users
    # How the CUDA kernel of a user's file is launched. Its fields are keys of the file's head, besides ``constants``.
    geometry: type[Geometry] | None = None
    # ``fill(rng, task, arrays)`` draws the same inputs as ``draw`` into existing arrays
    fill: Callable[..., None] | None = None
    # ``reference_on(task, arrays, device, seconds)`` is ``reference`` that may compute on a device, for some seconds
    # for each result
    reference_on: Callable[..., Callable[[Any], Verdict]] | None = None

    @property
    def output(self) -> Operand:
        """The operand that a run writes."""
        return next(operand for operand in self.operands if operand.role != "in")

    def judge(
        self, task: Task, arrays: Mapping[str, Any], device: Any, seconds: float = math.inf
    ) -> Callable[[Any], Verdict]:
        """Return the check of results of a task, which may compute on a device for some seconds for each result."""
        if self.reference_on:
            return self.reference_on(task, arrays, device, seconds)
        return self.reference(task, arrays)

    def dtypes_of(self, variant: Variant) -> tuple[str, ...]:
        """Return the types of a variant: its own, or all types whose sums are of the same type, besides ``stated``."""
        common = (dtype for dtype in self.dtypes if not DTYPES[dtype].accumulator and dtype not in self.stated)
        return variant.dtypes or tuple(common)

    def dtypes_of_all(self, variants: Iterable[Variant]) -> tuple[str, ...]:
        """Return the types that some variant supports; baselines are used only if there are no other variants."""
        chosen = list(variants)
        rungs = [each for each in chosen if not each.library] or chosen
        return tuple(dtype for dtype in self.dtypes if any(dtype in self.dtypes_of(rung) for rung in rungs))

    def scalars_of(self, dtype: str, given: Mapping[str, float]) -> dict[str, float]:
        """Return the scalar arguments for a type: as given, else the defaults, truncated for integer types."""
        default = {key: math.trunc(value) if DTYPES[dtype].is_integer else value for key, value in self.scalars.items()}
        return {key: float(given.get(key, value)) for key, value in default.items()}

    def rate_unit(self, dtype: str) -> str:
        """Return the unit of its rate for a type: B/s, FLOP/s, or OP/s for integers."""
        if self.metric == "bytes":
            return "B/s"
        return "OP/s" if DTYPES[dtype].is_integer else "FLOP/s"

    def variant(self, name: str) -> Variant:
        return next(v for v in self.ladder if v.name == name)

    def find(self, name: str) -> Variant | None:
        """Return a variant; None for one that was removed since a file was written."""
        return next((v for v in self.ladder if v.name == name), None)

    def why_not_run(self, variant: Variant, dtype: str, capability: str) -> str:
        """Return the reason why a device cannot run a variant for a type; empty if it can.

        A variant that picks needs a GPU that can run every rung that it picks from. ``capability`` is empty for a CPU.
        """
        if capability and (reason := unmet(dtype, DTYPES[dtype].capability, capability)):
            return reason
        rungs = variant.picks.rungs(dtype) if variant.picks else ()
        reasons = [self.variant(name).why_not_run(capability) for name in rungs]
        found = next((f"{variant.name}: {reason}" for reason in reasons if reason), "")
        return variant.why_not_run(capability) or found

    def why_not_run_on(self, backend: Any, variant: Variant, dtype: str) -> str:
        """Return the same for an open device with its libraries."""
        reason = self.why_not_run(variant, dtype, backend.capability)
        return reason or (variant.unsupported and getattr(backend, variant.unsupported)(dtype))

    def baseline(self, device: str, dtype: str) -> Variant | None:
        """Return the baseline of a device and type; None if no library does the same."""
        found = (v for v in self.ladder if v.baseline and v.device == device and dtype in self.dtypes_of(v))
        return next(found, None)

    def tuned(self, device: str, dtype: str) -> Variant | None:
        """Return the call of the baseline's library with a tuned algorithm; None if there is none."""
        baseline = self.baseline(device, dtype)
        found = (v for v in self.ladder if baseline and v.tunes == baseline.name and v.device == device)
        return next((v for v in found if dtype in self.dtypes_of(v)), None)


@dataclass(frozen=True)
class Task:
    """One computation: a variant of an operation, for one shape and element type."""

    operation: Operation
    variant: Variant
    shape: tuple[int, ...]  # the length of each of the operation's dimensions
    dtype: str
    # The operation's scalar arguments, such as alpha and beta
    scalars: Mapping[str, float] = field(default_factory=dict, hash=False)
    tile: int = 0  # width of the square thread block that the kernel is compiled for; 0 if the variant has none
    # SM count of the GPU, or of the part of it that launches may fill; 0 before the task is placed on a device. See
    # ``Backend.placed``.
    multiprocessors: int = 0
    gpu: str = ""  # name of the GPU as its driver reports it; empty before the task is placed on one
    # clock, bandwidth: largest SM clock [Hz], and bandwidth of the memory [B/s], of the GPU; those of an H100 before
    # the task is placed on one
    clock: float = 1.98e9
    bandwidth: float = 3.35e12

    @property
    def sms(self) -> int:
        """The SM count, for choices and launches that depend on it; HpcmmError before the task is placed on one."""
        if self.multiprocessors <= 0:
            raise HpcmmError(
                f"{self.operation.name} {self.variant.name}: its launches depend on the SM count of the GPU, and the "
                "task has none; place it on a device (Backend.placed), or state multiprocessors"
            )
        return self.multiprocessors

    @property
    def element(self) -> DType:
        return DTYPES[self.dtype]

    def storage(self, operand: Operand) -> np.dtype:
        """The NumPy type of an operand's arrays: of elements for an input, else of results."""
        return (self.element if operand.role == "in" else self.element.results).storage

    def shape_of(self, operand: Operand) -> tuple[int, ...]:
        lengths = dict(zip(self.operation.dimensions, self.shape, strict=True))
        return tuple(lengths[dimension] for dimension in operand.dimensions)

    @property
    def geometry(self) -> Geometry:
        return self.variant.geometry_of(self.dtype)

    @property
    def arithmetic(self) -> Arithmetic:
        """The variant's arithmetic; that of the type has no name."""
        name = self.variant.arithmetic.get(self.dtype, "")
        return ARITHMETICS.get(name) or Arithmetic(name)

    @property
    def picked(self) -> Task:
        """The task of the rung that runs, if its variant picks one; else itself."""
        if self.variant.picks is None:
            return self
        return replace(self, variant=self.variant.picks.variant(self))

    @property
    def pick(self) -> str:
        """The rung that runs, if this variant picks one, what its geometry picks, and what picked it if not a model."""
        picked, chooser = self.picked, self.variant.picks or self.geometry
        rung = picked.variant.name if self.variant.picks else ""
        tile = picked.geometry.pick(picked) if picked.geometry else ""
        return ", ".join(filter(None, (rung, tile, chooser.by(self) if chooser else "")))

    @property
    def workspace(self) -> Mapping[str, Workspace]:
        """Each array that a run needs besides the operands, by name."""
        if self.variant.library:
            return self.variant.workspace(self) if self.variant.workspace else {}
        return self.geometry.workspace(self) if self.geometry else {}

    @property
    def macros(self) -> dict[str, str | int]:
        """Macros that the variant's source is compiled with."""
        element, device = self.element, self.variant.device
        types = {"REAL": element.c_of(device), "ACCUMULATOR": element.sums.c_of(device)}
        launched = self.geometry.macros(self) if self.geometry else {}
        return {**types, **self.operation.macros.get(device, {}), **launched}

    @property
    def flops(self) -> int:
        """Arithmetic operations of a run."""
        return self.operation.flops(self)

    @property
    def bytes(self) -> int:
        """Compulsory memory traffic of a run in bytes."""
        return self.operation.bytes(self)
