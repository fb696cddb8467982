"""The records of the suite: what can be measured, and what was measured."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from hpcmm.dtypes import DTYPES, DType

TEXTBOOK = "scatter"  # the algorithm that every operation has and that is not named in labels


def spread_name(variant: str, algorithm: str) -> str:
    """A variant with the algorithm that spreads it, as a reader calls both.

    >>> spread_name("cublas", TEXTBOOK), spread_name("cublas", "ring")
    ('cublas', 'cublas ring')
    """
    return variant if algorithm == TEXTBOOK else f"{variant} {algorithm}"


# The phases of a whole call, in their order; a kernel measured alone has that one phase. Where an
# algorithm overlaps them, a phase's time is that of its own work.
PHASES = ("scatter", "broadcast", "upload", "exchange", "pitch", "kernel", "download", "gather", "total")

# What is recorded of a GPU beside a time. ``throttle_reasons`` is NVML's bit mask.
STATES = {
    "sm_clock": "Hz",
    "memory_clock": "Hz",
    "temperature": "degC",
    "power": "W",
    "throttle_reasons": "1",
}

# What is known of a CUDA kernel beside its time: its own needs, its first launch, how many of its blocks
# the driver says fit on a multiprocessor (SM), and the limits of the device: unit and long name.
RESOURCES = {
    "registers": ("1", "registers of a thread"),
    "shared_bytes": ("B", "shared memory of a block, fixed by the source"),
    "dynamic_shared_bytes": ("B", "shared memory of a block, asked for by the launch"),
    "local_bytes": ("B", "local memory of a thread: spilled registers, arrays indexed at run time"),
    "constant_bytes": ("B", "constant memory of the kernel"),
    "block_x": ("1", "threads of a block in x"),
    "block_y": ("1", "threads of a block in y"),
    "grid_x": ("1", "blocks of the first launch in x"),
    "grid_y": ("1", "blocks of the first launch in y"),
    "resident_blocks": ("1", "blocks that an SM holds at once, from the driver"),
    "sm_threads": ("1", "most threads that an SM holds at once"),
    "sm_blocks": ("1", "most blocks that an SM holds at once"),
    "sm_registers": ("1", "registers of an SM"),
    "sm_shared_bytes": ("B", "shared memory of an SM, the most that can be set"),
    "reserved_shared_bytes": ("B", "shared memory that the system takes of each block's"),
    "memory_bytes_per_second": ("B s-1", "bandwidth of the device's memory by its clock and width"),
}

# What Nsight Compute counts while a kernel runs: unit, long name, and the metric by its own name.
COUNTERS = {
    "occupancy": ("1", "occupancy that the launch allows", "sm__maximum_warps_per_active_cycle_pct"),
    "achieved_occupancy": (
        "1",
        "resident warps of busy SMs over the most that fit, on average",
        "sm__warps_active.avg.pct_of_peak_sustained_active",
    ),
    "active_threads": (
        "1",
        "threads of a warp that take part in an instruction, of 32",
        "smsp__thread_inst_executed_per_inst_executed.ratio",
    ),
    "global_load_bytes_per_second": (
        "B s-1",
        "global loads at the L1 cache",
        "l1tex__t_bytes_pipe_lsu_mem_global_op_ld.sum.per_second",
    ),
    "global_store_bytes_per_second": (
        "B s-1",
        "global stores at the L1 cache",
        "l1tex__t_bytes_pipe_lsu_mem_global_op_st.sum.per_second",
    ),
    "load_sectors": (
        "1",
        "sectors of 32 bytes that a warp's global load touches",
        "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio",
    ),
    "store_sectors": (
        "1",
        "sectors of 32 bytes that a warp's global store touches",
        "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio",
    ),
    "shared_pipe": (
        "1",
        "wavefronts of shared memory over the most that it can do",
        "l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_elapsed",
    ),
    "shared_loads": ("1", "loads of warps from shared memory", "smsp__inst_executed_op_shared_ld.sum"),
    "shared_stores": ("1", "stores of warps to shared memory", "smsp__inst_executed_op_shared_st.sum"),
    "shared_load_wavefronts": (
        "1",
        "wavefronts of the loads from shared memory",
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    ),
    "shared_store_wavefronts": (
        "1",
        "wavefronts of the stores to shared memory",
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    ),
    "shared_load_conflicts": (
        "1",
        "bank conflicts of the loads from shared memory",
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    ),
    "shared_store_conflicts": (
        "1",
        "bank conflicts of the stores to shared memory",
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    ),
    "l2_hits": ("1", "sectors that the L2 cache had, of those asked for", "lts__t_sector_hit_rate.pct"),
    "dram_read_bytes_per_second": ("B s-1", "reads of the device's memory", "dram__bytes_read.sum.per_second"),
    "dram_write_bytes_per_second": ("B s-1", "writes to the device's memory", "dram__bytes_write.sum.per_second"),
    "fma_pipe": (
        "1",
        "instructions of the float32 FMA pipe over the most that it can do",
        "smsp__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active",
    ),
    "sm_throughput": (
        "1",
        "use of the busiest part of the SMs",
        "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    "sm_clock": ("Hz", "clock of the SMs meanwhile", "sm__cycles_elapsed.avg.per_second"),
}


class HpcmmError(Exception):
    """Something that the user can mend; the message says what and how."""


@dataclass(frozen=True)
class Launch:
    """One kernel launch: its geometry, its arguments (arrays and NumPy scalars), its dynamic shared memory."""

    grid: tuple[int, ...]
    block: tuple[int, ...]
    arguments: tuple[Any, ...]
    shared_bytes: int = 0


class Geometry:
    """How a CUDA kernel covers its problem. Each operation has subclasses, frozen dataclasses, for its kernels."""

    def macros(self, task: Task) -> dict[str, int]:
        """Return the compile-time constants that the source takes from its launch."""
        return {}

    def workspace(self, task: Task) -> dict[str, int]:
        """Return the elements of each array that the launches need besides the operands, by name."""
        return {}

    def launches(self, task: Task, arrays: Mapping[str, Any], multiprocessors: int) -> list[Launch]:
        """Return the launches of one run, in order; none for an empty result.

        Parameters
        ----------
        task : Task
        arrays : mapping of str to array
            The operands and the workspace.
        multiprocessors : int
            SMs of the GPU.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Variant:
    """One rung of a ladder: one kernel source file, or one library call.

    Parameters
    ----------
    name : str
        Config key, test id, HDF5 value and table row; also the stem of its source file.
    device : str
        Name of a record in ``hpcmm.devices``.
    change : str
        What this rung does differently from the one below it.
    source : str
        The documents that teach it.
    library : callable, optional
        Of a baseline: ``library(backend, task, arrays)`` returns a callable that runs once. A baseline has no source.
    geometry : Geometry, or mapping of str to Geometry
        How a CUDA kernel is launched, for all types or for each.
    kernel : str
        Stem of its source file where that is another variant's.
    path : Path, optional
        Its source file, where that lies outside this package.
    tiles : tuple of int
        Widths of a square thread block that it can be compiled for; empty if it has none.
    dtypes : tuple of str
        The only types that it computes in; empty if all of its operation.
    architecture : str
        Architecture that the code is compiled for, as NVRTC names it: ``"sm_80"`` runs from compute capability 8.0 on;
        ``"sm_90a"`` on 9.0 alone. Empty if any GPU can run it.
    options : tuple of str
        Further options of its compiler.
    exact : bool
        Whether it is right only where the tile divides every dimension.
    pitched : bool
        Whether it works on copies of its matrices whose rows are padded, from a pitched allocation.
    deterministic : bool
        Whether the same call on the same device gives the same bits in every run; for a baseline, whether its
        library promises it.
    arithmetic : mapping of str to str
        By type, how products and sums are computed where this is not IEEE arithmetic of the type. Such a result may
        be less accurate, and the peak of the type's own arithmetic does not limit its speed.
    slow : bool
        Whether a scalar loop on few threads computes a product, for which the plan allows more time.
    """

    name: str
    device: str
    change: str
    source: str = ""
    library: Callable[[Any, Task, Mapping[str, Any]], Callable[[], Any]] | None = field(default=None, hash=False)
    geometry: Geometry | Mapping[str, Geometry] | None = field(default=None, hash=False)
    kernel: str = ""
    path: Path | None = None
    tiles: tuple[int, ...] = ()
    dtypes: tuple[str, ...] = ()
    architecture: str = ""
    options: tuple[str, ...] = ()
    exact: bool = False
    pitched: bool = False
    deterministic: bool = True
    arithmetic: Mapping[str, str] = field(default_factory=dict, hash=False)
    slow: bool = False

    @property
    def baseline(self) -> bool:
        """Whether it is a library's implementation, beside which the others of its device are measured."""
        return self.library is not None

    def geometry_of(self, dtype: str) -> Geometry | None:
        """Return how it is launched for a type."""
        return self.geometry[dtype] if isinstance(self.geometry, Mapping) else self.geometry

    def unsuited_to(self, capability: str) -> str:
        """Return why no GPU of a compute capability (``"90"``) can run it; empty if one can."""
        needs = self.architecture.removeprefix("sm_").removesuffix("a")
        alone = self.architecture.endswith("a")
        if not needs or needs == capability or (int(needs) < int(capability) and not alone):
            return ""
        which = f"{needs[:-1]}.{needs[-1]}{'' if alone else ' or later'}"
        return f"{self.name} needs a GPU of compute capability {which}; this one has {capability[:-1]}.{capability[-1]}"


@dataclass(frozen=True)
class Operand:
    """One array of an operation.

    ``rows`` operands are dealt out by block rows of their first dimension, ``replicated`` ones go
    whole to every rank, and a ``combined`` one is a rank's partial result that MPI brings together.
    """

    name: str
    dimensions: tuple[str, ...]
    distribution: Literal["rows", "replicated", "combined"]
    role: Literal["in", "inout", "out"]


@dataclass(frozen=True)
class Prepared:
    """A variant bound to its arrays: call it to run once.

    ``before`` and ``after`` move the data between the arrays and places of the variant's own, on the
    device; they are a phase of the whole call and no part of the kernel's time.
    """

    run: Callable[[], Any]
    before: Callable[[], None] | None = None
    after: Callable[[], None] | None = None

    def __call__(self) -> Any:
        return self.run()


UNCHECKED = "none"  # the reference of a point that has no result


@dataclass(frozen=True)
class Verdict:
    """What the reference says of one result.

    Parameters
    ----------
    passed : bool
    error : float
        Largest error, in units that ``bound`` shares; NaN where the result is not a number.
    bound : float
        What rounding alone may cause; ``passed`` is ``error <= bound`` at every element.
    reference : str
        How the truth was computed; ``UNCHECKED`` of a point that no attempt could measure.
    where : str
        First wrong element, ``row:column: got - expected = difference``, or why there is none; empty for a pass.
    """

    passed: bool
    error: float
    bound: float
    reference: str
    where: str = ""


@dataclass(frozen=True)
class Operation:
    """One operation: its operands, its ladder, and functions over a ``Task``.

    Operations may share kernels.

    Parameters
    ----------
    name : str
    kernels : str
        The folder of the sources, and the name of the function that each of them exports.
    dimensions : tuple of str
        Names of the numbers in a shape.
    operands : tuple of Operand
    dtypes : tuple of str
        Names of records in ``hpcmm.dtypes``.
    scalars : mapping of str to float
        Default values of its scalar arguments.
    ladder : tuple of Variant
        In the order of the rungs; baselines last on each device.
    metric : {"flops", "bytes"}
        Whether its rate is reported in FLOP/s or in B/s.
    flops, bytes : callable
        Of a task: arithmetic operations, and compulsory memory traffic in bytes.
    draw : callable
        ``draw(rng, task)`` returns random inputs by name.
    reference : callable
        ``reference(task, arrays)`` returns the judge of a result, a callable from array to ``Verdict``.
    arguments : callable
        ``arguments(task, arrays)`` returns the arguments of every kernel.
    macros : mapping of str to mapping
        By device, what the sources are compiled with for this operation.
    combination : {"sum", "minimum", "maximum"}
        How MPI combines ``combined`` operands.
    """

    name: str
    kernels: str
    dimensions: tuple[str, ...]
    operands: tuple[Operand, ...]
    dtypes: tuple[str, ...]
    scalars: Mapping[str, float] = field(hash=False)
    ladder: tuple[Variant, ...]
    metric: Literal["flops", "bytes"]
    flops: Callable[[Task], int]
    bytes: Callable[[Task], int]
    draw: Callable[..., dict[str, Any]]
    reference: Callable[..., Callable[[Any], Verdict]]
    arguments: Callable[..., tuple[Any, ...]]
    macros: Mapping[str, Mapping[str, str]] = field(default_factory=dict, hash=False)
    combination: Literal["sum", "minimum", "maximum"] = "sum"

    def dtypes_of(self, variant: Variant) -> tuple[str, ...]:
        return variant.dtypes or self.dtypes

    def variant(self, name: str) -> Variant:
        return next(v for v in self.ladder if v.name == name)

    def baseline(self, device: str, dtype: str) -> Variant:
        """Return the library beside which variants of a device and type are measured."""
        return next(v for v in self.ladder if v.baseline and v.device == device and dtype in self.dtypes_of(v))


@dataclass(frozen=True)
class Task:
    """One computation: an operation by a variant, on one shape, in one element type.

    Parameters
    ----------
    operation : Operation
    variant : Variant
    shape : tuple of int
        One number for each of the operation's dimensions.
    dtype : str
    scalars : mapping of str to float
        The operation's scalar arguments, such as alpha and beta.
    tile : int
        Width of the square thread block that the kernel is compiled for; 0 if the variant has none.
    """

    operation: Operation
    variant: Variant
    shape: tuple[int, ...]
    dtype: str
    scalars: Mapping[str, float] = field(default_factory=dict, hash=False)
    tile: int = 0

    @property
    def element(self) -> DType:
        """The record of the element type."""
        return DTYPES[self.dtype]

    @property
    def geometry(self) -> Geometry:
        return self.variant.geometry_of(self.dtype)

    @property
    def macros(self) -> dict[str, str | int]:
        """What the variant's source is compiled with."""
        element, device = self.element, self.variant.device
        types = {"REAL": element.c_of(device), "ACCUMULATOR": element.sums.c_of(device)}
        launched = self.geometry.macros(self) if self.geometry else {}
        return {**types, **self.operation.macros.get(device, {}), **launched}

    @property
    def flops(self) -> int:
        """Arithmetic operations of one run."""
        return self.operation.flops(self)

    @property
    def bytes(self) -> int:
        """Compulsory memory traffic of one run in bytes."""
        return self.operation.bytes(self)


@dataclass(frozen=True)
class Point:
    """One thing to measure: a variant at one shape, element type, set of scalars and number of ranks.

    Parameters
    ----------
    operation, variant, dtype, algorithm : str
        Names of records. ``algorithm`` distributes the work over the ranks.
    shape : tuple of int
    ranks : int
    scalars : mapping of str to float
        The operation's scalar arguments.
    tile : int
        Width of the square thread block; 0 if the variant has none.
    pinned : bool or None
        Whether host memory is page-locked; None if its sweep does not say, which means that it is.
    """

    operation: str
    variant: str
    shape: tuple[int, ...]
    dtype: str
    ranks: int
    scalars: Mapping[str, float] = field(default_factory=dict, hash=False)
    algorithm: str = TEXTBOOK
    tile: int = 0
    pinned: bool | None = None

    @property
    def key(self) -> str:
        """Canonical text of the point, its identity in journals."""
        return json.dumps(
            [
                *(self.operation, self.variant, self.algorithm, self.shape, self.dtype, self.ranks),
                *(dict(self.scalars), self.tile, self.pinned),
            ],
            sort_keys=True,
        )

    @property
    def name(self) -> str:
        """The point for a reader, without its operation and ranks."""
        tile = f" tile {self.tile}" if self.tile else ""
        memory = {True: " pinned", False: " pageable", None: ""}[self.pinned]
        spread = spread_name(self.variant, self.algorithm)
        return f"{spread} {'x'.join(map(str, self.shape))} {self.dtype}{tile}{memory}"

    @property
    def page_locked(self) -> bool:
        """Whether its host memory is page-locked."""
        return self.pinned is not False


@dataclass(frozen=True)
class Batch:
    """Points of one sweep on one device with one number of ranks: one job, one file.

    Parameters
    ----------
    part : int
        Counted from 1: what would take longer than a job may is divided.
    points : tuple of Point
        Those that share their inputs stand together.
    fingerprints : tuple of str
        One a point. It changes when the point, its variant's record or source, or the way of measuring
        changes; with another one the point is measured again.
    predicted : tuple of float
        Seconds that each point should take at most, drawing and checking included.
    seconds : float
        The same for the whole job, with its start.
    fingerprint : str
        Of all points together: with another one the job runs again.
    """

    sweep: str
    operation: str
    device: str
    ranks: int
    part: int
    points: tuple[Point, ...]
    fingerprints: tuple[str, ...]
    predicted: tuple[float, ...]
    seconds: float
    fingerprint: str

    @property
    def name(self) -> str:
        return f"{self.sweep}/{self.device}-r{self.ranks}-{self.part}"


@dataclass(frozen=True)
class Measuring:
    """How a point is measured.

    Parameters
    ----------
    warmups : int
        Untimed repetitions first.
    min_repetitions, max_repetitions : int
        Between these, repeat until the median's interval is narrow enough.
    relative_interval : float
        Narrow enough: half-width of the ~95 % interval of the median over the median.
    max_seconds : float
        Limit of each contender's repetitions at a point, which goes before ``min_repetitions``.
    cache : {"cold", "hot"}
        Whether caches are emptied before each timed kernel.
    seed : int
        Of the random inputs.
    """

    warmups: int
    min_repetitions: int
    max_repetitions: int
    max_seconds: float
    relative_interval: float
    cache: Literal["cold", "hot"]
    seed: int


@dataclass(frozen=True)
class Sample:
    """One repetition on one rank, raw.

    Parameters
    ----------
    repetition : int
        Counted from 0, separately for whole calls and for the kernel alone.
    rank : int
    call : bool
        Whether it was the whole call with its transfers, or the kernel alone on data in place.
    seconds : mapping of str to float
        One entry for each of ``PHASES`` that took place.
    state : mapping of str to float
        The device's condition right after it, some of ``STATES``; empty for a CPU.
    """

    repetition: int
    rank: int
    call: bool
    seconds: Mapping[str, float]
    state: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Measurement:
    """All that one contender (the variant, or the baseline beside it) did at one point.

    ``resources`` are some of ``RESOURCES``, as they are on rank 0; empty for libraries and for a CPU.
    ``algorithm`` is the contender's, ``transport`` what carried its ranks' exchanges, and ``schedule`` in which of
    several orders it did its work.
    """

    point: Point
    contender: str
    baseline: bool
    verdict: Verdict
    flops: int
    bytes: int
    samples: tuple[Sample, ...] = ()
    resources: Mapping[str, float] = field(default_factory=dict)
    algorithm: str = TEXTBOOK
    transport: str = ""
    schedule: str = ""


@dataclass(frozen=True)
class Profile:
    """What a profiler counted while one point's kernel ran once; it is no measurement of time.

    Parameters
    ----------
    point : Point
    verdict : Verdict
        Of the result of that very run.
    kernel : str
        Name of the kernel that took the longest of those that the run launched; empty for a failed check.
    launches : int
        Kernels that the run launched.
    counters : mapping of str to float
        Some of ``COUNTERS``, of that kernel.
    """

    point: Point
    verdict: Verdict
    kernel: str = ""
    launches: int = 0
    counters: Mapping[str, float] = field(default_factory=dict)
