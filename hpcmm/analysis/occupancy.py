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
from hpcmm.operations import OPERATIONS, choice
from hpcmm.operations.blocks import OverC
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
    """Return the task of a point, with the build that ran, on a GPU with so many multiprocessors.

    None if the rung or the build was removed since.
    """
    operation = OPERATIONS[row["operation"]]
    variant = operation.find(row["variant"])
    shape = tuple(int(row[name]) for name in operation.dimensions)
    scalars = operation.scalars | {name: row[name] for name in operation.scalars if name in row}
    sms = int(multiprocessors)
    if variant is None:
        return None
    return choice.measured(Task(operation, variant, shape, row["dtype"], scalars, int(row["tile"]), sms), row["pick"])


def _of_phase(row: Mapping[str, Any]) -> dict[str, float]:
    """Return what ``resources`` tells about a phase of a product; nothing if the tile is not known."""
    with contextlib.suppress(HpcmmError):  # the tile depends on the SM count, which the file may not have
        if task := task_of(row, row["multiprocessors"]):
            staged = task.geometry.phase(task) if isinstance(task.geometry, OverC) else None
            loads, flops = tile_phase(*(astuple(staged) if staged else (1, 1, 1)))  # without tiles, per thread
            delivered = row["memory_bytes_per_second"] / DTYPES[row["dtype"]].itemsize
            pending = loads * row["resident_blocks"] * (1 if staged else row["block_x"] * row["block_y"])
            return {
                **{"phase_loads": loads, "phase_flops": flops, "pending_loads": pending},
                "bound_flops_per_second": delivered * flops / loads,
            }
    return {}


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
        occupied |= _of_phase(row)
    return occupied
