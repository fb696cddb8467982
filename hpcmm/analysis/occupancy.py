"""Resources of a CUDA kernel on a multiprocessor (SM), and its occupancy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple
from typing import Any

import numpy as np
import pandas as pd

from hpcmm.analysis import points, precisions, row_dicts
from hpcmm.analysis.capabilities import Capability, capability
from hpcmm.model import HpcmmError, Operation, Task
from hpcmm.model.dtypes import DTYPES
from hpcmm.model.quantities import RESOURCES
from hpcmm.operations import OPERATIONS
from hpcmm.operations.blocks import OverC, Staged
from hpcmm.store import DIMENSIONS

WARP = 32
CURRENT = capability("9.0")  # has the units of allocation of all capabilities from 8.0 on
# Resources that may limit the blocks per SM -> the column of the limit
LIMITS = {name: f"limit_{name.replace(' ', '_')}" for name in ("threads", "registers", "shared memory", "blocks")}


def block_limits(kernel: Mapping[str, float], like: Capability = CURRENT) -> dict[str, int]:
    """Return the number of blocks per SM that each resource alone would allow.

    Parameters
    ----------
    kernel : mapping
        ``RESOURCES`` of a kernel. Only resources that it uses.
    like : Capability
        Has the units of allocation.

    Returns
    -------
    dict
        Keys ``"threads"``, ``"registers"``, ``"shared memory"`` and ``"blocks"``, the limit of the hardware.

    Examples
    --------
    >>> fermi = {"sm_threads": 1536, "sm_blocks": 8, "sm_registers": 32768, "sm_shared_bytes": 16384}
    >>> block_limits(fermi | {"block_x": 16, "block_y": 16, "shared_bytes": 2048})
    {'threads': 6, 'shared memory': 8, 'blocks': 8}
    """
    warps = _ceil(kernel["block_x"] * kernel["block_y"], WARP)
    limits = {"threads": int(kernel["sm_threads"] // (WARP * warps))}
    if registers := kernel.get("registers", 0):
        if like.partitions:
            of_a_warp = like.unit * _ceil(registers * WARP, like.unit)
            resident = int(kernel["sm_registers"] // like.partitions // of_a_warp) * like.partitions
            limits["registers"] = resident // warps
        else:  # a block takes registers for an even number of warps
            of_a_block = like.unit * _ceil(registers * WARP * 2 * _ceil(warps, 2), like.unit)
            limits["registers"] = int(kernel["sm_registers"] // of_a_block)
    names = ("shared_bytes", "dynamic_shared_bytes", "reserved_shared_bytes")
    if shared := like.shared_unit * _ceil(sum(kernel.get(name, 0) for name in names), like.shared_unit):
        limits["shared memory"] = int(kernel["sm_shared_bytes"] // shared)
    return limits | {"blocks": int(kernel["sm_blocks"])}


def block_on(
    like: Capability, threads: tuple[int, int], shared: int = 0, registers: int = 0, sm_shared: int = 0
) -> dict[str, int]:
    """Return ``RESOURCES`` of a block on a device of a compute capability, for ``block_limits``.

    Parameters
    ----------
    like : Capability
    threads : tuple of int
        Threads of a block in x and y.
    shared : int
        Shared memory of a block [B].
    registers : int
        Registers per thread; 0 if unknown.
    sm_shared : int
        Shared memory of an SM [B], if it is configured to another amount; 0 for that of the compute capability.

    Raises
    ------
    HpcmmError
        If such a block cannot be launched.
    """
    name = like.names.split()[0]
    for value, limit, of in (
        (threads[0] * threads[1], like.block_threads, "threads per block"),
        (shared, like.block_shared * 1024, "bytes of shared memory per block"),
        (registers, like.thread_registers, "registers per thread"),
    ):
        if value > limit:
            raise HpcmmError(f"{value} {of} are too many: compute capability {name} allows {limit}")
    return {
        "block_x": threads[0],
        "block_y": threads[1],
        "shared_bytes": shared,
        "reserved_shared_bytes": like.reserved,
        "registers": registers,
        "sm_threads": like.threads,
        "sm_blocks": like.blocks,
        "sm_registers": like.registers,
        "sm_shared_bytes": sm_shared or like.shared * 1024,
    }


def _ceil(whole: float, part: int) -> int:
    return int(-(-whole // part))


def tile_phase(rows: int, columns: int, depth: int) -> tuple[int, int]:
    """Return the elements that a block of a product loads between two barriers, and the operations on them.

    Without tiles each thread loads one element of A and one of B for one multiply-add: a tile of one element.

    Examples
    --------
    >>> tile_phase(16, 16, 16)
    (512, 8192)
    >>> tile_phase(1, 1, 1)
    (2, 2)
    """
    return depth * (rows + columns), 2 * rows * columns * depth


def resources(frame: pd.DataFrame) -> pd.DataFrame:
    """Return resources and occupancy of each CUDA kernel, one row for each operation, label and dtype.

    Returns
    -------
    DataFrame
        The row of ``measurements`` with the largest grid, and

        - ``occupancy``: threads of the resident blocks, divided by the maximum threads of an SM;
        - ``limit_threads``, ``limit_registers``, ``limit_shared_memory``, ``limit_blocks``: from
          ``block_limits``, NaN if the resource is not used; ``limited_by``: the names of the smallest ones;
        - ``computed_blocks``: the smallest of them; it should equal ``resident_blocks`` from the driver;
        - for a product, ``phase_loads`` and ``phase_flops`` from ``tile_phase``; ``pending_loads``: loads of a
          phase in all resident blocks; ``bound_flops_per_second``: the rate at which memory delivers these loads
          without caches.
    """
    rows = points(frame)
    rows = rows[rows[list(RESOURCES)].notna().all(axis=1)]
    by_grid = (rows["grid_x"] * rows["grid_y"]).argsort(kind="stable")
    rows = rows.iloc[by_grid].groupby(["operation", "label", "dtype", "gpu"], sort=False).tail(1)
    rows = rows.assign(precision=precisions(rows)).sort_values(["operation", "place", "precision"], kind="stable")
    rows = rows.drop(columns="precision").reset_index(drop=True)
    return rows.join(pd.DataFrame([occupancy_of(row) for row in row_dicts(rows)], index=rows.index))


def _staged(operation: Operation, row: Mapping[str, Any]) -> Staged | None:
    """Return the tile that a block of this kernel stages at a time; None without shared memory, or if unknown."""
    variant = next((each for each in operation.ladder if each.name == row["variant"]), None)
    if variant is None:
        return None
    shape = tuple(int(row[name]) for name in operation.dimensions)
    scalars = operation.scalars | {name: row[name] for name in operation.scalars if name in row}
    task = Task(operation, variant, shape, row["dtype"], scalars, row["tile"], int(row["multiprocessors"]))
    try:
        task = task.picked
        return task.geometry.phase(task) if isinstance(task.geometry, OverC) else None
    except HpcmmError:  # the tile depends on the SM count, which the file does not have
        return None


def occupancy_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns that ``resources`` adds to the row of one kernel."""
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
        loads, flops = tile_phase(*(astuple(staged) if staged else (1, 1, 1)))  # without tiles, per thread
        delivered = row["memory_bytes_per_second"] / DTYPES[row["dtype"]].itemsize
        found |= {
            "phase_loads": loads,
            "phase_flops": flops,
            "pending_loads": loads * row["resident_blocks"] * (1 if staged else row["block_x"] * row["block_y"]),
            "bound_flops_per_second": delivered * flops / loads,
        }
    return found
