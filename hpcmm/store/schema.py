"""Schema of a timings file: groups of columns, each with its type, unit and long name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import h5py
import numpy as np

from hpcmm.model.quantities import COUNTERS, ONCE, PHASES, RESOURCES, STATES, VITALS

FORMAT = "hpcmm timings"
SCHEMA_VERSION = 2
DIMENSIONS = ("m", "n", "k")

TEXT = h5py.string_dtype()

# column -> (type, unit, long name). Each scalar of an operation adds a column of floats, and each dimension with
# another name adds a column of integers.
MEASUREMENTS = {
    "run": ("i4", "1", "index into group runs: machine and time of the measurement"),
    "sweep": (TEXT, "", "name of the sweep in config.yaml"),
    "operation": (TEXT, "", "operation"),
    "variant": (TEXT, "", "variant of the point"),
    "contender": (TEXT, "", "measured variant: the variant of the point, or its baseline"),
    "baseline": ("u1", "1", "1 if the contender is the baseline: the vendor library, or the algorithm scatter"),
    "algorithm": (TEXT, "", "distributed algorithm of the point"),
    "contender_algorithm": (TEXT, "", "distributed algorithm of the contender"),
    "transport": (TEXT, "", "transport of the contender's exchanges between ranks (empty: MPI on host memory)"),
    "pick": (TEXT, "", "rung and tile that were picked for the shape (empty: nothing is picked, or an older file)"),
    "device": (TEXT, "", "cpu or cuda"),
    "m": ("i8", "1", "rows of C (0: no such dimension)"),
    "n": ("i8", "1", "columns of C, or length of the vector"),
    "k": ("i8", "1", "columns of A (0: no such dimension)"),
    "dtype": (TEXT, "", "element type"),
    "tile": ("i4", "1", "width of the square thread block (0: the variant has none)"),
    "pinned": ("i1", "1", "host memory: 1 page-locked, 0 pageable, -1 not set by the sweep (page-locked)"),
    "ranks": ("i4", "1", "MPI ranks"),
    "fingerprint": (TEXT, "", "fingerprint of the point, the source of its variant, and the measuring code"),
    "passed": ("u1", "1", "1 if every element is within the bound"),
    "error": ("f8", "1", "largest error relative to the sum of magnitudes"),
    "bound": ("f8", "1", "rounding error bound of that error"),
    "reference": (TEXT, "", "how the reference was computed"),
    "where": (TEXT, "", "first wrong element: index: got - expected = difference"),
    "flops": ("i8", "1", "arithmetic operations of one call"),
    "bytes": ("i8", "B", "compulsory memory traffic of one call"),
    "late_runs": ("i4", "1", "kernel runs that were repeated because the host queued them too late (-1: unknown)"),
    "clock": ("f8", "Hz", "SM clock while the kernel repeats (NaN: unknown)"),
    **{name: ("f8", unit, text) for name, (unit, text) in ONCE.items()},
    **{name: ("f8", unit, f"{text} (NaN: no CUDA kernel of ours)") for name, (unit, text) in RESOURCES.items()},
}
SAMPLES = {
    "measurement": ("i8", "1", "index into group measurements"),
    "run": ("i4", "1", "index into group runs: process of the visit"),
    "visit": ("i4", "1", "visit, each in another process; its repetitions share the state of that process"),
    "repetition": ("i4", "1", "repetition over all visits, numbered separately for end-to-end calls and kernels alone"),
    "rank": ("i4", "1", "MPI rank"),
    "call": ("u1", "1", "1: end to end, with transfers; 0: kernel alone, data in place"),
    **{phase: ("f8", "s", f"time of phase {phase} (NaN: no such phase)") for phase in PHASES},
    **{state: ("f8", unit, f"{state.replace('_', ' ')} after the repetition") for state, unit in STATES.items()},
}
VISITS = {
    "measurement": ("i8", "1", "index into group measurements"),
    "visit": ("i4", "1", "visit, as in group samples"),
    "schedule": (TEXT, "", "fastest of trial runs: schedule of exchanges and products, or algorithm of a library"),
    "huge_pages": ("f8", "1", "share of the kernel's array bytes on huge pages of the host (NaN: unknown, or a GPU)"),
    "busy_seconds": ("f8", "s", "CPU time of the node, all CPUs, from the warm-up on (NaN: unknown)"),
    "steal_seconds": ("f8", "s", "part of busy_seconds that the hypervisor gave to other guests (NaN: unknown)"),
}
RANKS = {
    "run": ("i4", "1", "index into group runs"),
    "rank": ("i4", "1", "MPI rank"),
    "node": (TEXT, "", "node of the rank"),
    "device": (TEXT, "", "UUID of its GPU (empty: CPU)"),
}
RUNS = {"batch": (TEXT, "", "batch"), "provenance": (TEXT, "", "JSON: machine, software, arguments, time")}
UNMEASURED = {
    "sweep": (TEXT, "", "name of the sweep"),
    "variant": (TEXT, "", "variant, with algorithm, that was planned and not measured"),
    "ranks": ("i4", "1", "MPI ranks"),
    "reason": (TEXT, "", "why it was not measured"),
    "points": ("i4", "1", "its points that a run was to measure (0: not measured by the plan)"),
}
PROFILES = {
    **{
        name: MEASUREMENTS[name]
        for name in ("run", "operation", "variant", *DIMENSIONS, "dtype", "tile", "passed", "where")
    },
    "kernel": (TEXT, "", "longest kernel of the run"),
    "launches": ("i4", "1", "number of kernels that the run launches"),
    **{name: ("f8", unit, f"{text} ({metric})") for name, (unit, text, metric) in COUNTERS.items()},
}
UNPROFILED = {"operation": (TEXT, "", "operation without a profile"), "reason": (TEXT, "", "why there is no profile")}
SUSTAINED = {
    "run": ("i4", "1", "index into group runs"),
    "rank": ("i4", "1", "MPI rank"),
    "dtype": (TEXT, "", "element type of the product"),
    "n": ("i8", "1", "side of its square matrices"),
    "flops": ("i8", "1", "arithmetic operations of one product"),
    "seconds": ("f8", "s", "end of the interval, since the start"),
    "products": ("i8", "1", "products in the interval"),
    "wrong": ("i8", "1", "products among them with a wrong result"),
    "busy": ("f8", "s", "time of the products alone"),
    **{
        name: ("f8", unit, f"{text}, at the end of the interval (NaN: unknown)")
        for name, (unit, text) in VITALS.items()
    },
}
ERRORS = {
    "run": ("i4", "1", "index into group runs"),
    "rank": ("i4", "1", "MPI rank"),
    "counter": (TEXT, "", "counter of errors of the device"),
    "before": ("f8", "1", "value before the sustained products (NaN: not readable)"),
    "after": ("f8", "1", "value after them (NaN: not readable, or the job was ended)"),
}
GROUPS = {
    "measurements": MEASUREMENTS,
    "samples": SAMPLES,
    "visits": VISITS,
    "ranks": RANKS,
    "runs": RUNS,
    "omitted": UNMEASURED,
    "profiles": PROFILES,
    "unprofiled": UNPROFILED,
    "sustained": SUSTAINED,
    "errors": ERRORS,
}
# Columns that identify a measurement within a run, without those that the operation adds
IDENTITY = ("sweep", "operation", "variant", "contender", "algorithm", "contender_algorithm")
IDENTITY += (*DIMENSIONS, "dtype", "ranks", "tile", "pinned")
INDEXES = {"run": "runs", "measurement": "measurements"}  # column -> the group that it indexes
Groups = dict[str, dict[str, np.ndarray]]  # group -> column -> values
# Values other than 0 and NaN that a column of floats may have, by its unit: nothing else can be measured, and a rate
# that is computed from it may not be finite.
RANGES = {"s": (1e-12, 1e9), **dict.fromkeys(("Hz", "J", "W", "B", "B s-1"), (1e-12, 1e30))}
POSITIVE = ("kernel", "total")  # times that are never 0
UNKNOWN = ("pinned", "late_runs")  # columns in which -1 means unknown or not set
LATER = ("visits", "profiles", "unprofiled", "ranks", "sustained", "errors")  # groups that older files lack
# Variants that were renamed: name in earlier files -> name in this version. A name is not reused for another variant.
RENAMED = {"oblong": "large_thread_tile"}
VARIANTS = {"measurements": ("variant", "contender"), "omitted": ("variant",), "profiles": ("variant",)}


def empty(group: str) -> dict[str, np.ndarray]:
    """Return the columns of a group without rows."""
    return {name: as_column([], declared) for name, declared in GROUPS[group].items()}


def as_column(values: Sequence, declared: tuple | None) -> np.ndarray:
    """Return values as an array of the declared type; an undeclared column is a dimension or a scalar."""
    dtype = declared[0] if declared else "i8" if all(isinstance(value, int | np.integer) for value in values) else "f8"
    return np.asarray(values, dtype=object if dtype == TEXT else dtype)


def valid(values: np.ndarray, name: str, unit: str) -> np.ndarray:
    """Return which values a column of floats may have; columns of other units may have any."""
    least, most = RANGES.get(unit, (-np.inf, np.inf))
    none = np.isnan(values) | ((values == 0) & (name not in POSITIVE))
    return none | ((least <= values) & (values <= most))


def row_count(columns: Mapping[str, np.ndarray]) -> int:
    """Return the number of rows of a group."""
    return len(next(iter(columns.values())))
