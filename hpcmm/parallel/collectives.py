"""MPI collectives on blocks of arrays in host memory.

Importing ``mpi4py.MPI`` starts MPI. Planning and reports import this module on machines without MPI, so only the
functions that communicate import it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hpcmm.parallel.schedules import block_rows

if TYPE_CHECKING:
    from mpi4py import MPI

OPERATORS = {"sum": "SUM", "minimum": "MIN", "maximum": "MAX"}  # MPI's name of each combination


def mpi():
    """Return ``mpi4py.MPI``; the first call starts MPI."""
    from mpi4py import MPI

    return MPI


def element_type(dtype: np.dtype) -> MPI.Datatype:
    """Return the MPI datatype of an array's elements, to move them.

    MPI need not have a 16-bit floating-point type, and Open MPI has none. Integers of the same size take its place.
    """
    from mpi4py.util import dtlib

    return dtlib.from_numpy_dtype(np.dtype(np.uint16) if dtype == np.float16 else dtype)


def row_type(array) -> MPI.Datatype:
    """Return a committed datatype of one row of an array; the caller frees it."""
    return element_type(array.dtype).Create_contiguous(math.prod(array.shape[1:])).Commit()


def message(array) -> list:
    """Return a contiguous array as an MPI buffer. The count is in rows, so it stays far below 2^31."""
    return [array, len(array), row_type(array)]


class BlockRows:
    """Scatter and gather arrays with the same number of rows by block rows.

    A row is one element of a committed datatype. MPI therefore counts rows, and the counts stay far below 2^31 for
    matrices of any size. By default the blocks, a first row and a number of rows of each rank, are those of
    ``block_rows``.
    """

    def __init__(self, comm: MPI.Comm, rows: int, blocks: Sequence[tuple[int, int]] | None = None):
        self.comm = comm
        self.blocks = blocks or block_rows(rows, comm.size)
        self.first, self.rows = self.blocks[comm.rank]
        self._counts = [count for _, count in self.blocks]
        self._starts = [first for first, _ in self.blocks]

    def part_of(self, whole: np.ndarray) -> np.ndarray:
        """Return this rank's rows of a whole array, as a view."""
        return whole[self.first : self.first + self.rows]

    def scatter(self, whole: np.ndarray | None, part: np.ndarray) -> None:
        """Send each rank its rows of rank 0's ``whole``; a ``part`` that is a view of it is not copied."""
        row = row_type(part)
        send = None if whole is None else [whole, self._counts, self._starts, row]
        in_place = whole is not None and np.shares_memory(whole, part)
        self.comm.Scatterv(send, mpi().IN_PLACE if in_place else [part, self.rows, row], root=0)
        row.Free()

    def gather(self, part: np.ndarray, whole: np.ndarray | None) -> None:
        """Gather all ranks' rows in rank 0's ``whole``; a ``part`` that is a view of it is not copied."""
        row = row_type(part)
        receive = None if whole is None else [whole, self._counts, self._starts, row]
        in_place = whole is not None and np.shares_memory(whole, part)
        self.comm.Gatherv(mpi().IN_PLACE if in_place else [part, self.rows, row], receive, root=0)
        row.Free()


def broadcast(comm: MPI.Comm, array: np.ndarray) -> None:
    """Broadcast rank 0's array into every rank's array."""
    whole = message(array)
    comm.Bcast(whole, root=0)
    whole[2].Free()


def reduce(comm: MPI.Comm, part: np.ndarray, result: np.ndarray | None, combination: str) -> None:
    """Reduce all ranks' parts to rank 0's ``result``."""
    comm.Reduce(part, result, op=getattr(mpi(), OPERATORS[combination]), root=0)


def all_reduce(comm: MPI.Comm, array: np.ndarray, result: np.ndarray, combination: str) -> None:
    """Reduce all ranks' arrays to every rank's ``result``, which may be the array itself."""
    send = mpi().IN_PLACE if result is array else array
    comm.Allreduce(send, result, op=getattr(mpi(), OPERATORS[combination]))


Block = tuple[tuple[int, int], tuple[int, int]]  # (first row, rows), (first column, columns) of a matrix


def part_of(whole: np.ndarray, block: Block) -> np.ndarray:
    """Return a block of a matrix, as a view."""
    (row, rows), (column, columns) = block
    return whole[row : row + rows, column : column + columns]


def scatter_blocks(comm: MPI.Comm, whole: np.ndarray | None, part: np.ndarray, blocks: Sequence[Block]) -> None:
    """Send each rank its block of rank 0's matrix; ``blocks`` has one block per rank."""
    _move(comm, whole, part, blocks, scatter=True)


def gather_blocks(comm: MPI.Comm, part: np.ndarray, whole: np.ndarray | None, blocks: Sequence[Block]) -> None:
    """Gather all ranks' blocks in rank 0's matrix."""
    _move(comm, whole, part, blocks, scatter=False)


def _move(comm: MPI.Comm, whole: np.ndarray | None, part: np.ndarray, blocks: Sequence[Block], scatter: bool) -> None:
    if whole is None:
        if part.size:
            own = message(part)
            (comm.Recv if scatter else comm.Send)(own, 0)
            own[2].Free()
        return
    element = element_type(whole.dtype)
    for rank, block in enumerate(blocks):
        (row, rows), (column, columns) = block
        if not (rows and columns):
            continue
        if rank == 0:
            own = part_of(whole, block)
            np.copyto(*((part, own) if scatter else (own, part)))
        else:
            subarray = element.Create_subarray(whole.shape, (rows, columns), (row, column)).Commit()
            (comm.Send if scatter else comm.Recv)([whole, 1, subarray], rank)
            subarray.Free()
