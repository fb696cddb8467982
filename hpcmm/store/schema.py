"""Schema of a timings file: groups of columns, each with its type, unit and long name."""

from collections.abc import Mapping, Sequence

import h5py
import numpy as np

from hpcmm.model.quantities import COUNTERS, ONCE, PHASES, RESOURCES, STATES
from hpcmm.model.records import beside

FORMAT = "hpcmm timings"
SCHEMA_VERSION = 2
DIMENSIONS = ("m", "n", "k")

TEXT = h5py.string_dtype()

# group -> column -> (type, unit, long name). Each scalar of an operation adds a column of floats, and each dimension
# with another name adds a column of integers.
GROUPS = {
    group: {name: (TEXT if kind == "text" else kind, *rest) for name, (kind, *rest) in columns.items()}
    for group, columns in beside(__file__).items()
}
MEASUREMENTS, SAMPLES, VISITS = GROUPS["measurements"], GROUPS["samples"], GROUPS["visits"]
UNMEASURED, PROFILES = GROUPS["omitted"], GROUPS["profiles"]
MEASUREMENTS |= {name: ("f8", unit, text) for name, (unit, text) in ONCE.items()}
MEASUREMENTS |= {
    name: ("f8", unit, f"{text} (NaN: no CUDA kernel of ours)") for name, (unit, text) in RESOURCES.items()
}
SAMPLES |= {phase: ("f8", "s", f"time of phase {phase} (NaN: no such phase)") for phase in PHASES}
SAMPLES |= {name: ("f8", unit, f"{name.replace('_', ' ')} after the repetition") for name, unit in STATES.items()}
_OF_POINTS = ("run", "operation", "variant", *DIMENSIONS, "dtype", "tile", "passed", "where")
GROUPS["profiles"] = PROFILES = {
    **{name: MEASUREMENTS[name] for name in _OF_POINTS},
    **PROFILES,
    **{name: ("f8", unit, f"{text} ({metric})") for name, (unit, text, metric) in COUNTERS.items()},
}
# Columns that identify a measurement within a run, without those that the operation adds
IDENTITY = ("sweep", "operation", "variant", "contender", "algorithm", "contender_algorithm")
IDENTITY += (*DIMENSIONS, "dtype", "ranks", "tile", "pinned")
INDEXES = {"run": "runs", "measurement": "measurements"}  # column -> the group that it indexes
Groups = dict[str, dict[str, np.ndarray]]  # group -> column -> values


def empty(group: str) -> dict[str, np.ndarray]:
    return {name: as_column([], declared) for name, declared in GROUPS[group].items()}


def as_column(values: Sequence, declared: tuple | None) -> np.ndarray:
    """Return values as an array of the declared type; an undeclared column is a dimension or a scalar."""
    dtype = declared[0] if declared else "i8" if all(isinstance(value, int | np.integer) for value in values) else "f8"
    return np.asarray(values, dtype=object if dtype == TEXT else dtype)


def row_count(columns: Mapping[str, np.ndarray]) -> int:
    return len(next(iter(columns.values())))
