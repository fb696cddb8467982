"""The interface of a transport.

An exchange is started once and waited for later. Each rank passes its arrivals (source, part of the source's array,
target) and its departures (destination, array). Two-sided transports send the departures. A one-sided transport reads
the arrivals from their owners' memory and ignores the departures.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpcmm.model import HpcmmError
from hpcmm.parallel.collectives import all_reduce


class TransportError(HpcmmError):
    """No transport works between these ranks, or the requested one does not."""


@dataclass(frozen=True)
class Arrival:
    """``target`` receives the part at ``index`` of rank ``source``'s shared array ``name``."""

    source: int
    name: str
    index: Any
    target: Any


class Transport:
    """The transport of a single rank, which exchanges nothing, and the base of the others.

    All methods but ``start`` and ``wait`` are collective.
    """

    name = ""
    in_host_memory = True  # whether it moves arrays in host memory; if False, in device memory
    one_sided = False
    reduces = "mpi"  # library that carries out ``all_reduce``

    def __init__(self, comm, backend):
        self.comm, self.backend = comm, backend

    @staticmethod
    def missing(comm, backend) -> str:
        """Return the reason why these ranks cannot use it, the same on every rank; empty if a trial must decide."""
        return ""

    def share(self, name: str, array) -> None:
        """Make this rank's array available to arrivals under a name, until ``unshare``."""

    def unshare(self) -> None:
        """End the sharing of all arrays, which may then be freed."""

    def fence(self, event) -> None:
        """Return once the work before ``event`` is complete on every rank whose arrays an arrival may read."""

    def start(self, arrivals: Sequence[Arrival], departures: Sequence[tuple[int, Any]], after) -> Any:
        """Begin an exchange that depends on the event ``after``; return a ticket for ``wait``.

        Ranks start matching exchanges in the same order and wait for them in that order.
        """
        return after

    def wait(self, ticket) -> None:
        """Make the main stream wait until the exchange is complete in both directions; here the ticket is an event."""
        self.backend.wait(ticket)

    def all_reduce(self, array, combination: str, result=None) -> None:
        """Reduce the ranks' arrays to every rank's ``result``, by default in place, after the work in the main stream.

        Arrays in device memory should be small: they go through host memory.
        """
        result = array if result is None else result
        if self.comm.size == 1:
            result[...] = array
        elif self.in_host_memory:
            all_reduce(self.comm, array, result, combination)
        else:
            host = np.empty(array.shape, array.dtype)
            self.backend.copy(array, host)
            all_reduce(self.comm, host, host, combination)
            self.backend.copy(host, result)

    def collect(self, pattern: str, x, y) -> None:
        """Carry out one of ``collective_links.PATTERNS`` from ``x`` to ``y``, after the work in the main stream.

        A whole vector has a part of equal length for each rank. Rank 0 broadcasts its ``x`` and gathers into its ``y``.
        """
        if y.size:
            y[...] = x

    def abandon(self) -> None:
        """Give up after an error, without waiting for other ranks or for exchanges underway. Called on all ranks."""

    def close(self) -> None:
        """Release the resources of the transport."""


def on_all_ranks(comm, action: Callable[[], Any]) -> Any:
    """Call ``action`` on every rank and return its result.

    Every rank raises TransportError with the error of the first rank on which ``action`` raises.
    """
    result, problem = None, ""
    try:
        result = action()
    except Exception as error:  # drivers and libraries raise errors of many types
        problem = f"rank {comm.rank}: {type(error).__name__}: {error}"
    problem = next(filter(None, comm.allgather(problem)), "")
    if problem:
        raise TransportError(problem)
    return result
