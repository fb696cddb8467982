"""Resources of a CUDA kernel on a multiprocessor (SM), and its occupancy."""

import contextlib
from collections.abc import Mapping
from dataclasses import astuple
from typing import Any

import numpy as np
import pandas as pd

from hpcmm.analysis.tidy import points, row_dicts
from hpcmm.model import HpcmmError, Task
from hpcmm.model.capabilities import block_limits, tile_phase
from hpcmm.model.dtypes import DTYPES
from hpcmm.model.quantities import RESOURCES
from hpcmm.operations import OPERATIONS
from hpcmm.operations.blocks import OverC, Staged
from hpcmm.store import DIMENSIONS

# Resources that may limit the blocks per SM -> the column of the limit
LIMITS = {name: f"limit_{name.replace(' ', '_')}" for name in ("threads", "registers", "shared memory", "blocks")}


def resources(frame: pd.DataFrame) -> pd.DataFrame:
    """Return resources and occupancy of each CUDA kernel, one row for each operation, label and dtype.

    It is the row of ``measurements`` with the largest grid, and

    - ``occupancy``: threads of the resident blocks, divided by the maximum threads of an SM;
    - ``limit_threads``, ``limit_registers``, ``limit_shared_memory``, ``limit_blocks``: from ``block_limits``, NaN if
      the resource is not used; ``limited_by``: the names of the smallest ones;
    - ``computed_blocks``: the smallest of them; it should equal ``resident_blocks`` from the driver;
    - for a product, ``phase_loads`` and ``phase_flops`` from ``tile_phase``; ``pending_loads``: loads of a phase in all
      resident blocks; ``bound_flops_per_second``: the rate at which memory delivers these loads without caches.
    """
    rows = points(frame)
    rows = rows[rows[list(RESOURCES)].notna().all(axis=1)]
    by_grid = (rows["grid_x"] * rows["grid_y"]).argsort(kind="stable")
    rows = rows.iloc[by_grid].groupby(["operation", "label", "dtype", "gpu"], sort=False).tail(1)
    rows = rows.sort_values(["operation", "place", "precision"], kind="stable", ignore_index=True)
    return rows.join(pd.DataFrame([occupancy_of(row) for row in row_dicts(rows)], index=rows.index))


def task_of(row: Mapping[str, Any], multiprocessors: float) -> Task | None:
    """Return the task of a point, on a GPU with so many multiprocessors; None if its rung was removed since."""
    operation = OPERATIONS[row["operation"]]
    variant = operation.find(row["variant"])
    shape = tuple(int(row[name]) for name in operation.dimensions)
    scalars = operation.scalars | {name: row[name] for name in operation.scalars if name in row}
    sms = int(multiprocessors)
    return Task(operation, variant, shape, row["dtype"], scalars, int(row["tile"]), sms) if variant else None


def _staged(row: Mapping[str, Any]) -> Staged | None:
    """Return the tile that a block of this kernel stages at a time; None without shared memory, or if unknown."""
    with contextlib.suppress(HpcmmError):  # the tile depends on the SM count, which the file may not have
        task = task_of(row, row["multiprocessors"])
        task = task and task.picked
        return task.geometry.phase(task) if task and isinstance(task.geometry, OverC) else None
    return None


def occupancy_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns that ``resources`` adds to the row of one kernel."""
    limits = block_limits(row)
    least = min(limits.values())
    occupied = {
        "occupancy": row["resident_blocks"] * row["block_x"] * row["block_y"] / row["sm_threads"],
        **{column: float(limits.get(name, np.nan)) for name, column in LIMITS.items()},
        "limited_by": ", ".join(name for name, blocks in limits.items() if blocks == least),
        "computed_blocks": least,
        **dict.fromkeys(("phase_loads", "phase_flops", "pending_loads", "bound_flops_per_second"), np.nan),
    }
    if OPERATIONS[row["operation"]].dimensions == DIMENSIONS:
        staged = _staged(row)
        loads, flops = tile_phase(*(astuple(staged) if staged else (1, 1, 1)))  # without tiles, per thread
        delivered = row["memory_bytes_per_second"] / DTYPES[row["dtype"]].itemsize
        pending = loads * row["resident_blocks"] * (1 if staged else row["block_x"] * row["block_y"])
        occupied |= {"phase_loads": loads, "phase_flops": flops, "pending_loads": pending}
        occupied["bound_flops_per_second"] = delivered * flops / loads
    return occupied
