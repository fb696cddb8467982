"""Arrays dealt out over ranks by blocks of rows, and matrices by any blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from mpi4py import MPI
from mpi4py.util import dtlib

from hpcmm.parallel.schedules import block_rows


def message(array) -> list:
    """A contiguous array as MPI takes it: rows of one committed type, so that counts stay far below 2^31."""
    return [array, len(array), row_type(array)]


def row_type(array) -> MPI.Datatype:
    """Return a committed type of one row of an array; the caller frees it."""
    return dtlib.from_numpy_dtype(array.dtype).Create_contiguous(math.prod(array.shape[1:])).Commit()


class BlockRows:
    """Moves the block rows of arrays of one height between rank 0 and all ranks.

    A row travels as one element of a committed datatype, so the counts that MPI sees are rows and
    stay far below 2^31 however many elements a matrix has.
    """

    def __init__(self, comm: MPI.Comm, rows: int):
        self.comm = comm
        self.blocks = block_rows(rows, comm.size)
        self.first, self.rows = self.blocks[comm.rank]
        self._counts = [count for _, count in self.blocks]
        self._starts = [first for first, _ in self.blocks]

    def part_of(self, whole: np.ndarray) -> np.ndarray:
        """Return this rank's rows of an array that it holds whole, as a view."""
        return whole[self.first : self.first + self.rows]

    def scatter(self, whole: np.ndarray | None, part: np.ndarray) -> None:
        """Send each rank its rows of rank 0's ``whole``; a part that is a view of it stays in place."""
        row = row_type(part)
        send = None if whole is None else [whole, self._counts, self._starts, row]
        in_place = whole is not None and np.shares_memory(whole, part)
        self.comm.Scatterv(send, MPI.IN_PLACE if in_place else [part, self.rows, row], root=0)
        row.Free()

    def gather(self, part: np.ndarray, whole: np.ndarray | None) -> None:
        """Bring all ranks' rows back into rank 0's ``whole``."""
        row = row_type(part)
        receive = None if whole is None else [whole, self._counts, self._starts, row]
        in_place = whole is not None and np.shares_memory(whole, part)
        self.comm.Gatherv(MPI.IN_PLACE if in_place else [part, self.rows, row], receive, root=0)
        row.Free()


def broadcast(comm: MPI.Comm, array: np.ndarray) -> None:
    """Send rank 0's array to every rank's, in place; rows keep the counts small as above."""
    whole = message(array)
    comm.Bcast(whole, root=0)
    whole[2].Free()


COMBINATIONS = {"sum": MPI.SUM, "minimum": MPI.MIN, "maximum": MPI.MAX}


def combine(comm: MPI.Comm, part: np.ndarray, result: np.ndarray | None, combination: str) -> None:
    """Bring all ranks' partial results together on rank 0."""
    comm.Reduce(part, result, op=COMBINATIONS[combination], root=0)


Block = tuple[tuple[int, int], tuple[int, int]]  # of a matrix: (first row, rows), (first column, columns)


def part_of(whole: np.ndarray, block: Block) -> np.ndarray:
    """Return a block of a matrix, as a view."""
    (row, rows), (column, columns) = block
    return whole[row : row + rows, column : column + columns]


def deal(comm: MPI.Comm, whole: np.ndarray | None, part: np.ndarray, blocks: Sequence[Block]) -> None:
    """Send each rank its block of rank 0's matrix; a block stands for each rank."""
    _move(comm, whole, part, blocks, out=True)


def collect(comm: MPI.Comm, part: np.ndarray, whole: np.ndarray | None, blocks: Sequence[Block]) -> None:
    """Bring all ranks' blocks back into rank 0's matrix."""
    _move(comm, whole, part, blocks, out=False)


def _move(comm: MPI.Comm, whole: np.ndarray | None, part: np.ndarray, blocks: Sequence[Block], out: bool) -> None:
    if whole is None:
        if part.size:
            mine = message(part)
            (comm.Recv if out else comm.Send)(mine, 0)
            mine[2].Free()
        return
    element = dtlib.from_numpy_dtype(whole.dtype)
    for rank, block in enumerate(blocks):
        (row, rows), (column, columns) = block
        if not (rows and columns):
            continue
        if rank == 0:
            at_home = part_of(whole, block)
            np.copyto(*((part, at_home) if out else (at_home, part)))
        else:
            kind = element.Create_subarray(whole.shape, (rows, columns), (row, column)).Commit()
            (comm.Send if out else comm.Recv)([whole, 1, kind], rank)
            kind.Free()
