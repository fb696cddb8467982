"""Arrays dealt out over ranks by blocks of rows."""

from __future__ import annotations

import math

import numpy as np
from mpi4py import MPI
from mpi4py.util import dtlib


def block_rows(rows: int, ranks: int) -> list[tuple[int, int]]:
    """Deal ``rows`` out evenly: (first row, number of rows) of each rank, the longer blocks first.

    >>> block_rows(7, 3)
    [(0, 3), (3, 2), (5, 2)]
    >>> block_rows(1, 2)
    [(0, 1), (1, 0)]
    """
    share, longer = divmod(rows, ranks)
    return [(rank * share + min(rank, longer), share + (rank < longer)) for rank in range(ranks)]


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

    def _row_type(self, part: np.ndarray) -> MPI.Datatype:
        width = math.prod(part.shape[1:])
        return dtlib.from_numpy_dtype(part.dtype).Create_contiguous(width).Commit()

    def part_of(self, whole: np.ndarray) -> np.ndarray:
        """Return this rank's rows of an array that it holds whole, as a view."""
        return whole[self.first : self.first + self.rows]

    def scatter(self, whole: np.ndarray | None, part: np.ndarray) -> None:
        """Send each rank its rows of rank 0's ``whole``; a part that is a view of it stays in place."""
        row = self._row_type(part)
        send = None if whole is None else [whole, self._counts, self._starts, row]
        in_place = whole is not None and np.shares_memory(whole, part)
        self.comm.Scatterv(send, MPI.IN_PLACE if in_place else [part, self.rows, row], root=0)
        row.Free()

    def gather(self, part: np.ndarray, whole: np.ndarray | None) -> None:
        """Bring all ranks' rows back into rank 0's ``whole``."""
        row = self._row_type(part)
        receive = None if whole is None else [whole, self._counts, self._starts, row]
        in_place = whole is not None and np.shares_memory(whole, part)
        self.comm.Gatherv(MPI.IN_PLACE if in_place else [part, self.rows, row], receive, root=0)
        row.Free()


def broadcast(comm: MPI.Comm, array: np.ndarray) -> None:
    """Send rank 0's array to every rank's, in place; rows keep the counts small as above."""
    row = dtlib.from_numpy_dtype(array.dtype).Create_contiguous(math.prod(array.shape[1:])).Commit()
    comm.Bcast([array, len(array), row], root=0)
    row.Free()


COMBINATIONS = {"sum": MPI.SUM, "minimum": MPI.MIN, "maximum": MPI.MAX}


def combine(comm: MPI.Comm, part: np.ndarray, result: np.ndarray | None, combination: str) -> None:
    """Bring all ranks' partial results together on rank 0."""
    comm.Reduce(part, result, op=COMBINATIONS[combination], root=0)
