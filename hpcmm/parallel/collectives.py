"""MPI collectives on blocks of arrays in host memory.

Importing ``mpi4py.MPI`` starts MPI. Planning and reports import this module on machines without MPI, so only the
functions that communicate import it.
"""

import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from hpcmm.parallel.schedules import block_rows

OPERATORS = {"sum": "SUM", "minimum": "MIN", "maximum": "MAX"}  # MPI's name of each combination


def mpi():
    from mpi4py import MPI

    return MPI


def element_type(dtype: np.dtype):
    """Return the MPI datatype of an array's elements, to move them.

    MPI need not have a 16-bit floating-point type, and Open MPI has none. Integers of the same size take its place.
    """
    from mpi4py.util import dtlib

    return dtlib.from_numpy_dtype(np.dtype(np.uint16) if dtype == np.float16 else dtype)


@functools.cache
def committed(dtype: np.dtype, elements: int):
    return element_type(dtype).Create_contiguous(elements).Commit()


def row_type(array):
    """Return the datatype of one row of an array; a process has few of them, and keeps each."""
    return committed(array.dtype, math.prod(array.shape[1:]))


def message(array) -> list:
    """Return a contiguous array as an MPI buffer. The count is in rows, so it stays far below 2^31."""
    return [array, len(array), row_type(array)]


def posted(comm, receives: Iterable[tuple], sends: Iterable[tuple]) -> list[Any]:
    """Begin to receive and to send contiguous arrays, each given with the other rank; empty ones are skipped."""
    pairs = [(comm.Irecv, *each) for each in receives] + [(comm.Isend, *each) for each in sends]
    return [post(message(array), rank) for post, rank, array in pairs if array.size]


class BlockRows:
    """Scatter and gather arrays with the same number of rows by block rows.

    A row is one element of a committed datatype. MPI therefore counts rows, and the counts stay far below 2^31 for
    matrices of any size. By default the blocks, a first row and a number of rows of each rank, are those of
    ``block_rows``.
    """

    def __init__(self, comm, rows: int, blocks: Sequence[tuple[int, int]] | None = None):
        self.comm = comm
        self.blocks = blocks or block_rows(rows, comm.size)
        self.first, self.rows = self.blocks[comm.rank]

    def part_of(self, whole: np.ndarray) -> np.ndarray:
        return whole[self.first : self.first + self.rows]

    def scatter(self, whole: np.ndarray | None, part: np.ndarray) -> None:
        """Send each rank its rows of rank 0's ``whole``; a ``part`` that is a view of it is not copied."""
        whole, part = self._buffers(whole, part)
        self.comm.Scatterv(whole, part, root=0)

    def gather(self, part: np.ndarray, whole: np.ndarray | None) -> None:
        """Gather all ranks' rows in rank 0's ``whole``; a ``part`` that is a view of it is not copied."""
        whole, part = self._buffers(whole, part)
        self.comm.Gatherv(part, whole, root=0)

    def _buffers(self, whole: np.ndarray | None, part: np.ndarray) -> tuple[list | None, Any]:
        row = row_type(part)
        if whole is None:
            return None, [part, self.rows, row]
        counts, starts = [count for _, count in self.blocks], [first for first, _ in self.blocks]
        in_place = np.shares_memory(whole, part)
        return [whole, counts, starts, row], mpi().IN_PLACE if in_place else [part, self.rows, row]


def broadcast(comm, array: np.ndarray) -> None:
    comm.Bcast(message(array), root=0)


def reduce(comm, part: np.ndarray, result: np.ndarray | None, combination: str) -> None:
    comm.Reduce(part, result, op=getattr(mpi(), OPERATORS[combination]), root=0)


def all_reduce(comm, array: np.ndarray, result: np.ndarray, combination: str) -> None:
    """Reduce all ranks' arrays to every rank's ``result``, which may be the array itself."""
    send = mpi().IN_PLACE if result is array else array
    comm.Allreduce(send, result, op=getattr(mpi(), OPERATORS[combination]))


Block = tuple[tuple[int, int], tuple[int, int]]  # (first row, rows), (first column, columns) of a matrix


def move_blocks(comm, whole: np.ndarray | None, part: np.ndarray, blocks: Sequence[Block], scatter: bool) -> None:
    """Send each rank its block of rank 0's matrix, or gather all blocks there; ``blocks`` has one block per rank."""
    if whole is None:
        if part.size:
            (comm.Recv if scatter else comm.Send)(message(part), 0)
        return
    element = element_type(whole.dtype)
    for rank, ((row, rows), (column, columns)) in enumerate(blocks):
        if not (rows and columns):
            continue
        if rank == 0:
            own = whole[row : row + rows, column : column + columns]
            np.copyto(*((part, own) if scatter else (own, part)))
        else:
            subarray = element.Create_subarray(whole.shape, (rows, columns), (row, column)).Commit()
            (comm.Send if scatter else comm.Recv)([whole, 1, subarray], rank)
            subarray.Free()
