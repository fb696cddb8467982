"""What a CUDA kernel takes of a multiprocessor (SM), and what that leaves room for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple
from typing import Any

import numpy as np
import pandas as pd

from hpcmm.analysis import points, precisions, row_dicts
from hpcmm.model import RESOURCES, Operation, Task
from hpcmm.operations import OPERATIONS
from hpcmm.operations.blocks import OverC, Staged
from hpcmm.store import DIMENSIONS

# How an SM hands out what it has: to whole warps, registers of one of its four parts in units of 256,
# shared memory in units of 128 bytes (256 before compute capability 8.0, which changes little).
WARP, PARTITIONS, REGISTER_UNIT, SHARED_UNIT = 32, 4, 256, 128
# What may limit the blocks of an SM, and the column with their number if it does
LIMITS = {name: f"limit_{name.replace(' ', '_')}" for name in ("threads", "registers", "shared memory", "blocks")}


def block_limits(kernel: Mapping[str, float]) -> dict[str, int]:
    """Blocks that an SM could hold at once if it ran short of one thing only.

    Parameters
    ----------
    kernel : mapping
        ``RESOURCES`` of a kernel. What it does not use does not limit it.

    Returns
    -------
    dict
        By ``"threads"``, ``"registers"``, ``"shared memory"`` and ``"blocks"``, the hardware's own limit.

    Examples
    --------
    >>> fermi = {"sm_threads": 1536, "sm_blocks": 8, "sm_registers": 32768, "sm_shared_bytes": 16384}
    >>> block_limits(fermi | {"block_x": 16, "block_y": 16, "shared_bytes": 2048})
    {'threads': 6, 'shared memory': 8, 'blocks': 8}
    """
    warps = _ceil(kernel["block_x"] * kernel["block_y"], WARP)
    limits = {"threads": int(kernel["sm_threads"] // (WARP * warps))}
    if kernel.get("registers", 0):
        of_a_warp = REGISTER_UNIT * _ceil(kernel["registers"] * WARP, REGISTER_UNIT)
        limits["registers"] = int(kernel["sm_registers"] // PARTITIONS // of_a_warp * PARTITIONS // warps)
    names = ("shared_bytes", "dynamic_shared_bytes", "reserved_shared_bytes")
    if shared := SHARED_UNIT * _ceil(sum(kernel.get(name, 0) for name in names), SHARED_UNIT):
        limits["shared memory"] = int(kernel["sm_shared_bytes"] // shared)
    return limits | {"blocks": int(kernel["sm_blocks"])}


def _ceil(whole: float, part: int) -> int:
    return int(-(-whole // part))


def tile_phase(rows: int, columns: int, depth: int) -> tuple[int, int]:
    """Elements that a block loads, and operations that it does with them, between two barriers of a product.

    Without tiles each thread loads one element of A and one of B for a multiplication and an addition,
    as a block of one element would.

    Examples
    --------
    >>> tile_phase(16, 16, 16)
    (512, 8192)
    >>> tile_phase(1, 1, 1)
    (2, 2)
    """
    return depth * (rows + columns), 2 * rows * columns * depth


def resources(frame: pd.DataFrame) -> pd.DataFrame:
    """What each CUDA kernel takes of an SM, one row for each operation, label and dtype.

    Returns
    -------
    DataFrame
        Of ``measurements``, the row with the largest grid, and

        - ``occupancy``: threads of the resident blocks over the most threads that an SM holds;
        - ``limit_threads``, ``limit_registers``, ``limit_shared_memory``, ``limit_blocks``: as
          ``block_limits``, NaN where it does not limit; ``limited_by``: which of them are the least;
        - ``computed_blocks``: the least, which should be ``resident_blocks``, the driver's;
        - of a product ``phase_loads``, ``phase_flops``: as ``tile_phase``; ``pending_loads``: those of all
          resident blocks; ``bound_flops_per_second``: the rate at which memory delivers these loads, if
          no cache helped.
    """
    rows = points(frame)
    rows = rows[rows[list(RESOURCES)].notna().all(axis=1)]
    by_grid = (rows["grid_x"] * rows["grid_y"]).argsort(kind="stable")
    rows = rows.iloc[by_grid].groupby(["operation", "label", "dtype", "gpu"], sort=False).tail(1)
    rows = rows.assign(precision=precisions(rows)).sort_values(["operation", "place", "precision"], kind="stable")
    rows = rows.drop(columns="precision").reset_index(drop=True)
    return rows.join(pd.DataFrame([_occupancy(row) for row in row_dicts(rows)], index=rows.index))


def _staged(operation: Operation, row: Mapping[str, Any]) -> Staged | None:
    """Return what a block of the row's kernel holds of a product at a time; None without shared memory."""
    variant = next((each for each in operation.ladder if each.name == row["variant"]), None)
    geometry = variant.geometry_of(row["dtype"]) if variant else None
    if not isinstance(geometry, OverC):
        return None
    shape = tuple(int(row[name]) for name in operation.dimensions)
    return geometry.staged(Task(operation, variant, shape, row["dtype"], tile=row["tile"]))


def _occupancy(row: Mapping[str, Any]) -> dict[str, Any]:
    limits = block_limits(row)
    least = min(limits.values())
    found = {
        "occupancy": row["resident_blocks"] * row["block_x"] * row["block_y"] / row["sm_threads"],
        **{column: float(limits.get(name, np.nan)) for name, column in LIMITS.items()},
        "limited_by": ", ".join(name for name, blocks in limits.items() if blocks == least),
        "computed_blocks": least,
    }
    operation = OPERATIONS[row["operation"]]
    if operation.dimensions == DIMENSIONS:
        staged = _staged(operation, row)
        loads, flops = tile_phase(*(astuple(staged) if staged else (1, 1, 1)))  # else each thread loads for itself
        delivered = row["memory_bytes_per_second"] / np.dtype(row["dtype"]).itemsize
        found |= {
            "phase_loads": loads,
            "phase_flops": flops,
            "pending_loads": loads * row["resident_blocks"] * (1 if staged else row["block_x"] * row["block_y"]),
            "bound_flops_per_second": delivered * flops / loads,
        }
    return found
